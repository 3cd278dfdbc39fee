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

namespace athanor {
namespace {

class GraphParser {
 public:
  GraphParser(std::string_view text, const GraphLimits& limits) : in_(text), limits_(limits) {}

  absl::StatusOr<Graph> Parse() {
    if (absl::Status s = Header(); !s.ok()) return s;
    while (in_.TakeWord("dim")) {
      if (absl::Status s = ReadDim(); !s.ok()) return s;
    }
    GraphBuilder builder(&graph_, limits_);
    while (!in_.Take('}')) {
      absl::Status status;
      if (in_.TakeWord("output")) {
        status = ReadOutput();
      } else if (in_.Take('%')) {
        status = ReadNode(&builder);
      } else {
        status = in_.Error("expected a node (%...), an output or '}' (dims come first)");
      }
      if (!status.ok()) return status;
    }
    if (!in_.AtEnd()) return in_.Error("expected the end after '}'");
    if (absl::Status s = Verify(graph_, limits_); !s.ok()) return s;
    return std::move(graph_);
  }

  absl::StatusOr<Attrs> ParseAttrs() {
    Attrs attrs;
    if (in_.AtEnd()) return attrs;
    if (absl::Status s = ReadAttrList(&attrs); !s.ok()) return s;
    if (!in_.AtEnd()) return in_.Error("expected the end after the attributes");
    return attrs;
  }

  absl::StatusOr<Declaration> ParseDeclaration() {
    absl::StatusOr<std::string> name = in_.String("the name");
    if (!name.ok()) return name.status();
    absl::StatusOr<Attrs> attrs = ReadAttrs();
    if (!attrs.ok()) return attrs.status();
    if (absl::Status s = in_.Expect(':'); !s.ok()) return s;
    absl::StatusOr<TensorType> type = ReadType();
    if (!type.ok()) return type.status();
    if (!in_.AtEnd()) return in_.Error("expected the end after the type");
    return Declaration{*std::move(name), *std::move(type), *std::move(attrs)};
  }

 private:
  absl::Status Header() {
    if (!in_.TakeWord("graph")) return in_.Error("expected \"graph\"");
    absl::StatusOr<std::string> name = in_.String("the graph's name");
    if (!name.ok()) return name.status();
    graph_.name = *std::move(name);
    return in_.Expect('{');
  }

  absl::Status ReadDim() {
    absl::StatusOr<std::string_view> name = in_.Word("the dim's name");
    if (!name.ok()) return name.status();
    if (!in_.TakeWord("in")) return in_.Error("expected \"in\"");
    absl::StatusOr<std::vector<int64_t>> bounds = in_.Integers();
    if (!bounds.ok()) return bounds.status();
    if (bounds->size() != 2 || (*bounds)[0] < 0 || (*bounds)[0] > (*bounds)[1]) {
      return in_.Error(Cat("dim ", *name, ": bounds must be [min, max] with 0 <= min <= max"));
    }
    if (static_cast<int64_t>(graph_.dims.size()) >= limits_.max_dims) {
      return in_.Error(Cat("more dims than ", limits_.max_dims, ", the limit (--max_dims)"));
    }
    graph_.dims.push_back({std::string(*name), (*bounds)[0], (*bounds)[1]});
    return absl::OkStatus();
  }

  absl::StatusOr<NodeId> ReadReference() {
    if (absl::Status s = in_.Expect('%'); !s.ok()) return s;
    absl::StatusOr<int64_t> number = in_.Integer();
    if (!number.ok()) return number.status();
    auto it = ids_.find(*number);
    if (it == ids_.end()) return in_.Error(Cat("%", *number, " is used before it is defined"));
    return it->second;
  }

  absl::Status ReadOutput() {
    absl::StatusOr<std::string> name = in_.String("the output's name");
    if (!name.ok()) return name.status();
    if (absl::Status s = in_.Expect('='); !s.ok()) return s;
    absl::StatusOr<NodeId> node = ReadReference();
    if (!node.ok()) return node.status();
    graph_.outputs.push_back({*std::move(name), *node});
    return absl::OkStatus();
  }

  absl::StatusOr<Op> ReadOp() {
    absl::StatusOr<std::string_view> word = in_.Word("an op");
    if (!word.ok()) return word.status();
    const std::optional<Op> op = ParseOp(*word);
    if (op) return *op;
    const std::string message(
        in_.Error(Cat("op ", Quoted(*word), " is not in the op table")).message());
    return Unimplemented(message);
  }

  absl::Status ReadNode(GraphBuilder* builder) {
    statement_ = in_.position();
    absl::StatusOr<int64_t> number = in_.Integer();
    if (!number.ok()) return number.status();
    if (ids_.contains(*number)) return in_.Error(Cat("%", *number, " is defined twice"));
    if (absl::Status s = in_.Expect('='); !s.ok()) return s;
    absl::StatusOr<Op> op = ReadOp();
    if (!op.ok()) return op.status();
    std::string name;
    if (in_.Peek() == '"') {
      absl::StatusOr<std::string> given = in_.String("the node's name");
      if (!given.ok()) return given.status();
      name = *std::move(given);
    }
    absl::StatusOr<NodeId> id = IsDeclared(*op) ? ReadDeclared(*op, std::move(name), builder)
                                                : ReadComputed(*op, std::move(name), builder);
    if (!id.ok()) return id.status();
    ids_.emplace(*number, *id);
    return absl::OkStatus();
  }

  absl::StatusOr<NodeId> ReadDeclared(Op op, std::string name, GraphBuilder* builder) {
    absl::StatusOr<Attrs> attrs = ReadAttrs();
    if (!attrs.ok()) return attrs.status();
    if (absl::Status s = in_.Expect(':'); !s.ok()) return s;
    absl::StatusOr<TensorType> type = ReadType();
    if (!type.ok()) return type.status();
    absl::StatusOr<NodeId> id =
        AtLine(op == Op::kInput ? builder->Input(std::move(name), *std::move(type))
                                : builder->Parameter(std::move(name), *std::move(type)));
    // Attributes are checked with the whole graph.
    if (id.ok()) graph_.nodes[*id].attrs = *std::move(attrs);
    return id;
  }

  absl::StatusOr<NodeId> ReadComputed(Op op, std::string name, GraphBuilder* builder) {
    absl::StatusOr<std::vector<NodeId>> inputs = ReadOperands();
    if (!inputs.ok()) return inputs.status();
    absl::StatusOr<Attrs> attrs = ReadAttrs();
    if (!attrs.ok()) return attrs.status();
    absl::StatusOr<NodeId> id =
        AtLine(builder->Add(op, *std::move(inputs), *std::move(attrs), std::move(name)));
    if (!id.ok() || !in_.Take(':')) return id;
    absl::StatusOr<TensorType> stated = ReadType();
    if (!stated.ok()) return stated.status();
    const TensorType& type = graph_.nodes[*id].type;
    if (*stated == type) return id;
    return in_.Error(Cat(graph_.Describe(*id), " is stated as ", TypeToString(*stated),
                         "; its operands and attributes give ", TypeToString(type)));
  }

  absl::StatusOr<NodeId> AtLine(absl::StatusOr<NodeId> id) const {
    if (id.ok()) return id;
    const std::string place(in_.ErrorAt(statement_, "").message());
    return Prefixed(place, id.status());
  }

  absl::StatusOr<TensorType> ReadType() {
    absl::StatusOr<DType> dtype = in_.DTypeWord();
    if (!dtype.ok()) return dtype.status();
    absl::StatusOr<Shape> shape = in_.Expressions('[', ']');
    if (!shape.ok()) return shape.status();
    return TensorType{*dtype, *std::move(shape)};
  }

  absl::StatusOr<std::vector<NodeId>> ReadOperands() {
    std::vector<NodeId> inputs;
    if (!in_.Take('(')) return inputs;
    do {
      absl::StatusOr<NodeId> id = ReadReference();
      if (!id.ok()) return id.status();
      inputs.push_back(*id);
    } while (in_.Take(','));
    if (absl::Status s = in_.Expect(')'); !s.ok()) return s;
    return inputs;
  }

  absl::StatusOr<Attrs> ReadAttrs() {
    Attrs attrs;
    if (!in_.Take('{') || in_.Take('}')) return attrs;
    if (absl::Status s = ReadAttrList(&attrs); !s.ok()) return s;
    if (absl::Status s = in_.Expect('}'); !s.ok()) return s;
    return attrs;
  }

  absl::Status ReadAttrList(Attrs* attrs) {
    do {
      absl::StatusOr<std::string_view> name = in_.Word("an attribute's name");
      if (!name.ok()) return name.status();
      if (absl::Status s = in_.Expect('='); !s.ok()) return s;
      absl::StatusOr<AttrValue> value = ReadValue();
      if (!value.ok()) return value.status();
      if (!attrs->emplace(std::string(*name), *std::move(value)).second) {
        return in_.Error(Cat("attribute ", *name, " is given twice"));
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
      return in_.Error(Cat("graphs may be ", limits_.max_bodies, " deep inside each other"));
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
    absl::StatusOr<int64_t> number = in_.Integer();
    if (!number.ok()) return number.status();
    if (ids_.contains(*number)) return in_.Error(Cat("%", *number, " is defined twice"));
    if (static_cast<int64_t>(graph_.nodes.size()) >= limits_.max_nodes) {
      return in_.Error(Cat("more nodes than ", limits_.max_nodes, ", the limit (--max_nodes)"));
    }
    if (absl::Status s = in_.Expect('='); !s.ok()) return s;
    absl::StatusOr<Op> op = ReadOp();
    if (!op.ok()) return op.status();
    Node node{.op = *op};
    if (in_.Peek() == '"') {
      absl::StatusOr<std::string> name = in_.String("the node's name");
      if (!name.ok()) return name.status();
      node.name = *std::move(name);
    }
    absl::StatusOr<std::vector<NodeId>> inputs = ReadOperands();
    if (!inputs.ok()) return inputs.status();
    absl::StatusOr<Attrs> attrs = ReadAttrs();
    if (!attrs.ok()) return attrs.status();
    if (absl::Status s = in_.Expect(':'); !s.ok()) return s;
    absl::StatusOr<TensorType> type = ReadType();
    if (!type.ok()) return type.status();
    node.inputs = *std::move(inputs);
    node.attrs = *std::move(attrs);
    node.type = *std::move(type);
    ids_.emplace(*number, static_cast<NodeId>(graph_.nodes.size()));
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::StatusOr<IndexMap> ReadMap() {
    absl::StatusOr<Shape> shape = in_.Expressions('[', ']');
    if (!shape.ok()) return shape.status();
    absl::StatusOr<std::vector<Expr>> coordinates = in_.Expressions('(', ')');
    if (!coordinates.ok()) return coordinates.status();
    return IndexMap{*std::move(shape), *std::move(coordinates)};
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
    absl::StatusOr<DType> dtype = in_.DTypeWord();
    if (!dtype.ok()) return dtype.status();
    if (in_.Peek() != '[') return AttrValue(*dtype);
    absl::StatusOr<std::vector<int64_t>> shape = in_.Integers();
    if (!shape.ok()) return shape.status();
    Tensor tensor{*dtype, *std::move(shape), {}};
    if (absl::Status s = in_.Expect('{'); !s.ok()) return s;
    absl::Status status = in_.TakeWord("hex") ? ReadHex(&tensor.bytes) : ReadElements(&tensor);
    if (!status.ok()) return status;
    return AttrValue(std::move(tensor));
  }

  absl::Status ReadHex(std::string* bytes) {
    absl::StatusOr<std::string> read = in_.HexString();
    if (!read.ok()) return read.status();
    *bytes = *std::move(read);
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
