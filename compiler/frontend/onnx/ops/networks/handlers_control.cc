// Handlers: If, Loop, Scan. Known branches are selected at import. Loops become our Scan op or are
// unrolled. Conditions known only at run time become both branches with a selection, or masked
// steps.
#include "compiler/frontend/onnx/ops/networks/handlers_control.h"

#include <algorithm>
#include <string>
#include <utility>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_scan.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::GraphProto;

constexpr int kMaxBranchNodes = 10'000;
constexpr int64_t kMaxSteps = 65'536;  // limit for loops that end only by known conditions

bool SameShape(const Bounds& bounds, const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!bounds.ProvablyEqual(a[i], b[i])) return false;
  }
  return true;
}

bool SameContents(const Value& a, const Value& b) {
  return a.known != nullptr && b.known != nullptr && a.known->shape == b.known->shape &&
         a.known->sizes == b.known->sizes && a.known->divisor == b.known->divisor &&
         a.known->literal == b.known->literal;
}

absl::Status CheckOutputs(const HandlerContext& c, const GraphProto& graph, std::string_view label,
                          int want) {
  if (graph.output_size() >= want) return absl::OkStatus();
  return Invalid("its ", label, " has ", graph.output_size(), " outputs; the node has ", want);
}

absl::Status If(HandlerContext& c) {
  const GraphProto& then_branch = c.GraphAttr("then_branch");
  const GraphProto& else_branch = c.GraphAttr("else_branch");
  absl::Status s = CheckOutputs(c, then_branch, "then_branch", c.outputs());
  if (s.ok()) s = CheckOutputs(c, else_branch, "else_branch", c.outputs());
  if (!s.ok()) return s;
  ASSIGN_OR_RETURN(std::optional<bool> known, KnownCondition(c.In(0)));
  if (known.has_value()) {
    ASSIGN_OR_RETURN(std::vector<Value> results, *known ? c.Inline(then_branch, {}, "then_branch")
                                                        : c.Inline(else_branch, {}, "else_branch"));
    for (int o = 0; o < c.outputs(); ++o) c.Set(o, results[o]);
    return absl::OkStatus();
  }
  for (const auto& [graph, label] :
       {std::pair(&then_branch, "then_branch"), std::pair(&else_branch, "else_branch")}) {
    if (graph->node_size() <= kMaxBranchNodes) continue;
    return Unimplemented("its ", label, " has ", graph->node_size(),
                         " nodes; its condition is known only at run time, so both branches are "
                         "computed, and each may have at most ",
                         kMaxBranchNodes);
  }
  const Value condition = AsScalar(c.b(), c.In(0));
  if (!c.b().status().ok()) return c.b().TakeStatus();
  absl::StatusOr<std::vector<Value>> yes, no;
  {
    const OpBuilder::Guard guard(&c.b(), condition, true);
    yes = c.Inline(then_branch, {}, "then_branch");
  }
  {
    const OpBuilder::Guard guard(&c.b(), condition, false);
    no = c.Inline(else_branch, {}, "else_branch");
  }
  if (!yes.ok()) return yes.status();
  if (!no.ok()) return no.status();
  for (int o = 0; o < c.outputs(); ++o) {
    if (!c.Wants(o)) continue;
    absl::StatusOr<Value> either =
        Either(c.b(), condition, (*yes)[o], (*no)[o], Cat("result ", Quoted(c.node().output(o))));
    if (!either.ok()) {
      // A known condition would avoid the error.
      const absl::Status unknown = c.Integers(0, "condition").status();
      return absl::Status(either.status().code(), Cat(std::string(either.status().message()), "; ",
                                                      std::string(unknown.message())));
    }
    c.Set(o, *std::move(either));
  }
  return absl::OkStatus();
}

// Converts one Loop.
class Unroller {
 public:
  explicit Unroller(HandlerContext& c) : c_(c), b_(c.b()), body_(c.GraphAttr("body")) {}

  absl::Status Run() {
    absl::Status s = Start();
    if (s.ok() && !done_) {
      absl::StatusOr<bool> looped = AsScan();
      if (!looped.ok() || *looped) return looped.status();
      s = too_long_;
    }
    while (s.ok() && !done_) s = Step();
    return s.ok() ? Finish() : s;
  }

 private:
  absl::Status Start();
  absl::Status ReadCount();
  // Returns false if the body must be unrolled.
  absl::StatusOr<bool> AsScan();
  // Builds one step of a Scan, masked if its end is known only at run time. Returns nullopt if the
  // loop must be unrolled or needs the mask.
  struct Body {
    std::vector<Value> next, elements;
  };
  absl::StatusOr<std::optional<Body>> ScanStep(ScanBuilder& scan, bool masked, bool* needs_mask);
  absl::Status Step();
  absl::Status Carry(absl::Span<const Value> results, const std::optional<Value>& mask);
  absl::Status End(const Value& going, const std::optional<Value>& mask);
  absl::Status Finish();

  // Adds to the error that a known first condition would avoid it.
  absl::Status Settled(const absl::Status& status) const {
    if (!conditional_) return status;
    const absl::Status unknown = c_.Integers(1, "condition").status();
    if (unknown.ok()) return status;
    return absl::Status(status.code(),
                        Cat(std::string(status.message()), "; ", std::string(unknown.message())));
  }
  // Returns the body's first two operands: scalars, or vectors of one element if the body declares
  // them so. Exporters write both.
  std::vector<Value> StepOperands(const Value& step) {
    const auto as_stated = [&](const Value& scalar, int i) {
      const auto& type = body_.input(i).type().tensor_type();
      if (!type.has_shape() || type.shape().dim_size() != 1) return scalar;
      return scalar.known == nullptr
                 ? Unsqueeze(b_, scalar, {0})
                 : b_.Literal(scalar.elem, {scalar.dtype(), {1}, scalar.known->literal->bytes});
    };
    return {as_stated(step, 0), as_stated(b_.Integer(Elem::kBool, 1), 1)};
  }
  // Reports whether the current step is below the count.
  Value Inside() {
    return Less(b_, b_.Integer(Elem::kInt64, step_), Size(b_, Elem::kInt64, *count_, {}));
  }

  HandlerContext& c_;
  OpBuilder& b_;
  const GraphProto& body_;
  int carried_count_ = 0, scans_ = 0;
  std::optional<Expr> count_;     // unset: the loop ends only by its condition
  int64_t least_ = 0, most_ = 0;  // bounds of the count
  bool conditional_ = false;      // the loop has a condition
  bool data_ends_ = false;        // the condition is known only at run time
  std::optional<Value> alive_;    // set if data_ends_: a scalar, true while the loop goes on
  absl::Status too_long_;         // error if the loop must be unrolled
  bool done_ = false;
  int64_t step_ = 0;
  std::vector<Value> carried_;
  std::vector<std::vector<Value>> elements_;  // by scan output
};

absl::Status Unroller::Start() {
  const int given = std::max(c_.inputs() - 2, 0);
  carried_count_ = body_.input_size() - 2;
  scans_ = body_.output_size() - 1 - carried_count_;
  if (carried_count_ < 0 || scans_ < 0 || given != carried_count_) {
    return Invalid("its body has ", body_.input_size(), " inputs and ", body_.output_size(),
                   " outputs; with ", given, " carried values it must have ", given + 2,
                   " inputs and at least ", given + 1, " outputs");
  }
  if (c_.outputs() > carried_count_ + scans_) {
    return Invalid("it has ", c_.outputs(), " results; its body gives ", carried_count_ + scans_);
  }
  for (int i = 0; i < carried_count_; ++i) {
    if (!c_.Has(i + 2)) return Invalid("carried value ", i, " is omitted");
    carried_.push_back(c_.In(i + 2));
  }
  elements_.resize(scans_);
  RETURN_IF_ERROR(ReadCount());
  conditional_ = c_.Has(1);
  if (conditional_) {
    ASSIGN_OR_RETURN(std::optional<bool> known, KnownCondition(c_.In(1)));
    if (known.has_value()) {
      done_ = !*known;
      if (done_) count_ = 0;
    } else {
      data_ends_ = true;
      alive_ = AsScalar(b_, c_.In(1));
    }
  }
  if (!count_ && (!conditional_ || data_ends_)) {
    return Unimplemented(
        "a Loop without bound: it has no trip count M",
        conditional_ ? ", and the step at which its condition ends it is known only at run time"
                     : " and no condition");
  }
  done_ |= count_ && most_ == 0;
  return b_.TakeStatus();
}

absl::Status Unroller::ReadCount() {
  if (!c_.Has(0)) return absl::OkStatus();
  absl::StatusOr<Expr> count = c_.OneSize(0, "trip count M");
  if (!count.ok()) {
    return absl::Status(count.status().code(),
                        Cat("a Loop without bound: ", std::string(count.status().message())));
  }
  count_ = b_.bounds().Simplify(MaxOf(0, *count));
  const std::optional<int64_t> least = b_.bounds().Minimum(*count_);
  const std::optional<int64_t> most = b_.bounds().Maximum(*count_);
  if (!least || !most) return Unimplemented("a Loop without bound: M is ", count->ToString());
  least_ = *least, most_ = *most;
  if (least_ != most_ && most_ > kMaxMaskedSteps) {
    too_long_ = Unimplemented(
        "its trip count is ", count->ToString(), ", up to ", most_,
        "; a loop that must be unrolled with a count that depends on dims has at most ",
        kMaxMaskedSteps, " steps");
  } else if (most_ > kMaxSteps && !c_.Has(1)) {
    too_long_ = Unimplemented("its trip count is ", most_,
                              "; a loop that has to be unrolled has at most ", kMaxSteps, " steps");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Unroller::AsScan() {
  if (!count_ || (least_ == most_ && most_ <= kMaxUnrolledSteps) || most_ > kMaxLoopSteps) {
    return false;
  }
  bool masked = data_ends_, needs_mask = false;
  for (int i = 0; i < 2; ++i) {
    ScanBuilder scan(&b_, *count_);
    ASSIGN_OR_RETURN(std::optional<Body> body, ScanStep(scan, masked, &needs_mask));
    if (!body && needs_mask && !masked) {
      masked = true;
      continue;
    }
    if (!body) break;
    scan.Finish(std::move(body->next), std::move(body->elements));
    for (int o = 0; o < c_.outputs(); ++o) {
      if (c_.Wants(o)) {
        c_.Set(o, o < carried_count_ ? scan.Last(o) : scan.Stacked(o - carried_count_));
      }
    }
    RETURN_IF_ERROR(b_.TakeStatus());
    return true;
  }
  return false;
}

absl::StatusOr<std::optional<Unroller::Body>> Unroller::ScanStep(ScanBuilder& scan, bool masked,
                                                                 bool* needs_mask) {
  // The sizes of stacked outputs would depend on data.
  const bool stacks = c_.outputs() > carried_count_;
  if (masked && (stacks || most_ > kMaxConditionalSteps)) return std::nullopt;
  std::vector<Value> inside;
  for (const Value& value : carried_) inside.push_back(scan.State(value));
  std::optional<Value> alive;
  if (masked) alive = scan.State(alive_ ? *alive_ : b_.Integer(Elem::kBool, 1));
  std::vector<Value> operands = StepOperands(scan.step());
  operands.insert(operands.end(), inside.begin(), inside.end());
  if (!b_.status().ok()) return b_.TakeStatus();
  absl::StatusOr<std::optional<std::vector<Value>>> results;
  {
    std::optional<OpBuilder::Guard> guard;
    if (alive) guard.emplace(&b_, *alive, true);
    results = c_.TryInline(body_, operands, "body");
  }
  if (!results.ok()) return results.status();
  if (!*results) return std::nullopt;
  std::vector<Value>& made = **results;
  const Value going = made.front();
  if (conditional_) {
    ASSIGN_OR_RETURN(std::optional<bool> known, KnownCondition(going));
    if (known.has_value() && !*known) return std::nullopt;  // the loop ends after one step
    *needs_mask = !known.has_value();
    if (*needs_mask && !masked) return std::nullopt;
  }
  Body body;
  for (int i = 0; i < carried_count_; ++i) {
    Value& value = made[1 + i];
    if (!Alike(b_.bounds(), value, inside[i])) return std::nullopt;
    body.next.push_back(alive ? Select(b_, *alive, value, inside[i]) : value);
  }
  if (alive) body.next.push_back(And(b_, *alive, AsScalar(b_, going)));
  body.elements.assign(made.begin() + 1 + carried_count_, made.end());
  if (!b_.status().ok()) return b_.TakeStatus();
  return body;
}

absl::Status Unroller::Step() {
  const bool scans = c_.outputs() > carried_count_;
  if (data_ends_ && (scans || most_ > kMaxConditionalSteps)) {
    return Settled(
        Unimplemented(scans ? std::string("the step at which its condition ends it, and so the "
                                          "size of its scan outputs, is known only at run time")
                            : Cat("the step at which its condition ends it is known only at run "
                                  "time; such a loop has at most ",
                                  kMaxConditionalSteps, " steps, not ", most_)));
  }
  if (step_ >= kMaxSteps) {
    return Unimplemented("after ", kMaxSteps, " steps its condition is still true");
  }
  std::optional<Value> mask = alive_;
  if (count_ && step_ >= least_) {
    const Value inside = Inside();
    mask = mask ? And(b_, *mask, inside) : inside;
  }
  std::vector<Value> operands = StepOperands(b_.Integer(Elem::kInt64, step_));
  operands.insert(operands.end(), carried_.begin(), carried_.end());
  if (!b_.status().ok()) return b_.TakeStatus();
  absl::StatusOr<std::vector<Value>> results;
  if (mask) {
    const OpBuilder::Guard guard(&b_, *mask, true);
    results = c_.Inline(body_, operands, StepLabel(step_));
  } else {
    results = c_.Inline(body_, operands, StepLabel(step_));
  }
  if (!results.ok()) return results.status();
  absl::Status s = Carry(absl::MakeSpan(*results).subspan(1, carried_count_), mask);
  for (int k = 0; k < scans_; ++k) elements_[k].push_back((*results)[1 + carried_count_ + k]);
  ++step_;
  if (s.ok() && conditional_) s = End(results->front(), mask);
  if (count_ && step_ >= most_) done_ = true;
  return s.ok() ? b_.TakeStatus() : s;
}

absl::Status Unroller::Carry(absl::Span<const Value> results, const std::optional<Value>& mask) {
  for (int i = 0; i < carried_count_; ++i) {
    if (!mask) {
      carried_[i] = results[i];
      continue;
    }
    ASSIGN_OR_RETURN(carried_[i],
                     Either(b_, *mask, results[i], carried_[i], Cat("carried value ", i)));
  }
  return absl::OkStatus();
}

// Handles the body's condition for the next step.
absl::Status Unroller::End(const Value& going, const std::optional<Value>& mask) {
  ASSIGN_OR_RETURN(std::optional<bool> known, KnownCondition(going));
  if (known.has_value()) {
    if (*known) return absl::OkStatus();
    count_ = count_ ? MinOf(*count_, step_) : Expr(step_);
    done_ = true;
    return absl::OkStatus();
  }
  if (!count_) {
    return Unimplemented(
        "a Loop without bound: it has no trip count M, and the step at which its condition ends it "
        "is known only at run time");
  }
  data_ends_ = true;
  const Value next = AsScalar(b_, going);
  alive_ = mask ? And(b_, *mask, next) : next;
  return absl::OkStatus();
}

absl::Status Unroller::Finish() {
  // A loop without steps: visits one step only for the types and shapes of the results.
  std::vector<Value> models;
  for (const std::vector<Value>& elements : elements_) {
    if (!elements.empty()) models.push_back(elements.front());
  }
  if (static_cast<int>(models.size()) < scans_) {
    std::vector<Value> operands = StepOperands(b_.Integer(Elem::kInt64, 0));
    operands.insert(operands.end(), carried_.begin(), carried_.end());
    const OpBuilder::Guard guard(&b_, b_.Integer(Elem::kBool, 0), true);
    ASSIGN_OR_RETURN(std::vector<Value> results, c_.Inline(body_, operands, StepLabel(0)));
    models.assign(results.begin() + 1 + carried_count_, results.end());
  }
  for (int o = 0; o < c_.outputs(); ++o) {
    if (!c_.Wants(o)) continue;
    if (o < carried_count_) {
      c_.Set(o, carried_[o]);
      continue;
    }
    const int k = o - carried_count_;
    const Expr size = count_ ? *count_ : Expr(step_);
    ASSIGN_OR_RETURN(Value stacked, Stack(b_, elements_[k], models[k], size, 0, /*reversed=*/false,
                                          Cat("scan output ", Quoted(c_.node().output(o)))));
    c_.Set(o, std::move(stacked));
  }
  return absl::OkStatus();
}

absl::Status Loop(HandlerContext& c) {
  absl::StatusOr<bool> bags = LoopOverBags(c);
  if (!bags.ok() || *bags) return bags.status();
  return Unroller(c).Run();
}

constexpr HandlerRow kRows[] = {
    {"", "If", 1, If},
    {"", "Loop", 1, Loop},
    {"", "Scan", 8, Scan8},
    {"", "Scan", 9, Scan9},
};

}  // namespace

absl::StatusOr<std::optional<bool>> KnownCondition(const Value& condition) {
  for (const Expr& size : condition.shape) {
    if (!size.IsConstant(1)) {
      return Invalid("its condition has shape ", ShapeToString(condition.shape),
                     "; it must have one element");
    }
  }
  if (condition.elem != Elem::kBool) {
    return Invalid("its condition is of type ", ElemName(condition.elem), "; it must be bool");
  }
  if (condition.known == nullptr || condition.known->sizes.size() != 1) return std::nullopt;
  const std::optional<int64_t> value = condition.known->sizes.front().constant();
  return value ? std::optional<bool>(*value != 0) : std::nullopt;
}

std::string StepLabel(int64_t step) { return Cat("body[", step, "]"); }

Value AsScalar(OpBuilder& b, const Value& condition) {
  return condition.rank() == 0 ? condition : Reshape(b, condition, {});
}

bool Alike(const Bounds& bounds, const Value& a, const Value& b) {
  return a.elem == b.elem && SameShape(bounds, a.shape, b.shape);
}

absl::StatusOr<Value> Either(OpBuilder& b, const Value& condition, const Value& x, const Value& y,
                             std::string_view what) {
  if (!Alike(b.bounds(), x, y)) {
    return Unimplemented(
        what, " is ", ElemName(x.elem), ShapeToString(x.shape), " or ", ElemName(y.elem),
        ShapeToString(y.shape),
        ", which is known only at run time; both must have the same type and shape");
  }
  if (SameContents(x, y) || (x.node == y.node && x.node != kNoNode)) return x;
  return Select(b, condition, x, y);
}

absl::StatusOr<Value> Stack(OpBuilder& b, absl::Span<const Value> elements, const Value& model,
                            const Expr& size, int axis, bool reversed, std::string_view what) {
  std::vector<Value> parts;
  for (const Value& element : elements) {
    if (element.elem != model.elem || !SameShape(b.bounds(), element.shape, model.shape)) {
      return Unimplemented(what, " is ", ElemName(model.elem), ShapeToString(model.shape),
                           " in the first step and ", ElemName(element.elem),
                           ShapeToString(element.shape),
                           " in another; the type and shape must be the same in every step");
    }
    parts.push_back(Unsqueeze(b, element, {axis}));
  }
  if (parts.empty()) return Slice(b, Unsqueeze(b, model, {axis}), axis, 0, 0);
  Value all = Concat(b, parts, axis);
  if (reversed) return Slice(b, all, axis, size - 1, size, -1);
  return size.IsConstant(static_cast<int64_t>(parts.size())) ? all : Slice(b, all, axis, 0, size);
}

absl::Span<const HandlerRow> ControlRows() { return kRows; }

}  // namespace athanor::onnx
