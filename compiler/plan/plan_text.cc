#include "compiler/plan/plan_text.h"

#include "compiler/frontend/expr_proto.h"
#include "compiler/ir/value/message.h"

namespace athanor {

namespace {

std::string SizeText(const v1::SizeExpr& size) {
  absl::StatusOr<Expr> e = ExprFromProto(size, {64, int64_t{1} << 20});
  return e.ok() ? e->ToString() : "?";
}

std::string KindText(const v1::Buffer& b) {
  switch (b.kind()) {
    case v1::Buffer::INPUT:
      return "input";
    case v1::Buffer::OUTPUT:
      return "output";
    case v1::Buffer::PARAMETER:
      return "parameter";
    case v1::Buffer::CONSTANT:
      return "constant";
    case v1::Buffer::PREPARED:
      return "prepared";
    case v1::Buffer::ARENA:
      return Cat(b.zeroed() ? "zeroed " : "", "arena@", b.arena_offset());
    case v1::Buffer::WINDOW:
      return "window";
    case v1::Buffer::STATE:
      return Cat("state", b.layout().empty() ? "" : Cat(" ", b.layout()));
    default:
      return "?";
  }
}

std::string BufferText(const v1::Plan& plan, uint32_t index) {
  if (index >= static_cast<uint32_t>(plan.buffers_size())) return Cat("b", index, " ?");
  const v1::Buffer& b = plan.buffers(static_cast<int>(index));
  std::string text = Cat("b", index, " ", KindText(b), " ");
  if (!b.name().empty()) text += Quoted(b.name()) + " ";
  text += b.dtype() + "[";
  for (int i = 0; i < b.shape_size(); ++i) text += (i > 0 ? ", " : "") + SizeText(b.shape(i));
  return text + "]";
}

std::string CallText(const v1::LibraryCall& call) {
  std::string text =
      Cat(", library call ", SizeText(call.rows()), " x ", call.columns(), " x ", call.sums(),
          call.batch() > 1 ? Cat(" batch ", call.batch()) : "", call.bias() ? " bias" : "");
  for (const v1::LibraryCall::Way& way : call.ways()) {
    text += Cat(", ", way.rows(), " rows workspace ", way.workspace_bytes());
  }
  return text;
}

// Returns which kernel a step launches, and what it asks of a library.
std::string WorkText(const v1::Plan& plan, const v1::Step& step) {
  const bool known = step.kernel() < static_cast<uint32_t>(plan.kernels_size());
  const uint32_t team = known ? plan.kernels(static_cast<int>(step.kernel())).team() : 0;
  return Cat(known ? plan.kernels(static_cast<int>(step.kernel())).name() : "?", " (kernel ",
             step.kernel(), team > 1 ? Cat(", team ", team) : "",
             step.has_library_call() ? CallText(step.library_call()) : "", ")(");
}

std::string StepText(const v1::Plan& plan, const char* part, int index, const v1::Step& step) {
  std::string text = Cat(part, " ", index, ": ", WorkText(plan, step));
  for (int i = 0; i < step.buffers_size(); ++i) {
    text += (i == 0 ? "" : i == 1 ? " <- " : ", ") + BufferText(plan, step.buffers(i));
  }
  text += Cat(") grid ", SizeText(step.grid()));
  if (step.scratch_bytes() > 0) text += Cat(" scratch ", step.scratch_bytes());
  text += Cat(" flops ", SizeText(step.flops()), " bytes ", SizeText(step.moved_bytes()));
  if (!step.label().empty()) text += " # " + step.label();
  return text + "\n";
}

std::string LoopText(const v1::Loop& loop) {
  std::string text = Cat("loop of steps ", loop.first(), " to ", loop.first() + loop.steps() - 1,
                         ", ", SizeText(loop.count()), " times:");
  for (const v1::Loop::Slice& s : loop.slices()) {
    text += Cat(" b", s.buffer(), " = slice of b", s.of(), s.reverse() ? " from the last;" : ";");
  }
  for (const v1::Loop::Carry& c : loop.carries()) {
    text += Cat(" b", c.next(), " becomes b", c.read(), ", from b", c.initial(), " to b", c.last(),
                " by way of b", c.other(), ";");
  }
  if (loop.has_turn()) text += Cat(" b", loop.turn(), " = turn;");
  return text + "\n";
}

}  // namespace

std::string PlanToText(const v1::Plan& plan) {
  std::string text = Cat(
      "plan ", plan.plan_id(), " ", plan.kind(), " for ", plan.target().device(), " ",
      plan.target().cpu(), ", ", plan.target().threads(), " threads; arena ", plan.arena_bytes(),
      " bytes", plan.signature().empty() ? "" : Cat(", signature ", plan.signature()), "\n");
  for (const v1::DimRange& d : plan.dims()) {
    text += Cat("dim ", d.name(), " in [", d.min(), ", ", d.max(), "]\n");
  }
  for (int i = 0; i < plan.prepare_size(); ++i)
    text += StepText(plan, "prepare", i, plan.prepare(i));
  for (int i = 0; i < plan.run_size(); ++i) text += StepText(plan, "run", i, plan.run(i));
  for (const v1::Loop& loop : plan.loops()) text += LoopText(loop);
  for (const v1::PlanOutput& out : plan.outputs()) {
    text += Cat("output ", Quoted(out.name()), " = ", BufferText(plan, out.buffer()), "\n");
  }
  return text;
}

}  // namespace athanor
