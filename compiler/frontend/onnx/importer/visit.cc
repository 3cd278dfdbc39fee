// Imports nodes: checks each against its schema, then computes it as known contents or runs its
// handler.
#include "compiler/frontend/onnx/importer/visit.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/names.h"
#include "compiler/frontend/onnx/importer/context.h"
#include "compiler/frontend/onnx/known/sizes.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::AttributeProto;

bool IsOurs(std::string_view domain) {
  return domain.empty() || domain == "com.microsoft" || domain == "ai.onnx.preview";
}

std::string DomainText(std::string_view domain) {
  return domain.empty() ? "\"ai.onnx\"" : Quoted(domain);
}

}  // namespace

void PoisonResults(const ::onnx::NodeProto& node, Scope* scope) {
  for (const std::string& output : node.output()) {
    if (!output.empty()) scope->Poison(output);
  }
}

ImportState::ImportState(const OnnxModel& file, const ImportOptions& wanted,
                         std::vector<ImportRefusal>* refusals)
    : model(file),
      options(wanted),
      log(wanted.limits.max_refusals, refusals),
      budget(wanted),
      folder({.max_bytes = wanted.limits.max_folded_bytes, .max_work = wanted.limits.max_fold_work},
             wanted.cancelled) {}

GraphVisitor::~GraphVisitor() = default;

const GraphInfo& GraphVisitor::InfoOf(const GraphProto& graph, const GraphInfo* outer) {
  auto [it, added] = infos_.try_emplace(&graph);
  GraphInfo& info = it->second;
  if (!added) return info;
  info.outer = outer;
  absl::StatusOr<std::vector<int>> order = OrderOf(graph, [outer](std::string_view name) {
    const GraphInfo* around = outer;
    while (around != nullptr && !around->names.contains(name)) around = around->outer;
    return around != nullptr;
  });
  if (order.ok()) {
    info.order = *std::move(order);
  } else {
    info.status = order.status();
  }
  for (const auto& input : graph.input()) info.inputs.insert(input.name());
  info.names = info.inputs;
  for (const auto& tensor : graph.initializer()) info.names.insert(tensor.name());
  for (const NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) info.names.insert(output);
    info.looked_at += node.input_size() + node.output_size() + node.attribute_size();
    for (const AttributeProto& attr : node.attribute()) {
      info.looked_at += (attr.ints_size() + attr.floats_size()) / 64 + attr.strings_size();
    }
  }
  const auto claim = [&](const auto& claims, std::string_view kind) {
    for (const auto& each : claims) info.claims.emplace(each.name(), Claim{&each, kind});
  };
  claim(graph.input(), "input");
  claim(graph.value_info(), "value");
  claim(graph.output(), kOutput);
  info.looked_at += graph.initializer_size() + static_cast<int64_t>(info.claims.size());
  return info;
}

absl::Status GraphVisitor::AddInitializers(const GraphProto& graph, Scope* scope,
                                           const Frame& frame) {
  for (const ::onnx::TensorProto& tensor : graph.initializer()) {
    absl::StatusOr<Value> value = Value();
    if (frame.check_only) {
      value->poisoned = true;
    } else {
      value = state_.tensors->ValueOf(tensor, frame.path + tensor.name());
    }
    if (!value.ok()) {
      if (EndsImport(value.status())) return value.status();
      Refuse(
          nullptr, frame, 0,
          Prefixed(Cat("initializer ", Quoted(frame.path + tensor.name()), ": "), value.status()));
      value = Value();
      value->poisoned = true;
    }
    scope->Define(tensor.name(), *std::move(value));
  }
  for (const ::onnx::SparseTensorProto& tensor : graph.sparse_initializer()) {
    const std::string& name = tensor.values().name();
    Refuse(nullptr, frame, 0,
           Unimplemented("initializer ", Quoted(frame.path + name),
                         " is sparse, which is not supported; store it as a dense tensor"));
    scope->Poison(name);
  }
  return absl::OkStatus();
}

absl::Status GraphVisitor::Visit(const GraphProto& graph, Scope* scope, const Frame& frame,
                                 const GraphInfo* outer) {
  const GraphInfo& info = InfoOf(graph, outer);
  if (!info.status.ok()) return info.status;
  RETURN_IF_ERROR(state_.budget.CountLookedAt(info.looked_at));
  RETURN_IF_ERROR(AddInitializers(graph, scope, frame));
  CheckStated(graph, *scope, frame, info);
  for (int position : info.order) {
    RETURN_IF_ERROR(VisitNode(graph.node(position), scope, frame, info));
  }
  return absl::OkStatus();
}

absl::Status GraphVisitor::CountKnown(const NodeContext& context, const Value& value) {
  if (value.known == nullptr) return absl::OkStatus();
  // Identity's operands are counted where they are made.
  for (int i = 0; i < context.inputs(); ++i) {
    if (context.Has(i) && context.In(i).known == value.known) return absl::OkStatus();
  }
  const Known& known = *value.known;
  state_.budget.AddKnown(known.literal ? known.literal->elements()
                                       : static_cast<int64_t>(known.sizes.size()));
  return state_.budget.CheckKnown(context.frame().path + NodeName(context.node()),
                                  context.node().op_type());
}

absl::StatusOr<const ::onnx::NodeProto*> GraphVisitor::Resolve(const NodeProto& node,
                                                               const Frame& frame,
                                                               absl::Status* status) {
  const bool refers =
      std::any_of(node.attribute().begin(), node.attribute().end(),
                  [](const AttributeProto& attr) { return !attr.ref_attr_name().empty(); });
  if (!refers) return &node;
  NodeProto& copy = resolved_.emplace_back();
  copy.set_name(node.name());
  copy.set_domain(node.domain());
  copy.set_op_type(node.op_type());
  copy.set_overload(node.overload());
  *copy.mutable_input() = node.input();
  *copy.mutable_output() = node.output();
  RETURN_IF_ERROR(state_.budget.CountCopied(copy.ByteSizeLong()));
  for (const AttributeProto& attr : node.attribute()) {
    if (attr.ref_attr_name().empty()) {
      RETURN_IF_ERROR(state_.budget.CountCopied(attr.ByteSizeLong()));
      *copy.add_attribute() = attr;
      continue;
    }
    if (frame.attributes == nullptr) {
      *status = Invalid("attribute ", Quoted(attr.name()), " refers to attribute ",
                        Quoted(attr.ref_attr_name()),
                        " of a function, but its node is not in a function");
      continue;
    }
    auto given = frame.attributes->find(attr.ref_attr_name());
    if (given == frame.attributes->end()) continue;  // absent, as in the call
    if (given->second->type() != attr.type()) {
      *status = Invalid("attribute ", Quoted(attr.name()), " is of kind ",
                        AttributeProto::AttributeType_Name(attr.type()), ", but attribute ",
                        Quoted(attr.ref_attr_name()), " of the function's call of ",
                        AttributeProto::AttributeType_Name(given->second->type()));
    }
    RETURN_IF_ERROR(state_.budget.CountCopied(given->second->ByteSizeLong()));
    AttributeProto& own = *copy.add_attribute();
    own = *given->second;
    own.set_name(attr.name());
  }
  return &copy;
}

absl::StatusOr<std::vector<const Value*>> GraphVisitor::Operands(const NodeProto& node,
                                                                 const Scope& scope) {
  std::vector<const Value*> operands;
  for (const std::string& name : node.input()) {
    operands.push_back(nullptr);
    if (name.empty()) continue;
    const Scope::Found found = scope.Find(name);
    if (!found.known) return Invalid("operand ", Quoted(name), " ", kUndefined);
    operands.back() = found.value;
    if (found.value == nullptr) continue;
    for (NodeContext* context : active_) {
      if (found.level <= context->scope().level()) context->Capture(*found.value);
    }
  }
  return operands;
}

absl::StatusOr<GraphVisitor::Target> GraphVisitor::TargetOf(const NodeProto& node,
                                                            const Frame& frame,
                                                            int64_t* version) const {
  const std::string_view domain = CanonicalDomain(node.domain());
  const std::string_view op = node.op_type();
  auto opset = frame.opsets->find(domain);
  const int64_t imported = opset == frame.opsets->end() ? 0 : opset->second;
  Target target;
  if (IsOurs(domain) && imported > 0) target.schema = FindSchema(domain, op, imported);
  if (target.schema != nullptr) {
    *version = target.schema->since;
    target.row = FindHandler(domain, op, *version);
  }
  // A handler is preferred: files of ONNX Runtime contain function bodies even for ops that we
  // have.
  const bool handled = target.row != nullptr && target.row->handler != nullptr;
  target.function = handled ? nullptr : state_.model.FindFunction(domain, op, node.overload());
  if (target.function != nullptr || handled) return CheckedAge(node, imported, target);
  if (imported == 0) {
    return Invalid("domain ", DomainText(domain),
                   " is not among the model's opset_import, which must state its version");
  }
  if (!IsOurs(domain)) {
    return Unimplemented("domain ", DomainText(domain),
                         " is not supported, and the model has no function of this name; supported "
                         "are \"ai.onnx\" and parts of \"com.microsoft\" and \"ai.onnx.preview\"");
  }
  if (target.row != nullptr && !target.row->refused.empty()) {
    return Unimplemented(target.row->refused);
  }
  if (target.schema == nullptr) {
    return Unimplemented("opset ", imported, " of ", DomainText(domain), " has no such op",
                         DidYouMean(op, KnownOpNames(domain)));
  }
  if (target.schema->deprecated) return CheckNode(*target.schema, node, {});
  return Unimplemented("is not supported", DidYouMean(op, KnownOpNames(domain)));
}

absl::StatusOr<GraphVisitor::Target> GraphVisitor::CheckedAge(const NodeProto& node,
                                                              int64_t imported,
                                                              const Target& target) const {
  if (target.function != nullptr || imported >= kOldestOpset ||
      !CanonicalDomain(node.domain()).empty()) {
    return target;
  }
  if (FindSchema("", node.op_type(), kOldestOpset) == target.schema) return target;
  return Unimplemented("opset ", imported, " is older than the oldest supported one, ",
                       kOldestOpset,
                       ", and the op has changed since; convert the model to a newer opset");
}

absl::Status GraphVisitor::VisitNode(const NodeProto& given, Scope* scope, const Frame& frame,
                                     const GraphInfo& info) {
  RETURN_IF_ERROR(state_.budget.CountVisit(state_.graph.nodes.size(), state_.folder.cancelled()));
  absl::Status status;
  ASSIGN_OR_RETURN(const NodeProto* resolved, Resolve(given, frame, &status));
  const NodeProto& node = *resolved;
  int64_t version = 0;
  absl::StatusOr<std::vector<const Value*>> operands = Operands(node, *scope);
  absl::StatusOr<Target> target = TargetOf(node, frame, &version);
  if (status.ok()) status = target.status();
  if (status.ok()) status = operands.status();
  if (!status.ok()) {
    Refuse(&node, frame, version, status);
    status = CheckInside(node, *scope, frame, info, nullptr);
    PoisonResults(node, scope);
    return status;
  }
  if (target->function != nullptr) {
    return CallFunction(*target->function, node, *operands, scope, frame);
  }
  NodeContext context(this, node, *target->schema, *operands, *scope, frame, info);
  status = CheckNode(*target->schema, node, *operands);
  const bool poisoned =
      frame.check_only || std::any_of(operands->begin(), operands->end(),
                                      [](const Value* v) { return v != nullptr && v->poisoned; });
  const auto mark = static_cast<NodeId>(state_.graph.nodes.size());
  bool build = status.ok() && !poisoned;
  if (build) status = RunHandler(*target, &context);
  if (EndsImport(status)) {
    return Prefixed(Cat("node ", Quoted(frame.path + NodeName(node)), " (", node.op_type(), "): "),
                    status);
  }
  if (build && status.ok()) return Conclude(&context, mark, scope);
  // ABORTED: the refusal inside has been noted.
  if (!status.ok() && status.code() != absl::StatusCode::kAborted) {
    Refuse(&node, frame, version, status, context.Settles(status));
  }
  status = CheckInside(node, *scope, frame, info, &context);
  PoisonResults(node, scope);
  return status;
}

absl::Status GraphVisitor::RunHandler(const Target& target, NodeContext* context) {
  if (target.schema->domain.empty()) {
    if (std::optional<std::vector<Value>> known =
            ComputeKnown(*context, state_.b->bounds(), state_.budget.MostKnown())) {
      for (size_t o = 0; o < known->size(); ++o) {
        context->Set(static_cast<int>(o), std::move((*known)[o]));
      }
      return absl::OkStatus();
    }
  }
  absl::Status status = target.row->handler(*context);
  // The builder's failure came first; the handler's status may only be a consequence of it.
  const absl::Status built = state_.b->TakeStatus();
  return built.ok() ? status : built;
}

absl::Status GraphVisitor::Conclude(NodeContext* context, NodeId mark, Scope* scope) {
  const NodeProto& node = context->node();
  const std::vector<int> sources = context->Sources();
  for (int o = 0; o < context->outputs(); ++o) {
    if (!context->Wants(o)) continue;
    const std::string& name = node.output(o);
    if (!context->result(o)) {
      Refuse(&node, context->frame(), context->version(),
             Unimplemented("its result ", o, ", ", Quoted(name),
                           ", is not supported with these attributes"));
      scope->Poison(name);
      continue;
    }
    Value& value = *context->result(o);
    if (value.known == nullptr && value.node != kNoNode) {
      if (std::optional<Tensor> folded =
              state_.folder.Fold(state_.graph, value.node, state_.budget.MostKnown())) {
        value.known = std::make_shared<const Known>(KnownOf(*std::move(folded)));
        value.node = kNoNode;
      }
      if (state_.folder.cancelled()) return state_.budget.Check(state_.graph.nodes.size(), true);
    }
    RETURN_IF_ERROR(CountKnown(*context, value));
    value.sources = value.known != nullptr ? std::vector<int>() : sources;
    if (value.node >= mark) {
      Node& made = state_.graph.nodes[value.node];
      if (made.name.empty()) made.name = state_.tensors->UniqueName(context->frame().path + name);
    }
    if (absl::Status s = CheckClaims(name, value, context->frame(), context->info()); !s.ok()) {
      Refuse(&node, context->frame(), context->version(), s);
    }
    scope->Define(name, value);
  }
  return absl::OkStatus();
}

absl::Status GraphVisitor::CheckInside(const NodeProto& node, const Scope& scope,
                                       const Frame& frame, const GraphInfo& info,
                                       const NodeContext* context) {
  for (const AttributeProto& attr : node.attribute()) {
    std::vector<const GraphProto*> graphs;
    if (attr.has_g()) graphs.push_back(&attr.g());
    for (const GraphProto& graph : attr.graphs()) graphs.push_back(&graph);
    for (const GraphProto* graph : graphs) {
      if (context != nullptr && context->Visited(*graph)) continue;
      Frame inside = frame;
      inside.path = Cat(frame.path, NodeName(node), "/", attr.name(), "/");
      inside.check_only = true;
      if (++inside.depth > state_.options.limits.max_nesting) {
        Refuse(&node, frame, 0, Nested());
        continue;
      }
      Scope body(&scope);
      for (const auto& input : graph->input()) {
        body.Poison(input.name());
      }
      absl::Status status = Visit(*graph, &body, inside, &info);
      if (EndsImport(status)) return status;
      if (!status.ok()) Refuse(&node, frame, 0, status);
    }
  }
  return absl::OkStatus();
}

absl::Status GraphVisitor::Nested() const {
  return Invalid("graphs and functions are nested deeper than ", state_.options.limits.max_nesting,
                 ", the limit of an import");
}

absl::StatusOr<std::optional<std::vector<Value>>> GraphVisitor::TryInline(
    const GraphProto& graph, absl::Span<const Value> inputs, std::string_view label,
    NodeContext* context) {
  const ImportLog::Mark mark = state_.log.mark();
  absl::StatusOr<std::vector<Value>> results = Inline(graph, inputs, label, context);
  const absl::Status built = state_.b->TakeStatus();
  if (results.ok() && built.ok()) return *std::move(results);
  if (EndsImport(results.status())) return results.status();
  state_.log.RollBack(mark);
  return std::nullopt;
}

absl::StatusOr<std::vector<Value>> GraphVisitor::Inline(const GraphProto& graph,
                                                        absl::Span<const Value> inputs,
                                                        std::string_view label,
                                                        NodeContext* context) {
  const Frame& outside = context->frame();
  if (outside.depth + 1 > state_.options.limits.max_nesting) return Nested();
  if (static_cast<size_t>(graph.input_size()) != inputs.size()) {
    return Invalid("graph ", Quoted(label), " has ", graph.input_size(), " inputs; it must have ",
                   inputs.size());
  }
  if (state_.budget.unroll_left() < 0) {
    return Unimplemented("the model's loops become more than ",
                         state_.options.limits.max_unrolled_nodes,
                         " nodes when unrolled, the limit of an import");
  }
  Frame frame = outside;
  frame.path = Cat(outside.path, NodeName(context->node()), "/", label, "/");
  ++frame.depth;
  Scope body(&context->scope());
  for (int i = 0; i < graph.input_size(); ++i) body.Define(graph.input(i).name(), inputs[i]);
  const size_t before = state_.graph.nodes.size();
  const int64_t refused = state_.log.refused();
  active_.push_back(context);
  absl::Status status = Visit(graph, &body, frame, &context->info());
  active_.pop_back();
  if (active_.empty()) state_.budget.AddUnrolled(state_.graph.nodes.size() - before);
  if (!status.ok()) return status;
  if (state_.log.refused() > refused) return absl::AbortedError("refused inside");
  std::vector<Value> outputs;
  for (const auto& output : graph.output()) {
    const Scope::Found found = body.Find(output.name());
    if (found.value == nullptr) {
      return Invalid("output ", Quoted(output.name()), " of graph ", Quoted(label), " ",
                     kUndefined);
    }
    if (found.value->poisoned) return absl::AbortedError("refused inside");
    if (found.level <= context->scope().level()) {
      context->Capture(*found.value);
      absl::Status s = CheckClaim(output.name(), *found.value, frame, {&output, kOutput});
      if (!s.ok()) return s;
    }
    outputs.push_back(*found.value);
  }
  return outputs;
}

}  // namespace athanor::onnx
