#include "compiler/frontend/onnx/model/model.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/frontend/parse.h"
#include "compiler/ir/graph/check.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;

using FunctionKey = std::tuple<std::string, std::string, std::string>;

// Calls `take` for every node in `nodes` and their sub-graphs. Iterative, because only the parser
// bounds the nesting.
template <typename Take>
absl::Status ForEachNode(const google::protobuf::RepeatedPtrField<NodeProto>& nodes,
                         const Take& take, std::vector<const GraphProto*>* graphs = nullptr) {
  std::vector<const GraphProto*> left;
  const auto visit = [&](const google::protobuf::RepeatedPtrField<NodeProto>& list) {
    for (const NodeProto& node : list) {
      RETURN_IF_ERROR(take(node));
      for (const ::onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.has_g()) left.push_back(&attribute.g());
        for (const GraphProto& graph : attribute.graphs()) left.push_back(&graph);
      }
    }
    return absl::OkStatus();
  };
  absl::Status s = visit(nodes);
  while (s.ok() && !left.empty()) {
    const GraphProto* graph = left.back();
    left.pop_back();
    if (graphs != nullptr) graphs->push_back(graph);
    s = visit(graph->node());
  }
  return s;
}

// Checks names of values, nodes and ops, which messages may quote.
class NameChecker {
 public:
  explicit NameChecker(const GraphLimits& limits) : limits_(limits) {}

  absl::Status Nodes(const google::protobuf::RepeatedPtrField<NodeProto>& nodes) {
    std::vector<const GraphProto*> graphs;
    absl::Status s = ForEachNode(nodes, [&](const NodeProto& n) { return Node(n); }, &graphs);
    for (size_t i = 0; s.ok() && i < graphs.size(); ++i) s = Interface(*graphs[i]);
    return s;
  }

  absl::Status Interface(const GraphProto& graph) const {
    absl::Status s = CheckName("graph name", graph.name(), limits_);
    for (const auto& input : graph.input()) Check("input name", input.name(), &s);
    for (const auto& output : graph.output()) Check("output name", output.name(), &s);
    for (const auto& tensor : graph.initializer()) Check("initialiser name", tensor.name(), &s);
    for (const auto& tensor : graph.sparse_initializer()) {
      Check("initialiser name", tensor.values().name(), &s);
    }
    return s;
  }

  void Check(std::string_view what, const std::string& name, absl::Status* s) const {
    if (s->ok()) *s = CheckName(what, name, limits_);
  }

 private:
  absl::Status Node(const NodeProto& node) {
    if (++nodes_ > limits_.max_nodes) {
      return Invalid("the model has more than ", limits_.max_nodes, " nodes; ",
                     LimitIs(limits_.max_nodes, "max_nodes"));
    }
    absl::Status s = CheckName("node name", node.name(), limits_);
    Check("op_type", node.op_type(), &s);
    Check("domain", node.domain(), &s);
    Check("overload", node.overload(), &s);
    for (const std::string& name : node.input()) Check("operand name", name, &s);
    for (const std::string& name : node.output()) Check("result name", name, &s);
    for (const auto& attribute : node.attribute()) Check("attribute name", attribute.name(), &s);
    if (s.ok() && node.op_type().empty())
      return Invalid("node ", Quoted(NodeName(node)), " has no op_type");
    return s;
  }

  const GraphLimits& limits_;
  int64_t nodes_ = 0;
};

absl::StatusOr<std::map<std::string, int64_t, std::less<>>> ReadOpsets(
    const google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto>& imports) {
  std::map<std::string, int64_t, std::less<>> opsets;
  for (const ::onnx::OperatorSetIdProto& import : imports) {
    const std::string domain(CanonicalDomain(import.domain()));
    const int64_t version = import.version();
    const std::string text = domain.empty() ? "opset" : Cat("domain ", Quoted(domain), ": opset");
    if (version < 1) return Invalid(text, " ", version, " is not a version; versions start at 1");
    if (domain.empty() && version > kNewestOpset) {
      return Invalid("opset ", version, " is newer than this server reads, ", kNewestOpset);
    }
    const auto [stated, fresh] = opsets.emplace(domain, version);
    if (!fresh && stated->second != version) {
      return Invalid(text, " is stated twice, as ", stated->second, " and as ", version,
                     "; a model has one version of a domain");
    }
  }
  return opsets;
}

std::string FunctionText(const FunctionKey& key) {
  const auto& [domain, name, overload] = key;
  return Quoted(
      Cat(domain, domain.empty() ? "" : ".", name, overload.empty() ? "" : ":", overload));
}

FunctionKey KeyOf(std::string_view domain, std::string_view name, std::string_view overload) {
  return {std::string(CanonicalDomain(domain)), std::string(name), std::string(overload)};
}

// Finds functions that call each other in a cycle.
class FunctionOrder {
 public:
  explicit FunctionOrder(const OnnxModel& model) : model_(model) {}

  absl::Status Check() {
    for (const auto& [key, function] : model_.functions) {
      if (state_[function] == kNew) {
        RETURN_IF_ERROR(From(key, function));
      }
    }
    return absl::OkStatus();
  }

 private:
  enum State { kNew, kOpen, kDone };
  struct Call {
    FunctionKey key;
    const FunctionProto* function;
    std::vector<std::pair<FunctionKey, const FunctionProto*>> callees;
    size_t next = 0;
  };

  absl::Status From(const FunctionKey& key, const FunctionProto* function) {
    Open(key, function);
    while (!path_.empty()) {
      Call& call = path_.back();
      if (call.next == call.callees.size()) {
        state_[call.function] = kDone;
        path_.pop_back();
        continue;
      }
      const auto [callee_key, callee] = call.callees[call.next++];
      if (state_[callee] == kOpen) return Circle(callee_key, callee);
      if (state_[callee] == kNew) Open(callee_key, callee);
    }
    return absl::OkStatus();
  }

  void Open(const FunctionKey& key, const FunctionProto* function) {
    state_[function] = kOpen;
    Call call{key, function, {}};
    const absl::Status s = ForEachNode(function->node(), [&](const NodeProto& node) {
      FunctionKey callee = KeyOf(node.domain(), node.op_type(), node.overload());
      const auto found = model_.functions.find(callee);
      if (found != model_.functions.end()) call.callees.push_back({callee, found->second});
      return absl::OkStatus();
    });
    s.IgnoreError();  // the visitor never fails
    path_.push_back(std::move(call));
  }

  absl::Status Circle(const FunctionKey& key, const FunctionProto* function) const {
    std::string text;
    bool inside = false;
    for (const Call& call : path_) {
      inside |= call.function == function;
      if (inside) text += Cat(FunctionText(call.key), " -> ");
    }
    return Invalid("functions call each other without end: ", text, FunctionText(key));
  }

  const OnnxModel& model_;
  absl::flat_hash_map<const FunctionProto*, State> state_;
  std::vector<Call> path_;
};

absl::Status AddFunctions(NameChecker* names, OnnxModel* model) {
  for (const FunctionProto& function : model->proto.functions()) {
    absl::Status s = absl::OkStatus();
    names->Check("function name", function.name(), &s);
    names->Check("function domain", function.domain(), &s);
    for (const std::string& name : function.input()) names->Check("operand name", name, &s);
    for (const std::string& name : function.output()) names->Check("result name", name, &s);
    if (s.ok()) s = names->Nodes(function.node());
    const FunctionKey key = KeyOf(function.domain(), function.name(), function.overload());
    if (s.ok()) s = ReadOpsets(function.opset_import()).status();
    if (!s.ok()) return Prefixed(Cat("function ", FunctionText(key), ": "), s);
    if (!model->functions.emplace(key, &function).second) {
      return Invalid("function ", FunctionText(key), " is defined twice");
    }
  }
  return FunctionOrder(*model).Check();
}

}  // namespace

std::string_view CanonicalDomain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

std::string NodeName(const NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const std::string& name : node.output()) {
    if (!name.empty()) return name;
  }
  return node.op_type();
}

int64_t OnnxModel::VersionOf(std::string_view domain) const {
  const auto found = opsets.find(CanonicalDomain(domain));
  return found == opsets.end() ? 0 : found->second;
}

const FunctionProto* OnnxModel::FindFunction(std::string_view domain, std::string_view name,
                                             std::string_view overload) const {
  const auto found = functions.find(KeyOf(domain, name, overload));
  return found == functions.end() ? nullptr : found->second;
}

absl::StatusOr<OnnxModel> ParseOnnx(Lifted lifted, FileTable files, const GraphLimits& limits) {
  OnnxModel model;
  model.lifted = std::move(lifted.payloads);
  model.files = std::move(files);
  if (lifted.message.empty()) return Invalid("the file is empty; it must be an onnx.ModelProto");
  absl::Status s = ParseMessage(lifted.message, &model.proto);
  if (!s.ok()) return s;
  if (!model.proto.has_graph()) return Invalid("the model has no graph");
  const int64_t ir = model.proto.ir_version();
  if (!model.proto.has_ir_version()) return Invalid("the model states no ir_version");
  if (ir < kOldestIr) {
    return Invalid("IR version ", ir, " is older than this server reads, ", kOldestIr);
  }
  if (ir > kNewestIr) {
    return Invalid("IR version ", ir, " is newer than this server reads, ", kNewestIr);
  }
  if (model.proto.opset_import().empty()) return Invalid("the model has no opset_import");
  ASSIGN_OR_RETURN(model.opsets, ReadOpsets(model.proto.opset_import()));
  NameChecker names(limits);
  s = names.Interface(model.proto.graph());
  if (s.ok()) s = names.Nodes(model.proto.graph().node());
  if (s.ok()) s = AddFunctions(&names, &model);
  if (!s.ok()) return s;
  return model;
}

}  // namespace athanor::onnx
