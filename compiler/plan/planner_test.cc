#include "compiler/plan/planner.h"

#include "absl/strings/str_cat.h"
#include "compiler/codegen/kir/emitter.h"
#include "compiler/plan/plan_text.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

const Expr kB = Expr::Symbol("b");

std::string Print(const kir::Kernel& k, const std::string&) {
  return "source of " + kir::ToText(k);
}

// out[i] = op(operands...)[i] over `elements` elements.
kir::Kernel Elementwise(Op op, int operands, const Expr& elements) {
  Bounds bounds;
  bounds.Set("b", 1, 8);
  kir::Emitter e(bounds);
  int out = e.Global(DType::kF32, true);
  std::vector<int> in;
  for (int i = 0; i < operands; ++i) in.push_back(e.Global(DType::kF32, false));
  e.For(0, elements, 1, [&](const Expr& i) {
    std::vector<kir::Var> args;
    for (int b : in) args.push_back(e.Load(b, i, 1, {}));
    e.Store(out, i, e.Compute(op, DType::kF32, args), {});
  });
  return std::move(e).Finish(std::string(OpName(op)), 1);
}

struct Maker {
  PlanInput in;
  Maker() {
    in.dims = {{"b", 1, 8}};
    in.dim_names = {"batch"};  // the user's name
  }
  int Value(ValueKind kind, Shape shape, const std::string& name = "") {
    PlanValue v;
    v.kind = kind;
    v.type = {DType::kF32, std::move(shape)};
    v.name = name;
    in.values.push_back(std::move(v));
    return static_cast<int>(in.values.size()) - 1;
  }
  // Makes a launch's result the state of this name.
  int AsState(int root, const std::string& name) {
    in.values[root].kind = ValueKind::kState;
    in.values[root].name = name;
    return root;
  }
  int Launch(Op op, std::vector<int> operands, Shape shape) {
    int root = Value(ValueKind::kComputed, shape);
    Expr elements = 1;
    for (const Expr& e : shape) elements *= e;
    PlanLaunch l{Elementwise(op, static_cast<int>(operands.size()), elements),
                 {root},
                 "l",
                 elements,
                 elements};
    l.buffers.insert(l.buffers.end(), operands.begin(), operands.end());
    in.launches.push_back(std::move(l));
    return root;
  }
  // Makes launch number `l` one whose kernel has `elements` of memory of its own, which it writes
  // and reads back; returns the value.
  int AddOfLaunch(size_t l, int64_t elements) {
    Bounds bounds;
    kir::Emitter e(bounds);
    const int out = e.Global(DType::kF32, true), x = e.Global(DType::kF32, false);
    const int own = e.Launch(DType::kF32, elements);
    e.For(0, elements, 1, [&](const Expr& i) { e.Store(own, i, e.Load(x, i, 1, {}), {}); });
    e.For(0, elements, 1, [&](const Expr& i) { e.Store(out, i, e.Load(own, i, 1, {}), {}); });
    in.launches[l].kernel = std::move(e).Finish("twice", 1);
    in.launches[l].buffers.push_back(Value(ValueKind::kLaunch, {elements}));
    return in.launches[l].buffers.back();
  }
  v1::Plan Make() {
    absl::StatusOr<v1::Plan> plan = MakePlan(in, Print);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *plan : v1::Plan();
  }
};

TEST(PlannerTest, WeightsArePreparedAndRequestsRun) {
  Maker m;
  int x = m.Value(ValueKind::kInput, {4}, "x"), w = m.Value(ValueKind::kParameter, {4}, "w");
  int ready = m.Launch(Op::kExp, {w}, {4});
  int ready_too = m.Launch(Op::kTanh, {ready}, {4});
  int y = m.Launch(Op::kAdd, {x, ready_too}, {4});
  m.in.outputs = {{"y", y}, {"again", y}, {"given", x}};
  v1::Plan p = m.Make();
  EXPECT_EQ(p.prepare_size(), 2);
  EXPECT_EQ(p.run_size(), 1);
  EXPECT_EQ(p.buffers(ready).kind(), v1::Buffer::PREPARED);
  EXPECT_EQ(p.buffers(ready_too).kind(), v1::Buffer::PREPARED);
  EXPECT_EQ(p.buffers(y).kind(), v1::Buffer::OUTPUT);
  EXPECT_EQ(p.buffers(y).name(), "y");
  ASSERT_EQ(p.outputs_size(), 3);
  EXPECT_EQ(p.outputs(1).buffer(), static_cast<uint32_t>(y));
  EXPECT_EQ(p.outputs(2).buffer(), static_cast<uint32_t>(x));
  EXPECT_EQ(p.arena_bytes(), 0);
}

TEST(PlannerTest, EqualKernelsAreOneAndSizesAreArguments) {
  Maker m;
  int x = m.Value(ValueKind::kInput, {kB, 4}, "x");
  int y = m.Launch(Op::kExp, {m.Launch(Op::kExp, {m.Launch(Op::kExp, {x}, {kB, 4})}, {kB, 4})},
                   {kB, 4});
  m.in.outputs = {{"y", y}};
  v1::Plan p = m.Make();
  EXPECT_EQ(p.kernels_size(), 1);
  EXPECT_EQ(p.kernels(0).name(), "Exp");
  EXPECT_EQ(p.kernels(0).kir_hash().size(), 64u);
  ASSERT_EQ(p.run_size(), 3);
  ASSERT_EQ(p.run(0).sizes_size(), 1);
  EXPECT_EQ(p.run(0).sizes(0).terms(0).factors(0).symbol(), "batch");
  EXPECT_EQ(p.dims(0).name(), "batch");
  // Each value lies over the one before it: the arena holds one value of the largest size.
  EXPECT_EQ(p.arena_bytes(), 8 * 4 * 4);
}

TEST(PlannerTest, ValuesStillNeededAreKept) {
  Maker m;
  int x = m.Value(ValueKind::kInput, {64}, "x");
  int a = m.Launch(Op::kExp, {x}, {64});
  int b = m.Launch(Op::kTanh, {a}, {64});
  int y = m.Launch(Op::kAdd, {a, b}, {64});
  m.in.outputs = {{"y", y}};
  v1::Plan p = m.Make();
  EXPECT_NE(p.buffers(a).arena_offset(), p.buffers(b).arena_offset());
  EXPECT_EQ(p.arena_bytes(), 512);
}

TEST(PlannerTest, MemoryOfALaunchLivesInItsStep) {
  Maker m;
  const int x = m.Value(ValueKind::kInput, {64}, "x");
  const int a = m.Launch(Op::kExp, {x}, {64});
  const int b = m.Launch(Op::kExp, {a}, {64});
  const int c = m.Launch(Op::kExp, {b}, {64});
  m.in.outputs = {{"y", m.Launch(Op::kTanh, {c}, {64})}};
  const int first = m.AddOfLaunch(1, 64), second = m.AddOfLaunch(2, 64);
  const v1::Plan p = m.Make();
  ASSERT_EQ(p.kernels_size(), 3);
  EXPECT_EQ(p.kernels(1).launch_buffers(), 1u);
  EXPECT_EQ(p.kernels(2).launch_buffers(), 0u);
  EXPECT_EQ(p.buffers(first).kind(), v1::Buffer::ARENA);
  EXPECT_EQ(p.buffers(first).bytes().terms(0).coefficient(), 256);
  ASSERT_EQ(p.run(1).buffers_size(), 3);
  EXPECT_EQ(p.run(1).buffers(2), static_cast<uint32_t>(first));
  EXPECT_EQ(p.run(2).buffers(2), static_cast<uint32_t>(second));
  // Nothing that is alive in the step lies there: neither operand nor result; later it is free.
  EXPECT_EQ(p.arena_bytes(), 3 * 256);
}

TEST(PlannerTest, LaunchesWithMemoryOfTheirOwnAreNotPrepared) {
  Maker m;
  const int a = m.Launch(Op::kExp, {m.Value(ValueKind::kParameter, {64}, "w")}, {64});
  m.in.outputs = {{"y", a}};
  m.AddOfLaunch(0, 64);
  const v1::Plan p = m.Make();
  EXPECT_EQ(p.prepare_size(), 0);
  EXPECT_EQ(p.run_size(), 1);
}

// Counters keep their zeros from run to run, so nothing lies over them at any time; what else is
// memory of the launch dies with it.
TEST(PlannerTest, CountersLiveThroughTheRun) {
  Maker m;
  const int x = m.Value(ValueKind::kInput, {64}, "x");
  int last = x;
  for (int l = 0; l < 4; ++l) last = m.Launch(Op::kExp, {last}, {64});
  m.in.outputs = {{"y", last}};
  const int counters = m.AddOfLaunch(1, 64), sums = m.AddOfLaunch(2, 64);
  EXPECT_EQ(m.Make().format(), 1u);
  m.in.values[counters].zeroed = true;
  const v1::Plan p = m.Make();
  EXPECT_EQ(p.format(), 4u);
  EXPECT_TRUE(p.buffers(counters).zeroed());
  const int64_t at = p.buffers(counters).arena_offset();
  for (int b = 0; b < p.buffers_size(); ++b) {
    if (b == counters || p.buffers(b).kind() != v1::Buffer::ARENA) continue;
    EXPECT_NE(p.buffers(b).arena_offset(), at) << b;
    EXPECT_FALSE(p.buffers(b).zeroed());
  }
  EXPECT_EQ(p.arena_bytes(), 4 * 256);
  EXPECT_NE(p.buffers(sums).arena_offset(), at);
}

// A loop's step has it in each turn anew, while what the loop carries lives through all of them.
TEST(PlannerTest, MemoryOfALaunchInALoop) {
  Maker m;
  const int x = m.Value(ValueKind::kInput, {64}, "x");
  const int a = m.Launch(Op::kExp, {x}, {64});
  m.Launch(Op::kExp, {m.Launch(Op::kExp, {a}, {64})}, {64});
  const int first = m.AddOfLaunch(1, 64), second = m.AddOfLaunch(2, 64);
  const int read = m.Value(ValueKind::kWindow, {64}), next = m.Value(ValueKind::kWindow, {64});
  const int last = m.Value(ValueKind::kComputed, {64}), other = m.Value(ValueKind::kComputed, {64});
  m.in.launches[1].buffers[1] = read;
  m.in.launches[2].buffers[0] = next;
  PlanLoop loop{.first = 1, .end = 3, .count = 5};
  loop.carries.push_back({a, read, next, last, other});
  m.in.loops.push_back(std::move(loop));
  m.in.outputs = {{"y", last}};
  const v1::Plan p = m.Make();
  EXPECT_EQ(p.buffers(first).arena_offset(), p.buffers(second).arena_offset());
  // Initial and other state, what one kernel leaves the other, and the memory.
  EXPECT_EQ(p.arena_bytes(), 4 * 256);
  // Counters are there from turn to turn.
  m.in.values[first].zeroed = true;
  const v1::Plan counting = m.Make();
  EXPECT_EQ(counting.format(), 4u);
  EXPECT_NE(counting.buffers(first).arena_offset(), counting.buffers(second).arena_offset());
  EXPECT_EQ(counting.arena_bytes(), 5 * 256);
}

// A reader of a state takes what a launch wrote from the same buffer.
TEST(PlannerTest, StatesAreWrittenInPlace) {
  Maker m;
  const int x = m.Value(ValueKind::kInput, {64}, "x");
  const int state = m.AsState(m.Launch(Op::kExp, {x}, {64}), "kv");
  m.in.values[state].layout = "keys";
  m.in.signature = "s1";
  m.in.outputs = {{"y", m.Launch(Op::kTanh, {state}, {64})}};
  const v1::Plan p = m.Make();
  EXPECT_EQ(p.format(), 5u);
  EXPECT_EQ(p.signature(), "s1");
  EXPECT_EQ(p.buffers(state).kind(), v1::Buffer::STATE);
  EXPECT_EQ(p.buffers(state).name(), "kv");
  EXPECT_EQ(p.buffers(state).layout(), "keys");
  ASSERT_EQ(p.run_size(), 2);
  EXPECT_EQ(p.run(0).buffers(0), static_cast<uint32_t>(state));
  EXPECT_EQ(p.run(1).buffers(1), static_cast<uint32_t>(state));
  EXPECT_NE(PlanToText(p).find("state keys \"kv\" f32[64]"), std::string::npos) << PlanToText(p);
  EXPECT_NE(PlanToText(p).find(", signature s1\n"), std::string::npos);
  // No plan without states has a signature or the format.
  m.in.values[state].kind = ValueKind::kComputed;
  m.in.values[state].layout.clear();
  EXPECT_EQ(m.Make().format(), 1u);
  EXPECT_EQ(m.Make().signature(), "");
}

// A write from weights alone is no preparation.
TEST(PlannerTest, StatesAreWrittenByRuns) {
  Maker m;
  const int w = m.Value(ValueKind::kParameter, {64}, "w");
  const int state = m.AsState(m.Launch(Op::kExp, {w}, {64}), "kv");
  m.in.outputs = {{"y", m.Launch(Op::kTanh, {state}, {64})}};
  const v1::Plan p = m.Make();
  EXPECT_EQ(p.prepare_size(), 0);
  EXPECT_EQ(p.run_size(), 2);
}

TEST(PlannerTest, StatesAreNotCopied) {
  Maker m;
  const int x = m.Value(ValueKind::kInput, {64}, "x");
  const int state = m.AsState(m.Launch(Op::kExp, {x}, {64}), "kv");
  m.in.outputs = {{"y", state}};
  const absl::Status output = MakePlan(m.in, Print).status();
  EXPECT_EQ(output.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(output.message()).find("output \"y\" is the state \"kv\""),
            std::string::npos)
      << output;
  // A reader ahead of the write would need a copy of what was there.
  m.in.outputs = {{"y", m.Launch(Op::kTanh, {state}, {64})}};
  std::swap(m.in.launches[0], m.in.launches[1]);
  EXPECT_EQ(MakePlan(m.in, Print).status().code(), absl::StatusCode::kInternal);
}

// result[3 b, 64] = left[3 b, 35] * right[35, 64] + bias[64], by a library; b is its first size.
kir::Kernel Call(int64_t workspace) {
  kir::Kernel kernel = *kir::ParseKernel(absl::StrCat(
      "kernel(s0) grid 1\nb0: f32 out\nb1: f32 in\nb2: f32 in\nb3: f32 in\n",
      workspace > 0 ? absl::StrCat("b4: u8 launch ", workspace, "\n") : "",
      "call b0[0] stride 64 = b1[0] stride 35 * b2[0] stride 35 transposed + b3: f32 rows 3*s0 "
      "columns 64 sums 35 batch 1 ways 8 21 proposal 2\n"));
  kernel.name = "product";
  kernel.sizes = {"b"};
  return kernel;
}

TEST(PlannerTest, LibraryCalls) {
  for (const int64_t workspace : {0, 320}) {
    Maker m;
    m.in.dims[0].max = 7;
    const int x = m.Value(ValueKind::kInput, {3 * kB, 35}, "x");
    const int w = m.Value(ValueKind::kParameter, {64, 35}, "w");
    const int bias = m.Value(ValueKind::kParameter, {64}, "bias");
    const int left = m.Launch(Op::kExp, {x}, {3 * kB, 35});
    const int result = m.Value(ValueKind::kComputed, {3 * kB, 64});
    const int own = m.Value(ValueKind::kLaunch, {workspace});
    m.in.values[own].type.dtype = DType::kU8;
    PlanLaunch launch{Call(workspace), {result, left, w, bias}, "x w", 1, 1};
    if (workspace > 0) launch.buffers.push_back(own);
    m.in.launches.push_back(std::move(launch));
    m.in.outputs = {{"y", m.Launch(Op::kExp, {result}, {3 * kB, 64})}};
    const v1::Plan p = m.Make();
    EXPECT_EQ(p.format(), 3u);
    const v1::Kernel& kernel = p.kernels(1);
    EXPECT_TRUE(kernel.library_call());
    EXPECT_FALSE(p.kernels(0).library_call());
    EXPECT_EQ(kernel.launch_buffers(), workspace > 0 ? 1u : 0u);
    const v1::Step& step = p.run(1);
    EXPECT_EQ(step.kernel(), 1u);
    EXPECT_EQ(step.buffers_size(), workspace > 0 ? 5 : 4);
    EXPECT_EQ(step.sizes_size(), 0);
    EXPECT_EQ(step.grid().terms(0).coefficient(), 1);
    const v1::LibraryCall& call = step.library_call();
    EXPECT_EQ(call.rows().terms(0).coefficient(), 3);
    EXPECT_EQ(call.rows().terms(0).factors(0).symbol(), "batch");
    EXPECT_EQ(call.columns(), 64);
    EXPECT_EQ(call.sums(), 35);
    EXPECT_EQ(call.batch(), 1);
    EXPECT_EQ(call.left().stride(), 35);
    EXPECT_FALSE(call.left().transposed());
    EXPECT_EQ(call.right().stride(), 35);
    EXPECT_TRUE(call.right().transposed());
    EXPECT_EQ(call.result().stride(), 64);
    EXPECT_TRUE(call.bias());
    ASSERT_EQ(call.ways_size(), 2);
    EXPECT_EQ(call.ways(0).rows(), 8);
    EXPECT_EQ(call.ways(1).rows(), 21);
    EXPECT_EQ(call.ways(1).workspace_bytes(), workspace);
    // The result has 5376 bytes, the left operand 2940: it ends at 8316.
    if (workspace > 0) EXPECT_EQ(p.buffers(own).arena_offset(), 8448);
  }
}

TEST(PlannerTest, LibraryCallsAreNotPrepared) {
  Maker m;
  const int w = m.Value(ValueKind::kParameter, {8, 35}, "w");
  const int v = m.Value(ValueKind::kParameter, {64, 35}, "v");
  const int bias = m.Value(ValueKind::kParameter, {64}, "bias");
  const int result = m.Value(ValueKind::kComputed, {8, 64});
  kir::Kernel call = Call(0);
  call.sizes.clear();
  call.body[0].extents[0] = 8;
  m.in.launches.push_back({std::move(call), {result, w, v, bias}, "w v", 1, 1});
  m.in.outputs = {{"y", result}};
  const v1::Plan p = m.Make();
  EXPECT_EQ(p.prepare_size(), 0);
  EXPECT_EQ(p.run_size(), 1);
}

TEST(PlannerTest, IdIsOfContentAndReproducible) {
  auto make = [](const char* hash) {
    Maker m;
    m.in.graph_hash = hash;
    m.in.outputs = {{"y", m.Launch(Op::kExp, {m.Value(ValueKind::kInput, {4}, "x")}, {4})}};
    return m.Make().plan_id();
  };
  EXPECT_EQ(make("a"), make("a"));
  EXPECT_NE(make("a"), make("b"));
  EXPECT_EQ(make("a").size(), 18u);
}

TEST(PlannerTest, TooLargeAnArenaNamesTheBytes) {
  Maker m;
  m.in.dims = {{"b", 1, int64_t{1} << 62}};
  int x = m.Value(ValueKind::kInput, {kB, kB}, "x");
  m.in.outputs = {{"y", m.Launch(Op::kExp, {m.Launch(Op::kTanh, {x}, {kB, kB})}, {kB, kB})}};
  absl::StatusOr<v1::Plan> plan = MakePlan(m.in, Print);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(plan.status().message()).find("4*b*b"), std::string::npos) << plan.status();
}

TEST(PlannerTest, KernelsSayTheirTeams) {
  Maker m;
  int x = m.Value(ValueKind::kInput, {4}, "x");
  m.in.outputs = {{"y", m.Launch(Op::kExp, {m.Launch(Op::kTanh, {x}, {4})}, {4})}};
  EXPECT_EQ(m.Make().kernels(0).team(), 0);
  m.in.launches[1].kernel.team = 32;
  m.in.scratch_bytes = [](const kir::Kernel& k) { return int64_t{64} * k.team; };
  const v1::Plan plan = m.Make();
  EXPECT_EQ(plan.kernels(0).team(), 0);
  EXPECT_EQ(plan.kernels(1).team(), 32);
  EXPECT_EQ(plan.run(0).scratch_bytes(), 64);
  EXPECT_EQ(plan.run(1).scratch_bytes(), 64 * 32);
  EXPECT_NE(PlanToText(plan).find("(kernel 1, team 32)"), std::string::npos) << PlanToText(plan);
}

TEST(PlannerTest, EveryDimNeedsItsName) {
  Maker m;
  m.in.dim_names.clear();
  EXPECT_EQ(MakePlan(m.in, Print).status().code(), absl::StatusCode::kInternal);
}

TEST(PlannerTest, WrongOrderIsInternal) {
  Maker m;
  int x = m.Value(ValueKind::kInput, {4}, "x");
  int a = m.Launch(Op::kExp, {x}, {4});
  int y = m.Launch(Op::kTanh, {a}, {4});
  std::swap(m.in.launches[0], m.in.launches[1]);
  m.in.outputs = {{"y", y}};
  EXPECT_EQ(MakePlan(m.in, Print).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace athanor
