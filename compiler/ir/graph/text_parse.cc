// Reads graphs: a recursive descent parser without recursion that adds nodes through GraphBuilder.
// text.cc describes the form. In addition, the type of a node with operands may be omitted, and
// node numbers may be any that are defined before they are used.
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/graph/check.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/text.h"
#include "compiler/ir/graph/text_cursor.h"
#include "compiler/ir/value/message.h"
#include "compiler/ir/value/text_values.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

class GraphParser {
 public:
  GraphParser(std::string_view text, const GraphLimits& limits) : in_(text), limits_(limits) {}

  absl::StatusOr<Graph> Parse() {
    RETURN_IF_ERROR(Header());
    while (in_.TakeWord("dim")) {
      RETURN_IF_ERROR(ReadDim());
    }
    GraphBuilder builder(&graph_, limits_);
    while (!in_.Take('}')) {
      absl::Status status;
      if (in_.TakeWord("output")) {
        status = ReadOutput();
      } else if (in_.TakeWord("update")) {
        status = ReadUpdate();
      } else if (in_.Take('%')) {
        status = ReadNode(&builder);
      } else {
        status = in_.Error("expected a node (%...), an output, an update or '}' (dims come first)");
      }
      if (!status.ok()) return status;
    }
    if (!in_.AtEnd()) return in_.Error("expected the end after '}'");
    RETURN_IF_ERROR(Verify(graph_, limits_));
    return std::move(graph_);
  }

  absl::StatusOr<Attrs> ParseAttrs() {
    Attrs attrs;
    if (in_.AtEnd()) return attrs;
    RETURN_IF_ERROR(ReadAttrList(&attrs));
    if (!in_.AtEnd()) return in_.Error("expected the end after the attributes");
    return attrs;
  }

  absl::StatusOr<Declaration> ParseDeclaration() {
    ASSIGN_OR_RETURN(std::string name, in_.String("the name"));
    ASSIGN_OR_RETURN(Attrs attrs, ReadAttrs());
    RETURN_IF_ERROR(in_.Expect(':'));
    ASSIGN_OR_RETURN(TensorType type, ReadType());
    if (!in_.AtEnd()) return in_.Error("expected the end after the type");
    return Declaration{std::move(name), std::move(type), std::move(attrs)};
  }

 private:
  absl::Status Header() {
    if (!in_.TakeWord("graph")) return in_.Error("expected \"graph\"");
    ASSIGN_OR_RETURN(graph_.name, in_.String("the graph's name"));
    return in_.Expect('{');
  }

  absl::Status ReadDim() {
    ASSIGN_OR_RETURN(std::string_view name, in_.Word("the dim's name"));
    if (!in_.TakeWord("in")) return in_.Error("expected \"in\"");
    ASSIGN_OR_RETURN(std::vector<int64_t> bounds, in_.Integers());
    if (bounds.size() != 2 || bounds[0] < 0 || bounds[0] > bounds[1]) {
      return in_.Error(Cat("dim ", name, ": bounds must be [min, max] with 0 <= min <= max"));
    }
    if (static_cast<int64_t>(graph_.dims.size()) >= limits_.max_dims) {
      return in_.Error(Cat("more dims than ", limits_.max_dims, ", the limit (--max_dims)"));
    }
    graph_.dims.push_back({std::string(name), bounds[0], bounds[1]});
    return absl::OkStatus();
  }

  absl::StatusOr<NodeId> ReadReference() {
    RETURN_IF_ERROR(in_.Expect('%'));
    ASSIGN_OR_RETURN(int64_t number, in_.Integer());
    auto it = ids_.find(number);
    if (it == ids_.end()) return in_.Error(Cat("%", number, " is used before it is defined"));
    return it->second;
  }

  absl::Status ReadOutput() {
    ASSIGN_OR_RETURN(std::string name, in_.String("the output's name"));
    RETURN_IF_ERROR(in_.Expect('='));
    ASSIGN_OR_RETURN(NodeId node, ReadReference());
    graph_.outputs.push_back({std::move(name), node});
    return absl::OkStatus();
  }

  absl::Status ReadUpdate() {
    ASSIGN_OR_RETURN(NodeId node, ReadReference());
    graph_.updates.push_back(node);
    return absl::OkStatus();
  }

  absl::StatusOr<Op> ReadOp() {
    ASSIGN_OR_RETURN(std::string_view word, in_.Word("an op"));
    const std::optional<Op> op = ParseOp(word);
    if (op) return *op;
    const std::string message(
        in_.Error(Cat("op ", Quoted(word), " is not in the op table")).message());
    return Unimplemented(message);
  }

  absl::Status ReadNode(GraphBuilder* builder) {
    statement_ = in_.position();
    ASSIGN_OR_RETURN(int64_t number, in_.Integer());
    if (ids_.contains(number)) return in_.Error(Cat("%", number, " is defined twice"));
    RETURN_IF_ERROR(in_.Expect('='));
    ASSIGN_OR_RETURN(Op op, ReadOp());
    std::string name;
    if (in_.Peek() == '"') {
      ASSIGN_OR_RETURN(name, in_.String("the node's name"));
    }
    ASSIGN_OR_RETURN(NodeId id, IsDeclared(op) ? ReadDeclared(op, std::move(name), builder)
                                               : ReadComputed(op, std::move(name), builder));
    ids_.emplace(number, id);
    return absl::OkStatus();
  }

  absl::StatusOr<NodeId> ReadDeclared(Op op, std::string name, GraphBuilder* builder) {
    ASSIGN_OR_RETURN(Attrs attrs, ReadAttrs());
    RETURN_IF_ERROR(in_.Expect(':'));
    ASSIGN_OR_RETURN(TensorType type, ReadType());
    absl::StatusOr<NodeId> id =
        AtLine(IsInput(op)       ? builder->Input(std::move(name), std::move(type))
               : IsParameter(op) ? builder->Parameter(std::move(name), std::move(type))
                                 : builder->State(std::move(name), std::move(type)));
    // Attributes are checked with the whole graph.
    if (id.ok()) graph_.nodes[*id].attrs = std::move(attrs);
    return id;
  }

  absl::StatusOr<NodeId> ReadComputed(Op op, std::string name, GraphBuilder* builder) {
    ASSIGN_OR_RETURN(std::vector<NodeId> inputs, ReadOperands());
    ASSIGN_OR_RETURN(Attrs attrs, ReadAttrs());
    absl::StatusOr<NodeId> id =
        AtLine(builder->Add(op, std::move(inputs), std::move(attrs), std::move(name)));
    if (!id.ok() || !in_.Take(':')) return id;
    ASSIGN_OR_RETURN(TensorType stated, ReadType());
    const TensorType& type = graph_.nodes[*id].type;
    if (stated == type) return id;
    return in_.Error(Cat(graph_.Describe(*id), " is stated as ", TypeToString(stated),
                         "; its operands and attributes give ", TypeToString(type)));
  }

  absl::StatusOr<NodeId> AtLine(absl::StatusOr<NodeId> id) const {
    if (id.ok()) return id;
    const std::string place(in_.ErrorAt(statement_, "").message());
    return Prefixed(place, id.status());
  }

  absl::StatusOr<TensorType> ReadType() {
    ASSIGN_OR_RETURN(DType dtype, in_.DTypeWord());
    ASSIGN_OR_RETURN(Shape shape, in_.Expressions('[', ']'));
    return TensorType{dtype, std::move(shape)};
  }

  absl::StatusOr<std::vector<NodeId>> ReadOperands() {
    std::vector<NodeId> inputs;
    if (!in_.Take('(')) return inputs;
    do {
      ASSIGN_OR_RETURN(NodeId id, ReadReference());
      inputs.push_back(id);
    } while (in_.Take(','));
    RETURN_IF_ERROR(in_.Expect(')'));
    return inputs;
  }

  absl::StatusOr<Attrs> ReadAttrs() {
    Attrs attrs;
    if (!in_.Take('{') || in_.Take('}')) return attrs;
    RETURN_IF_ERROR(ReadAttrList(&attrs));
    RETURN_IF_ERROR(in_.Expect('}'));
    return attrs;
  }

  absl::Status ReadAttrList(Attrs* attrs) {
    do {
      ASSIGN_OR_RETURN(std::string_view name, in_.Word("an attribute's name"));
      RETURN_IF_ERROR(in_.Expect('='));
      ASSIGN_OR_RETURN(AttrValue value, ReadValue());
      if (!attrs->emplace(std::string(name), std::move(value)).second) {
        return in_.Error(Cat("attribute ", name, " is given twice"));
      }
    } while (in_.Take(','));
    return absl::OkStatus();
  }

  template <typename T>
  static absl::StatusOr<AttrValue> AsValue(absl::StatusOr<T> value) {
    if (!value.ok()) return value.status();
    return AttrValue(*std::move(value));
  }

  absl::StatusOr<AttrValue> ReadValue() {
    if (in_.Peek() == '"') return AsValue(in_.String("text"));
    if (in_.Peek() == '[') return AsValue(in_.Integers());
    if (in_.TakeWord("true")) return AttrValue(true);
    if (in_.TakeWord("false")) return AttrValue(false);
    if (in_.TakeWord("shape")) return AsValue(in_.Expressions('[', ']'));
    if (in_.TakeWord("map")) return AsValue(ReadMap());
    if (in_.PeekWord() == "graph") return AsValue(ReadBody());
    if (ParseDType(in_.PeekWord())) return ReadDTypeOrTensor();
    return ReadNumber();
  }

  // Adds nodes as stated. They are checked with the node that holds the graph as an attribute, once
  // the dims are known.
  absl::StatusOr<SubGraph> ReadBody() {
    if (++bodies_ > limits_.max_bodies) {
      return in_.Error(
          Cat("the graph is nested too deep; graphs may be nested ", limits_.max_bodies, " deep"));
    }
    Graph outer = std::exchange(graph_, {});
    absl::flat_hash_map<int64_t, NodeId> outer_ids = std::exchange(ids_, {});
    absl::Status status = Header();
    while (status.ok() && !in_.Take('}')) {
      if (in_.TakeWord("output")) {
        status = ReadOutput();
      } else if (in_.Take('%')) {
        status = ReadStated();
      } else {
        status = in_.Error("expected a node (%...), an output or '}' of the graph inside");
      }
    }
    Graph body = std::exchange(graph_, std::move(outer));
    ids_ = std::move(outer_ids);
    --bodies_;
    if (!status.ok()) return status;
    return SubGraph(std::move(body));
  }

  absl::Status ReadStated() {
    ASSIGN_OR_RETURN(int64_t number, in_.Integer());
    if (ids_.contains(number)) return in_.Error(Cat("%", number, " is defined twice"));
    if (static_cast<int64_t>(graph_.nodes.size()) >= limits_.max_nodes) {
      return in_.Error(Cat("more nodes than ", limits_.max_nodes, ", the limit (--max_nodes)"));
    }
    RETURN_IF_ERROR(in_.Expect('='));
    ASSIGN_OR_RETURN(Op op, ReadOp());
    Node node{.op = op};
    if (in_.Peek() == '"') {
      ASSIGN_OR_RETURN(node.name, in_.String("the node's name"));
    }
    ASSIGN_OR_RETURN(std::vector<NodeId> inputs, ReadOperands());
    ASSIGN_OR_RETURN(Attrs attrs, ReadAttrs());
    RETURN_IF_ERROR(in_.Expect(':'));
    ASSIGN_OR_RETURN(TensorType type, ReadType());
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.type = std::move(type);
    ids_.emplace(number, static_cast<NodeId>(graph_.nodes.size()));
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::StatusOr<IndexMap> ReadMap() {
    ASSIGN_OR_RETURN(Shape shape, in_.Expressions('[', ']'));
    ASSIGN_OR_RETURN(std::vector<Expr> coordinates, in_.Expressions('(', ')'));
    return IndexMap{std::move(shape), std::move(coordinates)};
  }

  absl::StatusOr<AttrValue> ReadNumber() {
    const std::string_view text = in_.Number();
    if (text.find_first_not_of("-0123456789") == std::string_view::npos) {
      TextCursor number(text);
      absl::StatusOr<int64_t> value = number.Integer();
      if (value.ok() && number.AtEnd()) return AttrValue(*value);
    } else if (std::optional<uint64_t> bits = ParseFloat(DType::kF64, text)) {
      return AttrValue(std::bit_cast<double>(*bits));
    }
    return in_.Error(Cat(Quoted(text), " is not an attribute's value"));
  }

  absl::StatusOr<AttrValue> ReadDTypeOrTensor() {
    ASSIGN_OR_RETURN(DType dtype, in_.DTypeWord());
    if (in_.Peek() != '[') return AttrValue(dtype);
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, in_.Integers());
    Tensor tensor{dtype, std::move(shape), {}};
    RETURN_IF_ERROR(in_.Expect('{'));
    absl::Status status = in_.TakeWord("hex") ? ReadHex(&tensor.bytes) : ReadElements(&tensor);
    if (!status.ok()) return status;
    return AttrValue(std::move(tensor));
  }

  absl::Status ReadHex(std::string* bytes) {
    ASSIGN_OR_RETURN(std::string read, in_.HexString());
    *bytes = std::move(read);
    return in_.Expect('}');
  }

  absl::Status ReadElements(Tensor* tensor) {
    if (in_.Take('}')) return absl::OkStatus();
    do {
      const std::string_view element = in_.Number();
      if (!AppendElement(tensor->dtype, element, &tensor->bytes)) {
        return in_.Error(
            Cat(Quoted(element), " is not a value of dtype ", DTypeName(tensor->dtype)));
      }
    } while (in_.Take(','));
    return in_.Expect('}');
  }

  TextCursor in_;
  size_t statement_ = 0;  // position where the node being read began
  const GraphLimits limits_;
  Graph graph_;
  int bodies_ = 0;                            // nesting depth of the graph being read
  absl::flat_hash_map<int64_t, NodeId> ids_;  // from the text's numbers
};

}  // namespace

absl::StatusOr<Graph> ParseGraph(std::string_view text, const GraphLimits& limits) {
  return GraphParser(text, limits).Parse();
}

absl::StatusOr<Attrs> ParseAttrs(std::string_view text) {
  return GraphParser(text, {}).ParseAttrs();
}

absl::StatusOr<Declaration> ParseDeclaration(std::string_view text) {
  return GraphParser(text, {}).ParseDeclaration();
}

}  // namespace athanor
