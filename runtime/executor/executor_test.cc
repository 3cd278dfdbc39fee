#include "runtime/executor/executor.h"

#include <cmath>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/device/faulty_device_testing.h"
#include "runtime/device/forwarding_device.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/program/program.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectStatus(const absl::Status& status, absl::StatusCode code,
                  const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

class FakeLedger : public MemoryLedger {
 public:
  explicit FakeLedger(int64_t limit) : limit(limit) {}
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
    if (held + bytes > limit) return absl::ResourceExhaustedError("full");
    held += bytes;
    return absl::OkStatus();
  }
  void Release(MemoryKind kind, int64_t bytes) override { held -= bytes; }
  int64_t limit, held = 0;
};

class ExecutorTest : public ::testing::TestWithParam<bool> {
 protected:
  absl::StatusOr<std::shared_ptr<const Executable>> Load(const v1::Plan& plan,
                                                         const LoadOptions& options = {
                                                             .poison = true}) {
    const ParameterView parameters[] = {RowParameter(1.0f)};
    return Executable::Load(plan, RowPlanObjects(), parameters, device_.get(), options);
  }
  std::shared_ptr<const Executable> LoadOrDie(const v1::Plan& plan) {
    auto executable = Load(plan);
    EXPECT_TRUE(executable.ok()) << executable.status();
    return *std::move(executable);
  }
  void ExpectPlanRefused(const v1::Plan& plan, const std::vector<std::string>& parts) {
    ExpectStatus(Load(plan).status(), absl::StatusCode::kInvalidArgument, parts);
  }

  EitherDevice<FunctionDevice> device_{FunctionDevice::Make(3), GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Devices, ExecutorTest, ::testing::Bool(), EitherDeviceName);

TEST_P(ExecutorTest, SizesUpAndDown) {
  for (int64_t work : {0, 1 << 20}) {
    auto executable = LoadOrDie(RowPlan(work));
    auto context = executable->NewContext().value();
    for (int64_t b : {1, 64, 2, 0, 63, 64, 64, 7, 0, 1}) {
      RowCall call(b);
      ASSERT_TRUE(call.Run(*executable, context.get()).ok());
      EXPECT_TRUE(call.Right(1.0f)) << b;
    }
  }
}

TEST_P(ExecutorTest, ThreadsShareOneExecutable) {
  auto executable = LoadOrDie(RowPlan());
  std::vector<std::thread> threads;
  for (int t = 0; t < 5; ++t) {
    threads.emplace_back([&, t] {
      auto context = executable->NewContext().value();
      for (int i = 0; i < 100; ++i) {
        RowCall call((t * 13 + i * 7) % 65, t + 0.5f);
        ASSERT_TRUE(call.Run(*executable, context.get()).ok());
        ASSERT_TRUE(call.Right(1.0f));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ExecutorTest, UnalignedTensors) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  RowCall call(9);
  std::string x = absl::StrCat("?", RowCall::View(call.x));
  std::string idx = absl::StrCat("?", RowCall::View(call.idx));
  std::string y(1 + 9 * 32, '?'), g(1 + 9 * 4, '?');
  const absl::string_view inputs[] = {absl::string_view(x).substr(1),
                                      absl::string_view(idx).substr(1)};
  const absl::Span<char> outputs[] = {absl::MakeSpan(y).subspan(1), absl::MakeSpan(g).subspan(1)};
  ASSERT_TRUE(executable->Run(context.get(), {9}, inputs, outputs, {}).ok());
  std::memcpy(call.y.data(), y.data() + 1, y.size() - 1);
  std::memcpy(call.g.data(), g.data() + 1, g.size() - 1);
  EXPECT_TRUE(call.Right(1.0f));
  EXPECT_EQ(y[0], '?');
  EXPECT_EQ(g[0], '?');
}

// Every kind of buffer as an output, and one buffer twice.
TEST_P(ExecutorTest, OutputsOfEveryKind) {
  v1::Plan plan = RowPlan();
  for (int buffer : {0, 1, 2, 3, 4, 5}) {
    v1::PlanOutput* output = plan.add_outputs();
    output->set_name(absl::StrCat("o", buffer));
    output->set_buffer(buffer);
  }
  auto executable = LoadOrDie(plan);
  auto context = executable->NewContext().value();
  RowCall call(3);
  std::vector<std::vector<float>> values(8);
  std::vector<absl::Span<char>> outputs;
  for (int i = 0; i < 8; ++i) {
    values[i].resize(executable->output_bytes(i, {3}) / sizeof(float));
    outputs.push_back(RowCall::Span(values[i]));
  }
  const absl::string_view inputs[] = {RowCall::View(call.x), RowCall::View(call.idx)};
  ASSERT_TRUE(executable->Run(context.get(), {3}, inputs, outputs, {}).ok());
  call.y = values[0];
  call.g = values[1];
  EXPECT_TRUE(call.Right(1.0f));
  EXPECT_EQ(values[2], call.x);
  EXPECT_EQ(values[3], std::vector<float>(kWidth, 1.0f));
  EXPECT_EQ(values[4][3], 4.5f);
  EXPECT_EQ(values[5], std::vector<float>(kWidth, 2.0f));
  EXPECT_EQ(values[6][8], call.x[8] + 2.0f);
  EXPECT_EQ(values[7], values[0]);
  EXPECT_EQ(executable->output_name(6), "o4");
  EXPECT_EQ(executable->output_dtype(6), "f32");
  EXPECT_THAT(executable->output_shape(6, {3}), ::testing::ElementsAre(3, 8));
}

TEST_P(ExecutorTest, DimsOutsideTheirRange) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  ExpectStatus(RowCall(65).Run(*executable, context.get()), absl::StatusCode::kInvalidArgument,
               {"dim 'b' is 65", "0..64", "p-0"});
  ExpectStatus(executable->CheckDims({-1}), absl::StatusCode::kInvalidArgument, {"dim 'b' is -1"});
  ExpectStatus(executable->CheckDims({1, 2}), absl::StatusCode::kInvalidArgument, {"got 2 dims"});
}

TEST_P(ExecutorTest, WrongByteCounts) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  RowCall call(4);
  call.idx.pop_back();
  ExpectStatus(call.Run(*executable, context.get()), absl::StatusCode::kInvalidArgument,
               {"input 'idx' has 24 bytes, expected 32"});
  RowCall longer(4);
  longer.y.push_back(0);
  ExpectStatus(longer.Run(*executable, context.get()), absl::StatusCode::kInvalidArgument,
               {"output 'y' has 132 bytes, expected 128"});
  const absl::Status few = executable->Run(context.get(), {4}, {}, {}, {});
  ExpectStatus(few, absl::StatusCode::kInvalidArgument, {"0 inputs"});
}

// The lowest item's error is reported, whichever thread finds which error first.
TEST_P(ExecutorTest, IndexOutOfRangeNamesTheStep) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  for (int i = 0; i < 50; ++i) {
    RowCall call(64);
    call.idx[5] = 8 + i;
    call.idx[63] = -1;
    call.idx[30] = 1000;
    ExpectStatus(
        call.Run(*executable, context.get()), absl::StatusCode::kInvalidArgument,
        {absl::StrCat("step 'pick': index ", 8 + i, " is out of range [0, 8) at work item 5")});
  }
  RowCall good(64);
  EXPECT_TRUE(good.Run(*executable, context.get()).ok());
  EXPECT_TRUE(good.Right(1.0f));
}

TEST_P(ExecutorTest, DeadlineAndCancel) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  RowCall call(4);
  ExpectStatus(call.Run(*executable, context.get(), {.deadline = std::chrono::steady_clock::now()}),
               absl::StatusCode::kDeadlineExceeded, {"before step 1 of 3 'add'"});
  std::atomic<bool> cancelled{true};
  ExpectStatus(call.Run(*executable, context.get(), {.cancelled = &cancelled}),
               absl::StatusCode::kCancelled, {"step 1 of 3"});
  cancelled = false;
  EXPECT_TRUE(call.Run(*executable, context.get(), {.cancelled = &cancelled}).ok());
}

TEST_P(ExecutorTest, CancelBetweenSteps) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  std::atomic<bool> cancelled{false};
  const std::function<absl::Status(const StepView&)> cancel = [&](const StepView&) {
    cancelled = true;
    return absl::OkStatus();
  };
  ExpectStatus(
      RowCall(4).Run(*executable, context.get(), {.cancelled = &cancelled, .check = &cancel}),
      absl::StatusCode::kCancelled, {"before step 2 of 3 'mul'"});
}

TEST_P(ExecutorTest, TimesEveryStep) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  std::vector<int64_t> nanoseconds(3, -1);
  RowCall call(64);
  ASSERT_TRUE(
      call.Run(*executable, context.get(), {.step_nanoseconds = absl::MakeSpan(nanoseconds)}).ok());
  EXPECT_THAT(nanoseconds, ::testing::Each(::testing::Gt(0)));
  ExpectStatus(call.Run(*executable, context.get(),
                        {.step_nanoseconds = absl::MakeSpan(nanoseconds).subspan(1)}),
               absl::StatusCode::kInvalidArgument, {"2 elements for 3 steps"});
}

TEST_P(ExecutorTest, RunsSomeOfItsSteps) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  RowCall call(64);
  const auto times = [&](int first, int steps) {
    std::vector<int64_t> nanoseconds(3, -1);
    const RunOptions options{
        .step_nanoseconds = absl::MakeSpan(nanoseconds), .first_step = first, .steps = steps};
    EXPECT_TRUE(call.Run(*executable, context.get(), options).ok());
    for (int64_t& n : nanoseconds) n = n < 0 ? 0 : 1;
    return nanoseconds;
  };
  EXPECT_THAT(times(0, 1), ::testing::ElementsAre(1, 0, 0));
  EXPECT_THAT(times(1, -1), ::testing::ElementsAre(0, 1, 1));
  EXPECT_THAT(times(2, 1), ::testing::ElementsAre(0, 0, 1));
  EXPECT_THAT(times(3, 0), ::testing::ElementsAre(0, 0, 0));
  for (const auto& [first, steps] : {std::pair(2, 2), std::pair(-1, 1), std::pair(4, -1)}) {
    ExpectStatus(call.Run(*executable, context.get(), {.first_step = first, .steps = steps}),
                 absl::StatusCode::kInvalidArgument, {"of 3"});
  }
}

TEST_P(ExecutorTest, CheckSeesEveryStep) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  RowCall call(2);
  std::vector<std::string> labels;
  const std::function<absl::Status(const StepView&)> check = [&](const StepView& step) {
    labels.push_back(std::string(step.label));
    if (step.step == 0) {
      // The arena holds NaNs except for what the step wrote.
      EXPECT_EQ(step.grid, 2);
      const StepView::Buffer& t = step.buffers[2];
      EXPECT_EQ(t.index, 4);
      EXPECT_EQ(t.dtype, "f32");
      EXPECT_THAT(t.shape, ::testing::ElementsAre(2, 8));
      EXPECT_EQ(t.data.size(), 64);
      EXPECT_EQ(LoadAt<float>(t.data.data(), 15), call.x[15] + 2.0f);
    }
    return step.step == 1 ? absl::DataLossError("stop") : absl::OkStatus();
  };
  ExpectStatus(call.Run(*executable, context.get(), {.check = &check}), absl::StatusCode::kDataLoss,
               {"stop"});
  EXPECT_THAT(labels, ::testing::ElementsAre("add", "mul"));
}

// A plan that reads a value which no step of this run wrote gives NaN, even if the previous run
// left a good value there.
TEST_P(ExecutorTest, PoisonShowsReadsOfNothing) {
  v1::Plan plan = RowPlan();
  auto executable = LoadOrDie(plan);
  plan.mutable_run()->DeleteSubrange(0, 1);
  auto broken = LoadOrDie(plan);
  auto context = broken->NewContext().value();
  RowCall call(5);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(call.Run(*broken, context.get()).ok());
    for (float y : call.y) EXPECT_TRUE(std::isnan(y));
  }
}

// An output that no step writes does not show what the call before left there.
TEST_P(ExecutorTest, PoisonShowsOutputsOfNothing) {
  v1::Plan plan = RowPlan();
  plan.mutable_run()->DeleteSubrange(1, 1);  // makes y
  auto executable = LoadOrDie(plan);
  auto context = executable->NewContext().value();
  RowCall call(5);
  call.y.assign(call.y.size(), 3.0f);
  ASSERT_TRUE(call.Run(*executable, context.get()).ok());
  // The host's kernels write into the caller's memory, which stays as it is.
  for (float y : call.y) EXPECT_TRUE(GetParam() ? std::isnan(y) : y == 3.0f) << y;
}

// Gives arenas as a whole, with what others left there.
class WholeDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  bool CommitsLater(MemoryKind, int64_t) const override { return false; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory, device_.Allocate(kind, bytes));
    if (kind != MemoryKind::kArena) return memory;
    RETURN_IF_ERROR(memory->Commit(0, bytes));
    ASSIGN_OR_RETURN(const auto queue, device_.NewQueue(/*scratch_bytes=*/0));
    RETURN_IF_ERROR(queue->Fill(memory->data(), 0xAB, bytes));
    RETURN_IF_ERROR(queue->Wait());
    return std::make_unique<Memory>(std::move(memory));
  }

 private:
  class Memory : public DeviceMemory {
   public:
    explicit Memory(std::unique_ptr<DeviceMemory> inner)
        : DeviceMemory(inner->data(), inner->bytes()), inner_(std::move(inner)) {}

   private:
    const std::unique_ptr<DeviceMemory> inner_;
  };
};

// RowPlan whose last step counts its launches.
v1::Plan CountingPlan() {
  v1::Plan plan = RowPlan();
  plan.set_format(4);
  v1::Buffer* counters = plan.add_buffers();
  counters->set_kind(v1::Buffer::ARENA);
  counters->set_dtype("u32");
  counters->set_arena_offset(2112);
  counters->set_zeroed(true);
  counters->mutable_bytes()->add_terms()->set_coefficient(4);
  plan.set_arena_bytes(2176);
  plan.mutable_kernels(3)->set_launch_buffers(1);
  plan.mutable_run(2)->clear_buffers();
  for (const uint32_t buffer : {7, 8}) plan.mutable_run(2)->add_buffers(buffer);
  return plan;
}

// A launch that uses counters leaves zeros; this one shows who else does.
TEST_P(ExecutorTest, CountersAreZeroAtFirstAndNothingElseWritesThem) {
  WholeDevice whole(device_.get());
  const ParameterView parameters[] = {RowParameter(1.0f)};
  const std::vector<absl::string_view> objects = {"double", "add_row", "mul_row", "count"};
  for (Device* device : {device_.get(), static_cast<Device*>(&whole)}) {
    for (const bool poison : {false, true}) {
      auto executable =
          Executable::Load(CountingPlan(), objects, parameters, device, {.poison = poison}).value();
      auto context = executable->NewContext().value(), other = executable->NewContext().value();
      const auto expect = [&](Executable::Context* in, float count) {
        RowCall call(1);
        ASSERT_TRUE(call.Run(*executable, in).ok());
        EXPECT_EQ(call.g[0], count);
      };
      expect(context.get(), 1);
      expect(context.get(), 2);
      const std::atomic<bool> yes = true;
      RowCall refused(1);
      EXPECT_EQ(refused.Run(*executable, context.get(), {.cancelled = &yes}).code(),
                absl::StatusCode::kCancelled);
      EXPECT_EQ(RowCall(65).Run(*executable, context.get()).code(),
                absl::StatusCode::kInvalidArgument);
      expect(other.get(), 1);
      expect(context.get(), 3);
      context->Trim();
      // Memory that is committed again is new.
      expect(context.get(), device == &whole ? 4 : 1);
    }
  }
}

TEST_P(ExecutorTest, LedgerPaysForWhatIsTouched) {
  FakeLedger ledger(1 << 20), host(1 << 20);
  v1::Plan plan = RowPlan();
  plan.set_arena_bytes(int64_t{1} << 40);
  plan.mutable_buffers(4)->set_arena_offset(int64_t{1} << 30);
  {
    auto executable = Load(plan, {.ledger = &ledger, .host_ledger = &host});
    ASSERT_TRUE(executable.ok()) << executable.status();
    EXPECT_EQ(ledger.held, 128);  // constant and prepared row, 64 bytes each
    const int64_t touched = 2 << 20;
    ledger.limit = 2 * touched;
    auto context = (*executable)->NewContext().value();
    const int64_t staged = ledger.held - 128 - device_->ScratchBytes(32);
    if (GetParam()) {
      // Inputs and outputs of 64 rows, each in the ledger of its place.
      const int64_t tensors = 64 * (2 * kWidth * sizeof(float) + sizeof(int64_t) + sizeof(float));
      EXPECT_GE(staged, tensors);
      EXPECT_LE(staged, tensors + 2048);
    } else {
      EXPECT_EQ(staged, 0);
    }
    EXPECT_EQ(host.held, staged);
    RowCall call(64);
    EXPECT_TRUE(call.Run(**executable, context.get()).ok());
    // Buffer 4 takes one huge page.
    EXPECT_EQ(context->charged_bytes(), touched);
    context->Trim();
    EXPECT_EQ(context->charged_bytes(), 0);
    ledger.limit = 1000;
    ExpectStatus(call.Run(**executable, context.get()), absl::StatusCode::kResourceExhausted,
                 {"full"});
    ledger.limit = 2 * touched;
    EXPECT_TRUE(call.Run(**executable, context.get()).ok());
    EXPECT_TRUE(call.Right(1.0f));
  }
  EXPECT_EQ(ledger.held, 0);
  EXPECT_EQ(host.held, 0);
  // Recording `prepare` takes memory of the host, too.
  host.limit = 100;
  const absl::Status no_host = Load(plan, {.ledger = &ledger, .host_ledger = &host}).status();
  EXPECT_EQ(absl::IsResourceExhausted(no_host), GetParam()) << no_host;
  EXPECT_EQ(ledger.held, 0);
  ledger.limit = 100;
  ExpectStatus(Load(plan, {.ledger = &ledger}).status(), absl::StatusCode::kResourceExhausted,
               {"full"});
  EXPECT_EQ(ledger.held, 0);
}

constexpr int64_t kPage = 4096;  // of the host, and so of both devices

// A plan whose arena takes three pages, or two of up to two rows.
v1::Plan SparsePlan() {
  constexpr int64_t kBytes = int64_t{1} << 20;
  v1::Plan plan = RowPlan();
  plan.set_arena_bytes(kBytes);
  plan.mutable_buffers(4)->set_arena_offset(kPage - 64);  // t
  plan.mutable_buffers(5)->set_kind(v1::Buffer::ARENA);   // y, copied out
  plan.mutable_buffers(5)->set_arena_offset(kBytes - 2048);
  return plan;
}

TEST_P(ExecutorTest, LargerSizesCommitMore) {
  FakeLedger ledger(1 << 20);
  auto executable = Load(SparsePlan(), {.ledger = &ledger, .poison = true}).value();
  const int64_t without = ledger.held;
  auto context = executable->NewContext().value();
  const int64_t before = ledger.held;
  const auto expect = [&](int64_t rows, int64_t pages) {
    RowCall call(rows);
    ASSERT_TRUE(call.Run(*executable, context.get()).ok());
    EXPECT_TRUE(call.Right(1.0f)) << rows;
    EXPECT_EQ(context->charged_bytes(), pages * kPage) << rows;
    EXPECT_EQ(ledger.held, before + pages * kPage) << rows;
  };
  expect(0, 0);
  expect(2, 2);
  expect(3, 3);
  expect(64, 3);
  expect(1, 3);  // nothing is given back between calls
  context->Trim();
  EXPECT_EQ(ledger.held, before);
  expect(1, 2);
  context->Trim();
  context->Trim();
  expect(64, 3);
  context.reset();
  EXPECT_EQ(ledger.held, without);
}

// Commits so many bytes of arenas in all.
class ScarceDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override {
    auto memory = device_.Allocate(kind, bytes);
    if (!memory.ok() || kind != MemoryKind::kArena) return memory;
    return std::make_unique<Memory>(this, *std::move(memory));
  }
  int64_t left = 0;
  int64_t stuck = 0;  // granules that a call of Decommit does not give back

 private:
  class Memory : public DeviceMemory {
   public:
    Memory(ScarceDevice* device, std::unique_ptr<DeviceMemory> inner)
        : DeviceMemory(inner->data(), inner->bytes()), device_(*device), inner_(std::move(inner)) {}
    int64_t granularity() const override { return inner_->granularity(); }
    absl::Status Commit(int64_t offset, int64_t bytes) override {
      std::set<int64_t> wanted;
      for (int64_t g = offset / kPage; g * kPage < offset + bytes; ++g) {
        if (committed_.count(g) == 0) wanted.insert(g);
      }
      const auto needed = static_cast<int64_t>(wanted.size()) * kPage;
      if (needed > device_.left) return absl::ResourceExhaustedError("scarce");
      device_.left -= needed;
      committed_.merge(wanted);
      return inner_->Commit(offset, bytes);
    }
    int64_t Decommit(int64_t offset, int64_t bytes) override {
      int64_t kept = 0;
      for (int64_t g = offset / kPage; g * kPage < offset + bytes; ++g) {
        if (committed_.count(g) > 0 && device_.stuck > kept / kPage) {
          kept += kPage;
        } else {
          device_.left += static_cast<int64_t>(committed_.erase(g)) * kPage;
        }
      }
      inner_->Decommit(offset, bytes);
      return kept;
    }

   private:
    ScarceDevice& device_;
    const std::unique_ptr<DeviceMemory> inner_;
    std::set<int64_t> committed_;
  };
};

// The ledger keeps, once, what the system does not take back.
TEST_P(ExecutorTest, WhatIsNotGivenBackStaysCharged) {
  ScarceDevice scarce(device_.get());
  scarce.left = 10 * kPage;
  FakeLedger ledger(1 << 20);
  const ParameterView parameters[] = {RowParameter(1.0f)};
  auto executable = Executable::Load(SparsePlan(), RowPlanObjects(), parameters, &scarce,
                                     {.ledger = &ledger, .poison = true})
                        .value();
  auto context = executable->NewContext().value();
  const int64_t before = ledger.held;
  RowCall few(2), large(64);
  ASSERT_TRUE(few.Run(*executable, context.get()).ok());
  scarce.stuck = 1;
  context->Trim();
  EXPECT_EQ(ledger.held, before + kPage);
  // Refused again and again, a call adds nothing to that.
  scarce.left = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(large.Run(*executable, context.get()).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ledger.held, before + kPage);
  }
  // What a call uses again of it is charged once.
  scarce.left = 10 * kPage;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(few.Run(*executable, context.get()).ok());
    EXPECT_TRUE(few.Right(1.0f));
    EXPECT_EQ(ledger.held, before + 2 * kPage);
    context->Trim();
    EXPECT_EQ(ledger.held, before + kPage);
  }
  scarce.stuck = 0;
  ASSERT_TRUE(large.Run(*executable, context.get()).ok());
  EXPECT_TRUE(large.Right(1.0f));
  EXPECT_EQ(ledger.held, before + 3 * kPage);
  context->Trim();
  EXPECT_EQ(ledger.held, before);
}

TEST_P(ExecutorTest, ARefusedCommitLeavesNothingAndSmallerCallsWork) {
  ScarceDevice scarce(device_.get());
  FakeLedger ledger(1 << 20);
  const ParameterView parameters[] = {RowParameter(1.0f)};
  auto executable = Executable::Load(SparsePlan(), RowPlanObjects(), parameters, &scarce,
                                     {.ledger = &ledger, .poison = true})
                        .value();
  auto context = executable->NewContext().value();
  const int64_t before = ledger.held, small = 2 * kPage;
  RowCall large(64), few(2);
  const auto expect_refused = [&](int64_t left, int64_t held) {
    ExpectStatus(large.Run(*executable, context.get()), absl::StatusCode::kResourceExhausted,
                 {"scarce"});
    EXPECT_EQ(scarce.left, left);
    EXPECT_EQ(ledger.held, before + held);
    EXPECT_EQ(context->charged_bytes(), held);
  };
  // The first, a middle or the last range of the large call finds no memory.
  for (scarce.left = 0; scarce.left <= small; scarce.left += kPage) {
    expect_refused(scarce.left, 0);
  }
  scarce.left = small;
  ASSERT_TRUE(few.Run(*executable, context.get()).ok());
  EXPECT_TRUE(few.Right(1.0f));
  expect_refused(0, small);
  ASSERT_TRUE(few.Run(*executable, context.get()).ok());
  EXPECT_TRUE(few.Right(1.0f));
  scarce.left = kPage;
  ASSERT_TRUE(large.Run(*executable, context.get()).ok());
  EXPECT_TRUE(large.Right(1.0f));
  EXPECT_EQ(ledger.held, before + small + kPage);
}

// Each call of a queue that a run makes fails once; the context stays usable.
TEST_P(ExecutorTest, EveryErrorOfTheDeviceReachesTheCaller) {
  FaultyDevice faulty(device_.get());
  v1::Plan plan = RowPlan();
  // Has `y` copied out.
  plan.mutable_buffers(5)->set_kind(v1::Buffer::ARENA);
  plan.mutable_buffers(5)->set_arena_offset(2112);
  plan.set_arena_bytes(2112 + 2048);
  const ParameterView parameters[] = {RowParameter(1.0f)};
  auto executable =
      Executable::Load(plan, RowPlanObjects(), parameters, &faulty, {.poison = true}).value();
  auto context = executable->NewContext().value();
  std::set<std::string> failed;
  for (int call = 0;; ++call) {
    RowCall first(5), second(5);
    faulty.FailAt(call);
    const absl::Status status = first.Run(*executable, context.get());
    if (faulty.failed().empty()) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(first.Right(1.0f));
      break;
    }
    ExpectStatus(status, absl::StatusCode::kUnavailable, {"lost at " + faulty.failed()});
    failed.insert(faulty.failed());
    faulty.FailAt(-1);
    ASSERT_TRUE(second.Run(*executable, context.get()).ok());
    EXPECT_TRUE(second.Right(1.0f));
  }
  const std::string run = GetParam() ? "Replay" : "Launch";
  EXPECT_THAT(failed, ::testing::UnorderedElementsAre("Copy", "Fill", run, "Wait"));
}

TEST_P(ExecutorTest, ErrorsOfTheDeviceNameTheStep) {
  FaultyDevice faulty(device_.get());
  const ParameterView parameters[] = {RowParameter(1.0f)};
  auto executable = Executable::Load(RowPlan(), RowPlanObjects(), parameters, &faulty, {}).value();
  auto context = executable->NewContext().value();
  RowCall call(5);
  const bool far = GetParam();
  const std::string run = far ? "Replay" : "Launch";
  const int in = far ? 1 : 0;  // copies, before the first step
  if (!far) {
    faulty.FailAt(1);
    ExpectStatus(call.Run(*executable, context.get()), absl::StatusCode::kUnavailable,
                 {"step 'mul': lost at Launch"});
  }
  std::vector<int64_t> nanoseconds(3);
  const RunOptions timed = {.step_nanoseconds = absl::MakeSpan(nanoseconds)};
  EXPECT_TRUE(call.Run(*executable, context.get(), timed).ok());  // records steps
  for (const int wait : {0, 1}) {
    faulty.FailAt(in + 2 + wait);
    ExpectStatus(call.Run(*executable, context.get(), timed), absl::StatusCode::kUnavailable,
                 {"step 'mul': lost at " + (wait ? "Wait" : run)});
  }
  const std::function<absl::Status(const StepView&)> check = [](const StepView&) {
    return absl::OkStatus();
  };
  const RunOptions checked = {.check = &check};
  EXPECT_TRUE(call.Run(*executable, context.get(), checked).ok());
  // A step is a launch and a wait. A far one fetches errors between, and then its three buffers,
  // with a wait each.
  const int step = far ? 3 + 6 : 2;
  faulty.FailAt(in + 2 * step + (far ? 2 : 1));
  ExpectStatus(call.Run(*executable, context.get(), checked), absl::StatusCode::kUnavailable,
               {"step 'pick': lost at Wait"});
}

TEST_P(ExecutorTest, ErrorsOfTheDeviceEndLoading) {
  FaultyDevice faulty(device_.get());
  const ParameterView parameters[] = {RowParameter(1.0f)};
  std::set<std::string> failed;
  // A call that fails may have been queued: nothing that it uses may be gone before the wait.
  for (const auto when : {FaultyDevice::When::kBefore, FaultyDevice::When::kAfter}) {
    for (int call = 0;; ++call) {
      faulty.FailAt(call, when);
      const auto loaded = Executable::Load(RowPlan(), RowPlanObjects(), parameters, &faulty, {});
      if (faulty.failed().empty()) {
        EXPECT_TRUE(loaded.ok()) << loaded.status();
        break;
      }
      ExpectStatus(loaded.status(), absl::StatusCode::kUnavailable, {"lost at " + faulty.failed()});
      failed.insert(faulty.failed());
    }
  }
  if (GetParam()) {
    EXPECT_THAT(failed, ::testing::IsSupersetOf({"Record", "Replay", "Copy", "Wait"}));
  } else {
    EXPECT_THAT(failed, ::testing::IsSupersetOf({"Launch", "Wait"}));
  }
}

TEST_P(ExecutorTest, ResidentRunsBringAndFetchNothing) {
  FaultyDevice device(device_.get());
  const ParameterView parameters[] = {RowParameter(1.0f)};
  const auto executable =
      Executable::Load(RowPlan(), RowPlanObjects(), parameters, &device, {}).value();
  const auto context = executable->NewContext().value();
  const auto run = [&](RowCall& call, const RunOptions& options) {
    const absl::Status status = call.Run(*executable, context.get(), options);
    EXPECT_TRUE(status.ok()) << status;
  };
  const RunOptions resident{.resident = true}, none{.steps = 0};
  RowCall first(5, 1.0f), other(5, 9.0f);
  run(first, {});
  EXPECT_TRUE(first.Right(1.0f));
  if (!GetParam()) {
    run(other, resident);
    EXPECT_TRUE(other.Right(1.0f)) << "these are the caller's";
    return;
  }
  // Neither the inputs of the resident run count, nor does it write its outputs.
  std::fill(other.y.begin(), other.y.end(), -3.0f);
  run(other, resident);
  EXPECT_EQ(other.y, std::vector<float>(other.y.size(), -3.0f));
  std::fill(first.y.begin(), first.y.end(), 0.0f);
  run(first, none);
  EXPECT_TRUE(first.Right(1.0f));
  // It is a replay and a wait.
  device.FailAt(2);
  run(other, resident);
  EXPECT_EQ(device.failed(), "");
  // At other dims, and after an error, the device has none yet.
  RowCall wide(7, 2.0f), wrong(7, 3.0f);
  device.FailAt(-1);
  run(wide, resident);
  run(wide, none);
  EXPECT_TRUE(wide.Right(1.0f));
  wrong.idx[2] = 99;
  EXPECT_TRUE(IsIndexError(wrong.Run(*executable, context.get())));
  run(wide, resident);
  run(wide, none);
  EXPECT_TRUE(wide.Right(1.0f));
}

TEST_P(ExecutorTest, RecordingsAreMadeAhead) {
  FaultyDevice device(device_.get());
  const ParameterView parameters[] = {RowParameter(1.0f)};
  const auto executable =
      Executable::Load(RowPlan(), RowPlanObjects(), parameters, &device, {}).value();
  const auto context = executable->NewContext().value();
  RowCall call(5);
  std::vector<int64_t> nanoseconds(3);
  for (const RunOptions& options :
       {RunOptions{.first_step = 1, .steps = 2}, RunOptions{.steps = 1},
        RunOptions{.step_nanoseconds = absl::MakeSpan(nanoseconds)}, RunOptions{}}) {
    device.FailAt(-1);
    ASSERT_TRUE(executable->Record(context.get(), options).ok());
    // No call of the run is a Record.
    for (int at = 0;; ++at) {
      device.FailAt(at);
      const absl::Status status = call.Run(*executable, context.get(), options);
      if (device.failed().empty()) {
        EXPECT_TRUE(status.ok()) << status;
        break;
      }
      EXPECT_NE(device.failed(), "Record");
    }
  }
  ExpectStatus(executable->Record(context.get(), {.first_step = 2, .steps = 2}),
               absl::StatusCode::kInvalidArgument, {"steps 2 to 4 of 3"});
}

TEST_P(ExecutorTest, ContextKeepsTheExecutable) {
  auto executable = LoadOrDie(RowPlan());
  auto context = executable->NewContext().value();
  const Executable& alive = *executable;
  executable.reset();
  RowCall call(8);
  EXPECT_TRUE(call.Run(alive, context.get()).ok());
  EXPECT_TRUE(call.Right(1.0f));
}

TEST_P(ExecutorTest, ParametersAreNamed) {
  const auto load = [&](std::vector<ParameterView> parameters) {
    return Executable::Load(RowPlan(), RowPlanObjects(), parameters, device_.get(), {}).status();
  };
  ParameterView other = RowParameter(1.0f);
  other.name = "other";
  ExpectStatus(load({other}), absl::StatusCode::kInvalidArgument, {"parameter 'w' is missing"});
  ParameterView small = RowParameter(1.0f);
  small.data.remove_suffix(1);
  ExpectStatus(load({small}), absl::StatusCode::kInvalidArgument,
               {"parameter 'w' has 31 bytes, the plan wants 32"});
  EXPECT_TRUE(load({other, RowParameter(2.0f)}).ok());
}

TEST_P(ExecutorTest, PlansOfOtherDevicesAreRefused) {
  v1::Plan plan = RowPlan();
  plan.mutable_target()->set_device("cuda");
  ExpectStatus(
      Load(plan).status(), absl::StatusCode::kFailedPrecondition,
      {absl::StrCat("plan 'p-0' is made for device 'cuda', not for '", device_->name(), "'")});
  plan.mutable_target()->set_device(std::string(device_->name()));
  EXPECT_TRUE(Load(plan).ok());
}

// On the host only the arena takes memory of its own.
TEST_P(ExecutorTest, InputsAndOutputsBeyondAllAddresses) {
  v1::Plan plan = RowPlan();
  plan.mutable_dims(0)->set_max(int64_t{1} << 57);  // 2^62 bytes of x, and of y
  auto executable = LoadOrDie(plan);
  auto context = executable->NewContext();
  if (!GetParam()) {
    ASSERT_TRUE(context.ok()) << context.status();
    RowCall call(64);
    EXPECT_TRUE(call.Run(*executable, context->get()).ok());
    EXPECT_TRUE(call.Right(1.0f));
    return;
  }
  ExpectStatus(context.status(), absl::StatusCode::kResourceExhausted,
               {"plan 'p-0' needs more than", "bytes on device 'far'", "at the largest dims"});
}

TEST_P(ExecutorTest, KernelsMustLoad) {
  std::vector<absl::string_view> objects = RowPlanObjects();
  const ParameterView parameters[] = {RowParameter(1.0f)};
  objects[2] = "garbage";
  ExpectStatus(Executable::Load(RowPlan(), objects, parameters, device_.get(), {}).status(),
               absl::StatusCode::kInvalidArgument, {"kernel 2 'mul_row'", "not an ELF file"});
  objects.pop_back();
  ExpectStatus(Executable::Load(RowPlan(), objects, parameters, device_.get(), {}).status(),
               absl::StatusCode::kInvalidArgument, {"4 kernels", "3 objects"});
}

TEST_P(ExecutorTest, PrepareErrorsAreReported) {
  v1::Plan plan = RowPlan();
  v1::Step* step = plan.add_prepare();
  step->set_kernel(3);
  step->set_label("bad table");
  for (int buffer : {3, 2, 3}) step->add_buffers(buffer);
  step->add_sizes()->add_terms()->set_coefficient(1);
  step->mutable_grid()->add_terms()->set_coefficient(1);
  ExpectPlanRefused(plan, {"step 'bad table'", "out of range [0, 1)"});
}

TEST_P(ExecutorTest, SizesThatLeaveTheArenaNeverRun) {
  v1::Plan plan = RowPlan();
  plan.set_arena_bytes(2111);
  auto executable = LoadOrDie(plan);
  auto context = executable->NewContext().value();
  EXPECT_TRUE(RowCall(63).Run(*executable, context.get()).ok());
  ExpectStatus(RowCall(64).Run(*executable, context.get()), absl::StatusCode::kFailedPrecondition,
               {"buffer 4 of 2048 bytes at 64 leaves the arena of 2111"});
  RowCall call(62);
  EXPECT_TRUE(call.Run(*executable, context.get()).ok());
  EXPECT_TRUE(call.Right(1.0f));
}

TEST_P(ExecutorTest, WrongPlansAreNamed) {
  v1::Plan plan = RowPlan();
  plan.set_format(2);
  ExpectPlanRefused(plan, {"format", "is 2", "reads 1"});
  plan = CountingPlan();
  plan.set_format(1);
  ExpectPlanRefused(plan, {"format", "is 1", "with zeroed buffers 4"});
  plan = CountingPlan();
  plan.mutable_buffers(8)->set_kind(v1::Buffer::OUTPUT);
  ExpectPlanRefused(plan, {"buffer 8", "of kind OUTPUT is zeroed"});
  plan = RowPlan();
  plan.mutable_dims(0)->set_min(65);
  ExpectPlanRefused(plan, {"dim 'b'", "65..64"});
  plan = RowPlan();
  *plan.add_dims() = plan.dims(0);
  ExpectPlanRefused(plan, {"dim 'b'", "twice"});
  plan = RowPlan();
  plan.mutable_buffers(4)->set_arena_offset(32);
  ExpectPlanRefused(plan, {"buffer 4", "arena_offset is 32"});
  plan = RowPlan();
  plan.mutable_buffers(2)->mutable_literal()->pop_back();
  ExpectPlanRefused(plan, {"buffer 2", "literal has 31 bytes"});
  plan = RowPlan();
  *plan.mutable_buffers(3)->mutable_bytes() = plan.buffers(0).bytes();
  ExpectPlanRefused(plan, {"buffer 3", "without dims"});
  plan = RowPlan();
  plan.mutable_buffers(3)->clear_kind();
  ExpectPlanRefused(plan, {"buffer 3", "kind 0"});
  plan = RowPlan();
  plan.mutable_run(1)->set_kernel(4);
  ExpectPlanRefused(plan, {"run step 1 'mul'", "kernel 4 of 4"});
  plan = RowPlan();
  plan.mutable_run(1)->set_buffers(0, 8);
  ExpectPlanRefused(plan, {"run step 1 'mul'", "buffer 8 of 8"});
  plan = RowPlan();
  plan.mutable_run(2)->mutable_grid()->mutable_terms(0)->mutable_factors(0)->set_symbol("q");
  ExpectPlanRefused(plan, {"run step 2 'pick' grid", "dim 'q'", "[b]"});
  plan = RowPlan();
  plan.mutable_prepare(0)->set_buffers(1, 4);
  ExpectPlanRefused(plan, {"prepare step 0 'double w'", "buffer 4", "ARENA"});
  plan = RowPlan();
  *plan.mutable_prepare(0)->mutable_grid() = plan.run(0).grid();
  ExpectPlanRefused(plan, {"prepare step 0", "without dims"});
  plan = RowPlan();
  plan.mutable_outputs(0)->set_buffer(99);
  ExpectPlanRefused(plan, {"output 'y'", "buffer 99 of 8"});
  plan = RowPlan();
  plan.mutable_outputs()->RemoveLast();
  ExpectPlanRefused(plan, {"buffer 7 'g'", "but no output uses it"});
}

TEST_P(ExecutorTest, ATeamIsPartOfAWaveOrABlock) {
  v1::Plan plan = RowPlan();
  const int kernel = static_cast<int>(plan.run(0).kernel());
  for (const uint32_t team : {1, 2, 32, 128}) {
    plan.mutable_kernels(kernel)->set_team(team);
    const absl::StatusOr<Program> program = BuildProgram(plan);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->run[0].team, team);
  }
  for (const uint32_t team : {3, 64, 256}) {
    plan.mutable_kernels(kernel)->set_team(team);
    ExpectPlanRefused(plan, {absl::StrCat("kernel ", kernel), absl::StrCat("team is ", team),
                             "power of two up to 32"});
  }
}

}  // namespace
}  // namespace athanor
