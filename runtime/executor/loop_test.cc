// Tests of loops in plans, with kernels written here.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cpu/device.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/device/faulty_device_testing.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/program/program.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// out = 2 * a + b
void Mix(void* const* buffers, const int64_t*, int64_t begin, int64_t end, void*, KernelError*) {
  for (int64_t i = begin; i < end; ++i) {
    StoreAt(buffers[0], i, 2 * LoadAt<float>(buffers[1], i) + LoadAt<float>(buffers[2], i));
  }
}

// out = a + the iteration's number
void Number(void* const* buffers, const int64_t*, int64_t begin, int64_t end, void*, KernelError*) {
  for (int64_t i = begin; i < end; ++i) {
    StoreAt(buffers[0], i,
            LoadAt<float>(buffers[1], i) + static_cast<float>(LoadAt<int64_t>(buffers[2], 0)));
  }
}

// out = a; an element below 0 is an index out of range.
void Checked(void* const* buffers, const int64_t*, int64_t begin, int64_t end, void*,
             KernelError* error) {
  for (int64_t i = begin; i < end; ++i) {
    const float a = LoadAt<float>(buffers[1], i);
    if (a < 0 && error->code == 0) *error = {1, static_cast<int64_t>(a), 1, i};
    StoreAt(buffers[0], i, a);
  }
}

class LoopDevice : public CpuDevice {
 public:
  static std::unique_ptr<LoopDevice> Make() {
    return std::make_unique<LoopDevice>(ThreadPool::Create({.threads = 2}).value());
  }
  explicit LoopDevice(std::unique_ptr<ThreadPool> pool) : CpuDevice(std::move(pool)) {}

  absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) override {
    static const std::map<std::string, CpuKernel> kKernels = {
        {"mix", Mix}, {"number", Number}, {"checked", Checked}};
    return WrapKernel(kKernels.at(std::string(object)));
  }
};

// A product of symbols and a number: {"n", "b"}, 4 is 4*n*b.
v1::SizeExpr Size(int64_t number, const std::vector<std::string>& symbols = {}) {
  v1::SizeExpr size;
  v1::SizeExpr::Term* term = size.add_terms();
  term->set_coefficient(number);
  for (const std::string& symbol : symbols) term->add_factors()->set_symbol(symbol);
  return size;
}

constexpr int kElements = 3;

class PlanMaker {
 public:
  PlanMaker() {
    plan.set_format(2);
    plan.set_plan_id("loops");
    for (const char* name : {"n", "m"}) {
      v1::DimRange* dim = plan.add_dims();
      dim->set_name(name);
      dim->set_max(20);
    }
    for (int i = 0; i < 3; ++i) plan.add_kernels();
  }

  // f32 with these axes before one of kElements.
  uint32_t Add(v1::Buffer::Kind kind, const std::string& name,
               const std::vector<std::string>& axes = {}) {
    v1::Buffer* b = plan.add_buffers();
    b->set_kind(kind);
    b->set_name(name);
    b->set_dtype("f32");
    for (const std::string& axis : axes) *b->add_shape() = Size(1, {axis});
    *b->add_shape() = Size(kElements);
    *b->mutable_bytes() = Size(4 * kElements, axes);
    if (kind == v1::Buffer::ARENA) {
      b->set_arena_offset(plan.arena_bytes());
      plan.set_arena_bytes(plan.arena_bytes() + 8192);
    }
    const auto index = static_cast<uint32_t>(plan.buffers_size() - 1);
    if (kind == v1::Buffer::OUTPUT) {
      v1::PlanOutput* out = plan.add_outputs();
      out->set_name(name);
      out->set_buffer(index);
    }
    return index;
  }
  uint32_t AddTurn() {
    const uint32_t turn = Add(v1::Buffer::WINDOW, "turn");
    plan.mutable_buffers(static_cast<int>(turn))->set_dtype("i64");
    plan.mutable_buffers(static_cast<int>(turn))->clear_shape();
    *plan.mutable_buffers(static_cast<int>(turn))->mutable_bytes() = Size(8);
    return turn;
  }
  void Step(uint32_t kernel, const std::vector<uint32_t>& buffers, const std::string& label) {
    v1::Step* step = plan.add_run();
    step->set_kernel(kernel);
    for (uint32_t b : buffers) step->add_buffers(b);
    *step->mutable_grid() = Size(kElements);
    *step->mutable_flops() = Size(1 << 20);
    step->set_label(label);
  }
  v1::Loop* Loop(uint32_t first, uint32_t steps, const std::string& count) {
    v1::Loop* loop = plan.add_loops();
    loop->set_first(first);
    loop->set_steps(steps);
    *loop->mutable_count() = Size(1, {count});
    return loop;
  }
  static void Slice(v1::Loop* loop, uint32_t buffer, uint32_t of, bool reverse) {
    v1::Loop::Slice* slice = loop->add_slices();
    slice->set_buffer(buffer);
    slice->set_of(of);
    slice->set_reverse(reverse);
  }
  static void Carry(v1::Loop* loop, uint32_t initial, uint32_t read, uint32_t next, uint32_t last,
                    uint32_t other) {
    v1::Loop::Carry* carry = loop->add_carries();
    carry->set_initial(initial);
    carry->set_read(read);
    carry->set_next(next);
    carry->set_last(last);
    carry->set_other(other);
  }

  v1::Plan plan;
};

// h' = 2 * h + x, y = h' + the iteration's number, over n iterations; x is a slice, y an element. m
// is not used.
v1::Plan Running(bool reverse) {
  PlanMaker p;
  const uint32_t h = p.Add(v1::Buffer::INPUT, "h"), x = p.Add(v1::Buffer::INPUT, "x", {"n"});
  const uint32_t last = p.Add(v1::Buffer::OUTPUT, "last");
  const uint32_t y = p.Add(v1::Buffer::OUTPUT, "y", {"n"});
  const uint32_t other = p.Add(v1::Buffer::ARENA, "");
  const uint32_t read = p.Add(v1::Buffer::WINDOW, "read"), next = p.Add(v1::Buffer::WINDOW, "next");
  const uint32_t slice = p.Add(v1::Buffer::WINDOW, "slice"),
                 element = p.Add(v1::Buffer::WINDOW, "element");
  const uint32_t turn = p.AddTurn();
  p.Step(0, {next, read, slice}, "mix");
  p.Step(1, {element, next, turn}, "number");
  v1::Loop* loop = p.Loop(0, 2, "n");
  PlanMaker::Carry(loop, h, read, next, last, other);
  PlanMaker::Slice(loop, slice, x, reverse);
  PlanMaker::Slice(loop, element, y, reverse);
  loop->set_turn(turn);
  return p.plan;
}

class LoopTest : public ::testing::TestWithParam<bool> {
 protected:
  absl::StatusOr<std::shared_ptr<const Executable>> Load(const v1::Plan& plan) {
    const std::vector<absl::string_view> objects = {"mix", "number", "checked"};
    return Executable::Load(plan, objects, {}, device_.get(), {.poison = true});
  }
  // Returns the outputs in the plan's order, for inputs of any number of elements.
  absl::StatusOr<std::vector<std::vector<float>>> Run(const Executable& e,
                                                      Executable::Context* context,
                                                      const std::vector<int64_t>& dims,
                                                      const std::vector<std::vector<float>>& inputs,
                                                      const RunOptions& options = {}) {
    std::vector<absl::string_view> in;
    for (const auto& v : inputs) {
      in.emplace_back(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
    }
    std::vector<std::vector<float>> outputs;
    std::vector<absl::Span<char>> out;
    for (int o = 0; o < e.outputs(); ++o) {
      outputs.emplace_back(e.output_bytes(o, dims) / sizeof(float), -77.0f);
    }
    for (auto& v : outputs) {
      out.emplace_back(reinterpret_cast<char*>(v.data()), v.size() * sizeof(float));
    }
    absl::Status s = e.Run(context, dims, in, out, options);
    if (!s.ok()) return s;
    return outputs;
  }
  void ExpectRefused(const v1::Plan& plan, const std::string& part) {
    const absl::Status s = Load(plan).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
    EXPECT_THAT(std::string(s.message()), HasSubstr(part));
  }

  EitherDevice<LoopDevice> device_{LoopDevice::Make(), GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Devices, LoopTest, ::testing::Bool(), EitherDeviceName);

std::vector<float> Counting(int64_t count, float first) {
  std::vector<float> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(first + static_cast<float>(i % 7));
  return v;
}

TEST_P(LoopTest, StatesSlicesAndElementsAtAnyNumberOfTurns) {
  for (bool reverse : {false, true}) {
    const auto e = Load(Running(reverse)).value();
    const auto context = e->NewContext().value();
    for (int64_t n : {3, 0, 1, 2, 13, 20, 1, 0}) {
      const std::vector<float> h = Counting(kElements, -1), x = Counting(n * kElements, 1);
      std::vector<float> state = h, y(n * kElements);
      for (int64_t turn = 0; turn < n; ++turn) {
        const int64_t at = (reverse ? n - 1 - turn : turn) * kElements;
        for (int i = 0; i < kElements; ++i) {
          state[i] = 2 * state[i] + x[at + i];
          y[at + i] = state[i] + static_cast<float>(turn);
        }
      }
      const auto got = Run(*e, context.get(), {n, 0}, {h, x});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ((*got)[0], state) << n;
      EXPECT_EQ((*got)[1], y) << n;
    }
  }
}

// n iterations of m iterations each: rows of x pass through the inner state, which the outer loop
// keeps.
v1::Plan Nested() {
  PlanMaker p;
  const uint32_t h = p.Add(v1::Buffer::INPUT, "h"), x = p.Add(v1::Buffer::INPUT, "x", {"n", "m"});
  const uint32_t last = p.Add(v1::Buffer::OUTPUT, "last");
  const uint32_t y = p.Add(v1::Buffer::OUTPUT, "y", {"n", "m"});
  const uint32_t other = p.Add(v1::Buffer::ARENA, ""), inner_other = p.Add(v1::Buffer::ARENA, "");
  const uint32_t inner_last = p.Add(v1::Buffer::ARENA, "");
  const auto window = [&](const std::vector<std::string>& axes = {}) {
    return p.Add(v1::Buffer::WINDOW, "", axes);
  };
  const uint32_t read = window(), next = window(), row = window({"m"}), rows = window({"m"});
  const uint32_t inner_read = window(), inner_next = window(), slice = window(), element = window();
  const uint32_t turn = p.AddTurn(), inner_turn = p.AddTurn();
  p.Step(0, {inner_next, inner_read, slice}, "mix");
  p.Step(1, {element, inner_next, inner_turn}, "number");
  p.Step(1, {next, inner_last, turn}, "outer");
  v1::Loop* outer = p.Loop(0, 3, "n");
  PlanMaker::Carry(outer, h, read, next, last, other);
  PlanMaker::Slice(outer, row, x, false);
  PlanMaker::Slice(outer, rows, y, true);
  outer->set_turn(turn);
  v1::Loop* inner = p.Loop(0, 2, "m");
  PlanMaker::Carry(inner, read, inner_read, inner_next, inner_last, inner_other);
  PlanMaker::Slice(inner, slice, row, false);
  PlanMaker::Slice(inner, element, rows, false);
  inner->set_turn(inner_turn);
  return p.plan;
}

TEST_P(LoopTest, OneInsideAnother) {
  const auto e = Load(Nested()).value();
  const auto context = e->NewContext().value();
  for (int64_t n : {0, 1, 3, 4}) {
    for (int64_t m : {0, 1, 2, 5}) {
      const std::vector<float> h = Counting(kElements, 1), x = Counting(n * m * kElements, 0);
      std::vector<float> state = h, y(n * m * kElements);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < m; ++j) {
          for (int k = 0; k < kElements; ++k) {
            state[k] = 2 * state[k] + x[(i * m + j) * kElements + k];
            y[((n - 1 - i) * m + j) * kElements + k] = state[k] + static_cast<float>(j);
          }
        }
        for (float& s : state) s += static_cast<float>(i);
      }
      const auto got = Run(*e, context.get(), {n, m}, {h, x});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ((*got)[0], state) << n << " " << m;
      EXPECT_EQ((*got)[1], y) << n << " " << m;
    }
  }
}

TEST_P(LoopTest, AnErrorEndsTheLoop) {
  v1::Plan plan = Running(false);
  plan.mutable_run(0)->set_kernel(2);  // h' = h, which is checked
  const auto e = Load(plan).value();
  const auto context = e->NewContext().value();
  const auto bad = Run(*e, context.get(), {4, 0}, {{1, -3, 1}, Counting(12, 0)});
  EXPECT_TRUE(IsIndexError(bad.status())) << bad.status();
  EXPECT_TRUE(Run(*e, context.get(), {4, 0}, {{1, 3, 1}, Counting(12, 0)}).ok());
}

// The host learns of a turn's error when it has run ahead as far as it may, and only then asks for
// that of a step outside.
TEST_P(LoopTest, AnErrorBeforeALongLoopIsToldFirst) {
  PlanMaker p;
  for (v1::DimRange& dim : *p.plan.mutable_dims()) dim.set_max(200);
  const uint32_t a = p.Add(v1::Buffer::INPUT, "a"), x = p.Add(v1::Buffer::INPUT, "x", {"n"});
  const uint32_t first = p.Add(v1::Buffer::OUTPUT, "first");
  const uint32_t y = p.Add(v1::Buffer::OUTPUT, "y", {"n"});
  const uint32_t slice = p.Add(v1::Buffer::WINDOW, "slice");
  const uint32_t element = p.Add(v1::Buffer::WINDOW, "element");
  p.Step(2, {first, a}, "before");
  p.Step(2, {element, slice}, "inside");
  v1::Loop* loop = p.Loop(1, 1, "n");
  PlanMaker::Slice(loop, slice, x, false);
  PlanMaker::Slice(loop, element, y, false);
  const auto e = Load(p.plan).value();
  const auto context = e->NewContext().value();
  const auto failed_step = [&](std::vector<float> before, int64_t turns) {
    std::vector<float> inside = Counting(turns * kElements, 1);
    inside[4] = -5;
    const absl::Status s = Run(*e, context.get(), {turns, 0}, {before, inside}).status();
    EXPECT_TRUE(IsIndexError(s)) << s;
    return std::string(s.message());
  };
  for (const int64_t turns : {10, 64, 65, 200}) {
    EXPECT_THAT(failed_step({1, -3, 1}, turns), HasSubstr("step 'before': index -3")) << turns;
    EXPECT_THAT(failed_step({1, 3, 1}, turns), HasSubstr("step 'inside': index -5")) << turns;
  }
}

TEST_P(LoopTest, EveryErrorOfTheDeviceEndsTheRun) {
  FaultyDevice faulty(device_.get());
  const std::vector<absl::string_view> objects = {"mix", "number", "checked"};
  const auto e = Executable::Load(Running(false), objects, {}, &faulty, {}).value();
  const auto context = e->NewContext().value();
  std::set<std::string> failed;
  for (int64_t n : {0, 3}) {
    const std::vector<std::vector<float>> inputs = {Counting(3, 0), Counting(n * kElements, 0)};
    faulty.FailAt(-1);
    const auto right = Run(*e, context.get(), {n, 0}, inputs);
    ASSERT_TRUE(right.ok()) << right.status();
    for (int call = 0;; ++call) {
      faulty.FailAt(call);
      const auto got = Run(*e, context.get(), {n, 0}, inputs);
      if (faulty.failed().empty()) break;
      EXPECT_EQ(got.status().code(), absl::StatusCode::kUnavailable) << got.status();
      failed.insert(faulty.failed());
      faulty.FailAt(-1);
      EXPECT_EQ(Run(*e, context.get(), {n, 0}, inputs).value(), *right);
    }
  }
  if (GetParam()) {
    EXPECT_THAT(failed, ::testing::ElementsAre("Copy", "Fill", "Replay", "Wait"));
  } else {
    EXPECT_THAT(failed, ::testing::ElementsAre("Copy", "Launch", "Wait"));
  }
}

TEST_P(LoopTest, CancelledBetweenTurns) {
  const auto e = Load(Running(false)).value();
  const auto context = e->NewContext().value();
  std::atomic<bool> cancelled = false;
  int steps = 0;
  const std::function<absl::Status(const StepView&)> check = [&](const StepView& view) {
    if (++steps == 7) cancelled = true;
    EXPECT_EQ(view.step, (steps - 1) % 2);
    return absl::OkStatus();
  };
  RunOptions options;
  options.cancelled = &cancelled;
  options.check = &check;
  const auto got = Run(*e, context.get(), {20, 0}, {Counting(3, 0), Counting(60, 0)}, options);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(steps, 7);
}

TEST_P(LoopTest, TimesAreOfAllTurnsAndLoopsAreNotCut) {
  const auto e = Load(Running(false)).value();
  const auto context = e->NewContext().value();
  std::vector<int64_t> nanoseconds(2, -5);
  RunOptions options;
  options.step_nanoseconds = absl::MakeSpan(nanoseconds);
  ASSERT_TRUE(Run(*e, context.get(), {20, 0}, {Counting(3, 0), Counting(60, 0)}, options).ok());
  EXPECT_GT(nanoseconds[0], 0);
  EXPECT_GT(nanoseconds[1], 0);
  ASSERT_TRUE(Run(*e, context.get(), {0, 0}, {Counting(3, 0), {}}, options).ok());
  EXPECT_EQ(nanoseconds, (std::vector<int64_t>{0, 0}));
  RunOptions part;
  part.first_step = 1;
  const absl::Status s =
      Run(*e, context.get(), {1, 0}, {Counting(3, 0), Counting(3, 0)}, part).status();
  EXPECT_THAT(std::string(s.message()), HasSubstr("steps 1 to 2 cut the loop of steps 0 to 2"));
}

TEST_P(LoopTest, WrongLoopsAreRefused) {
  const auto changed = [](const std::function<void(v1::Plan&)>& change) {
    v1::Plan plan = Running(false);
    change(plan);
    return plan;
  };
  ExpectRefused(changed([](v1::Plan& p) { p.set_format(1); }), "format: is 1");
  ExpectRefused(changed([](v1::Plan& p) {
                  p.clear_loops();
                  p.set_format(1);
                }),
                "WINDOW that belongs to no loop");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->set_steps(3); }),
                "steps 0 to 3 of 2");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->set_steps(0); }),
                "steps 0 to 0 of 2");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->set_steps(1); }), "outside its loop");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->mutable_slices(0)->set_buffer(99); }),
                "buffer 99 of");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->mutable_slices(0)->set_buffer(0); }),
                "is not a WINDOW");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->mutable_slices(1)->set_of(5); }),
                "a WINDOW that belongs to no loop around it");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->mutable_slices(1)->set_of(1); }),
                "of kind INPUT");
  ExpectRefused(changed([](v1::Plan& p) { p.mutable_loops(0)->mutable_carries(0)->set_last(0); }),
                "of kind INPUT");
  ExpectRefused(changed([](v1::Plan& p) {
                  p.mutable_outputs(0)->set_buffer(5);
                  p.mutable_buffers(2)->set_kind(v1::Buffer::ARENA);
                }),
                "is a WINDOW");
  ExpectRefused(changed([](v1::Plan& p) { *p.add_loops() = p.loops(0); }), "not a WINDOW");
}

TEST_P(LoopTest, SizesThatDoNotFitCostTheCall) {
  const auto fails = [&](const std::function<void(v1::Plan&)>& change, const std::string& part) {
    v1::Plan plan = Running(false);
    change(plan);
    const auto e = Load(plan);
    ASSERT_TRUE(e.ok()) << e.status();
    const auto context = (*e)->NewContext().value();
    const absl::Status s =
        Run(**e, context.get(), {4, 0}, {Counting(3, 0), Counting(12, 0)}).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition) << s;
    EXPECT_THAT(std::string(s.message()), HasSubstr(part));
  };
  fails([](v1::Plan& p) { *p.mutable_loops(0)->mutable_count() = Size(2, {"n"}); },
        "has 8 slices of 12 bytes in buffer 1 of 48");
  fails([](v1::Plan& p) { *p.mutable_loops(0)->mutable_count() = Size(-1, {"n"}); },
        "has -4 turns");
  fails([](v1::Plan& p) { *p.mutable_buffers(5)->mutable_bytes() = Size(4); }, "carries 12 bytes");
  fails([](v1::Plan& p) { *p.mutable_buffers(9)->mutable_bytes() = Size(4); },
        "its iteration number in 4 bytes, not 8");
}

}  // namespace
}  // namespace athanor
