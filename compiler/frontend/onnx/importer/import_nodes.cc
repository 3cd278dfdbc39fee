// Imports nodes: checks each against its schema, then computes it as known contents or runs its
// handler.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/names.h"
#include "compiler/frontend/onnx/importer/context.h"
#include "compiler/frontend/onnx/importer/importer.h"
#include "compiler/frontend/onnx/known/sizes.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

using ::onnx::AttributeProto;

constexpr int64_t kNodesBetweenAsking = 64;
constexpr int64_t kLookedAtByNode = 64;  // per node that may be visited

bool IsOurs(std::string_view domain) {
  return domain.empty() || domain == "com.microsoft" || domain == "ai.onnx.preview";
}

std::string DomainText(std::string_view domain) {
  return domain.empty() ? "\"ai.onnx\"" : Quoted(domain);
}

}  // namespace

bool EndsImport(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

const GraphInfo& Importer::InfoOf(const GraphProto& graph, const GraphInfo* outer) {
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

absl::Status Importer::VisitGraph(const GraphProto& graph, Scope* scope, const Frame& frame,
                                  const GraphInfo* outer) {
  const GraphInfo& info = InfoOf(graph, outer);
  if (!info.status.ok()) return info.status;
  if (absl::Status s = CountLookedAt(info.looked_at); !s.ok()) return s;
  if (absl::Status s = AddInitializers(graph, scope, frame); !s.ok()) return s;
  CheckStated(graph, *scope, frame, info);
  for (int position : info.order) {
    if (absl::Status s = VisitNode(graph.node(position), scope, frame, info); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Importer::CheckLimits() const {
  const ImportLimits& limits = options_.limits;
  if (visited_ > limits.max_inlined_nodes) {
    return absl::ResourceExhaustedError(
        Cat("the model has more than ", limits.max_inlined_nodes,
            " nodes, functions and branches counted each time they are used"));
  }
  // Counts nodes generously, since those that no output needs are dropped in the end.
  if (static_cast<int64_t>(graph_.nodes.size()) > 4 * limits.graph.max_nodes) {
    return absl::ResourceExhaustedError(
        Cat("the model becomes more than ", 4 * limits.graph.max_nodes, " nodes; ",
            LimitIs(limits.graph.max_nodes, "max_nodes"), " after those that nothing needs"));
  }
  const bool asked = options_.cancelled && visited_ % kNodesBetweenAsking == 0;
  if (folder_.cancelled() || (asked && options_.cancelled())) {
    return absl::CancelledError("the import was cancelled");
  }
  return absl::OkStatus();
}

absl::Status Importer::CountLookedAt(int64_t count) {
  looked_at_ += count;
  const int64_t most = kLookedAtByNode * options_.limits.max_inlined_nodes;
  if (looked_at_ <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat("the model has more than ", most,
          " operands, results, attributes and initialisers, functions and branches counted each "
          "time they are used"));
}

void Importer::Refuse(const NodeProto* node, const Frame& frame, int64_t version,
                      absl::Status status, std::vector<std::string> inputs) {
  ++refused_;
  if (refused_ > options_.limits.max_refusals) {
    refusals_->back() = {.code = refusals_->back().code,
                         .reason = Cat(refused_ - options_.limits.max_refusals + 1,
                                       " more refusals are not listed")};
    return;
  }
  Refusal refusal;
  refusal.code = status.code() == absl::StatusCode::kUnimplemented
                     ? absl::StatusCode::kUnimplemented
                     : absl::StatusCode::kInvalidArgument;
  if (node != nullptr) {
    refusal.node = frame.path + NodeName(*node);
    refusal.domain = CanonicalDomain(node->domain());
    refusal.op = node->op_type();
  }
  refusal.version = version;
  refusal.reason = std::string(absl::string_view(Shortened(status).message()));
  refusal.inputs = std::move(inputs);
  refusals_->push_back(std::move(refusal));
}

void Importer::Poison(const NodeProto& node, Scope* scope) {
  for (const std::string& output : node.output()) {
    Value poisoned;
    poisoned.poisoned = true;
    if (!output.empty()) scope->Define(output, std::move(poisoned));
  }
}

int64_t Importer::MostKnown() const {
  return known_ < options_.limits.max_known_elements ? kMaxKnownElements : kMaxFewElements;
}

absl::Status Importer::CountKnown(const NodeContext& context, const Value& value) {
  if (value.known == nullptr) return absl::OkStatus();
  // Identity's operands are counted where they are made.
  for (int i = 0; i < context.inputs(); ++i) {
    if (context.Has(i) && context.In(i).known == value.known) return absl::OkStatus();
  }
  const Known& known = *value.known;
  known_ += known.literal ? known.literal->elements() : static_cast<int64_t>(known.sizes.size());
  const int64_t most = 4 * options_.limits.max_known_elements;
  if (known_ <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat("node ", Quoted(context.frame().path + NodeName(context.node())), " (",
          context.node().op_type(),
          "): the constants and sizes that the model computes have more "
          "than ",
          most,
          " elements up to here, the most that are known at import; store what is "
          "no shape as an initializer"));
}

absl::Status Importer::CountCopied(size_t bytes) {
  copied_ += static_cast<int64_t>(bytes);
  if (copied_ <= options_.limits.max_copied_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat("calls of functions make copies of more than ", options_.limits.max_copied_bytes,
          " bytes of their nodes; ", LimitIs(options_.limits.max_copied_bytes, "max_graph_bytes")));
}

absl::StatusOr<const ::onnx::NodeProto*> Importer::Resolve(const NodeProto& node,
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
  if (absl::Status s = CountCopied(copy.ByteSizeLong()); !s.ok()) return s;
  for (const AttributeProto& attr : node.attribute()) {
    if (attr.ref_attr_name().empty()) {
      if (absl::Status s = CountCopied(attr.ByteSizeLong()); !s.ok()) return s;
      *copy.add_attribute() = attr;
      continue;
    }
    if (frame.attributes == nullptr) {
      *status = Invalid("attribute ", Quoted(attr.name()), " refers to attribute ",
                        Quoted(attr.ref_attr_name()), " of a function, but is in none");
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
    if (absl::Status s = CountCopied(given->second->ByteSizeLong()); !s.ok()) return s;
    AttributeProto& own = *copy.add_attribute();
    own = *given->second;
    own.set_name(attr.name());
  }
  return &copy;
}

absl::StatusOr<std::vector<const Value*>> Importer::Operands(const NodeProto& node,
                                                             const Scope& scope) {
  std::vector<const Value*> operands;
  for (const std::string& name : node.input()) {
    operands.push_back(nullptr);
    if (name.empty()) continue;
    const Scope::Found found = scope.Find(name);
    if (!found.known) return Invalid("operand ", Quoted(name), " is made by nothing");
    operands.back() = found.value;
    if (found.value == nullptr) continue;
    for (NodeContext* context : active_) {
      if (found.level <= context->scope().level()) context->Capture(*found.value);
    }
  }
  return operands;
}

absl::StatusOr<Importer::Target> Importer::TargetOf(const NodeProto& node, const Frame& frame,
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
  target.function = handled ? nullptr : model_.FindFunction(domain, op, node.overload());
  if (target.function != nullptr || handled) return CheckedAge(node, imported, target);
  if (imported == 0) {
    return Invalid("domain ", DomainText(domain),
                   " is not among the model's opset_import; it has to say which version is meant");
  }
  if (!IsOurs(domain)) {
    return Unimplemented("domain ", DomainText(domain),
                         " is not served, and the model has no function of this name; served are "
                         "\"ai.onnx\", and parts of \"com.microsoft\" and \"ai.onnx.preview\"");
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

absl::StatusOr<Importer::Target> Importer::CheckedAge(const NodeProto& node, int64_t imported,
                                                      const Target& target) const {
  if (target.function != nullptr || imported >= kOldestOpset ||
      !CanonicalDomain(node.domain()).empty()) {
    return target;
  }
  if (FindSchema("", node.op_type(), kOldestOpset) == target.schema) return target;
  return Unimplemented("opset ", imported, " is older than what is read, ", kOldestOpset,
                       ", and the op has changed since; convert the model to a newer opset");
}

absl::Status Importer::VisitNode(const NodeProto& given, Scope* scope, const Frame& frame,
                                 const GraphInfo& info) {
  ++visited_;
  if (absl::Status s = CheckLimits(); !s.ok()) return s;
  absl::Status status;
  const absl::StatusOr<const NodeProto*> resolved = Resolve(given, frame, &status);
  if (!resolved.ok()) return resolved.status();
  const NodeProto& node = **resolved;
  int64_t version = 0;
  absl::StatusOr<std::vector<const Value*>> operands = Operands(node, *scope);
  absl::StatusOr<Target> target = TargetOf(node, frame, &version);
  if (status.ok()) status = target.status();
  if (status.ok()) status = operands.status();
  if (!status.ok()) {
    Refuse(&node, frame, version, status);
    status = CheckInside(node, *scope, frame, info, nullptr);
    Poison(node, scope);
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
  const auto mark = static_cast<NodeId>(graph_.nodes.size());
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
  Poison(node, scope);
  return status;
}

absl::Status Importer::RunHandler(const Target& target, NodeContext* context) {
  if (target.schema->domain.empty()) {
    if (std::optional<std::vector<Value>> known =
            ComputeKnown(*context, b_->bounds(), MostKnown())) {
      for (size_t o = 0; o < known->size(); ++o) {
        context->Set(static_cast<int>(o), std::move((*known)[o]));
      }
      return absl::OkStatus();
    }
  }
  absl::Status status = target.row->handler(*context);
  // The builder's failure came first; the handler's status may only be a consequence of it.
  const absl::Status built = b_->TakeStatus();
  return built.ok() ? status : built;
}

absl::Status Importer::Conclude(NodeContext* context, NodeId mark, Scope* scope) {
  const NodeProto& node = context->node();
  const std::vector<int> sources = context->Sources();
  for (int o = 0; o < context->outputs(); ++o) {
    if (!context->Wants(o)) continue;
    const std::string& name = node.output(o);
    if (!context->result(o)) {
      Refuse(&node, context->frame(), context->version(),
             Unimplemented("its result ", o, ", ", Quoted(name),
                           ", is not served with these attributes"));
      Value poisoned;
      poisoned.poisoned = true;
      scope->Define(name, std::move(poisoned));
      continue;
    }
    Value& value = *context->result(o);
    if (value.known == nullptr && value.node != kNoNode) {
      if (std::optional<Tensor> folded = folder_.Fold(graph_, value.node, MostKnown())) {
        value.known = std::make_shared<const Known>(KnownOf(*std::move(folded)));
        value.node = kNoNode;
      }
      if (folder_.cancelled()) return CheckLimits();
    }
    if (absl::Status s = CountKnown(*context, value); !s.ok()) return s;
    value.sources = value.known != nullptr ? std::vector<int>() : sources;
    if (value.node >= mark) {
      Node& made = graph_.nodes[value.node];
      if (made.name.empty()) made.name = UniqueName(context->frame().path + name);
    }
    if (absl::Status s = CheckClaims(name, value, context->frame(), context->info()); !s.ok()) {
      Refuse(&node, context->frame(), context->version(), s);
    }
    scope->Define(name, value);
  }
  return absl::OkStatus();
}

absl::Status Importer::CheckInside(const NodeProto& node, const Scope& scope, const Frame& frame,
                                   const GraphInfo& info, const NodeContext* context) {
  for (const AttributeProto& attr : node.attribute()) {
    std::vector<const GraphProto*> graphs;
    if (attr.has_g()) graphs.push_back(&attr.g());
    for (const GraphProto& graph : attr.graphs()) graphs.push_back(&graph);
    for (const GraphProto* graph : graphs) {
      if (context != nullptr && context->Visited(*graph)) continue;
      Frame inside = frame;
      inside.path = Cat(frame.path, NodeName(node), "/", attr.name(), "/");
      inside.check_only = true;
      if (++inside.depth > options_.limits.max_nesting) {
        Refuse(&node, frame, 0, Nested());
        continue;
      }
      Scope body(&scope);
      for (const auto& input : graph->input()) {
        Value poisoned;
        poisoned.poisoned = true;
        body.Define(input.name(), std::move(poisoned));
      }
      absl::Status status = VisitGraph(*graph, &body, inside, &info);
      if (EndsImport(status)) return status;
      if (!status.ok()) Refuse(&node, frame, 0, status);
    }
  }
  return absl::OkStatus();
}

absl::Status Importer::Nested() const {
  return Invalid("graphs and functions are nested deeper than ", options_.limits.max_nesting);
}

absl::StatusOr<std::optional<std::vector<Value>>> Importer::TryInline(
    const GraphProto& graph, absl::Span<const Value> inputs, std::string_view label,
    NodeContext* context) {
  const size_t kept = refusals_->size();
  const Refusal last = kept == 0 ? Refusal() : refusals_->back();  // it may count left-out refusals
  const int64_t refused = refused_;
  const size_t notes = notes_.size();
  const int64_t notes_left_out = notes_left_out_;
  absl::StatusOr<std::vector<Value>> results = Inline(graph, inputs, label, context);
  const absl::Status built = b_->TakeStatus();
  if (results.ok() && built.ok()) return *std::move(results);
  if (EndsImport(results.status())) return results.status();
  refusals_->resize(kept);
  if (kept > 0) refusals_->back() = last;
  refused_ = refused;
  for (size_t i = notes; i < notes_.size(); ++i) noted_.erase(notes_[i]);
  notes_.resize(notes);
  notes_left_out_ = notes_left_out;
  return std::nullopt;
}

absl::StatusOr<std::vector<Value>> Importer::Inline(const GraphProto& graph,
                                                    absl::Span<const Value> inputs,
                                                    std::string_view label, NodeContext* context) {
  const Frame& outside = context->frame();
  if (outside.depth + 1 > options_.limits.max_nesting) return Nested();
  if (static_cast<size_t>(graph.input_size()) != inputs.size()) {
    return Invalid("graph ", Quoted(label), " has ", graph.input_size(), " inputs; it must have ",
                   inputs.size());
  }
  if (unroll_left() < 0) {
    return Unimplemented("unrolled, the model's loops become more than ",
                         options_.limits.max_unrolled_nodes, " nodes");
  }
  Frame frame = outside;
  frame.path = Cat(outside.path, NodeName(context->node()), "/", label, "/");
  ++frame.depth;
  Scope body(&context->scope());
  for (int i = 0; i < graph.input_size(); ++i) body.Define(graph.input(i).name(), inputs[i]);
  const size_t before = graph_.nodes.size();
  const int64_t refused = refused_;
  active_.push_back(context);
  absl::Status status = VisitGraph(graph, &body, frame, &context->info());
  active_.pop_back();
  if (active_.empty()) unrolled_ += static_cast<int64_t>(graph_.nodes.size() - before);
  if (!status.ok()) return status;
  if (refused_ > refused) return absl::AbortedError("refused inside");
  std::vector<Value> outputs;
  for (const auto& output : graph.output()) {
    const Scope::Found found = body.Find(output.name());
    if (found.value == nullptr) {
      return Invalid("output ", Quoted(output.name()), " of graph ", Quoted(label),
                     " is made by nothing");
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
