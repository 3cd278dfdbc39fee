#include "runtime/memory/uploaded_weights.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr int kParameter = 1;  // buffer of RowPlan, of 32 bytes

class Ledger final : public MemoryLedger {
 public:
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
    if (kind == MemoryKind::kWeights && held[kind] + bytes > limit) {
      return absl::ResourceExhaustedError("held and limit");
    }
    held[kind] += bytes;
    most = std::max(most, held[MemoryKind::kWeights]);
    return absl::OkStatus();
  }
  void Release(MemoryKind kind, int64_t bytes) override { held[kind] -= bytes; }
  int64_t weights() { return held[MemoryKind::kWeights]; }

  std::map<MemoryKind, int64_t> held;
  int64_t limit = int64_t{1} << 40, most = 0;  // of weights
};

v1::Plan HashedPlan() {
  v1::Plan plan = RowPlan();
  for (v1::Kernel& kernel : *plan.mutable_kernels()) kernel.set_source_hash("h" + kernel.name());
  return plan;
}

// Runs read the parameter itself: x + w in place of x + 2 * w.
v1::Plan PlanThatReadsTheWeight() {
  v1::Plan plan = HashedPlan();
  plan.mutable_run(0)->set_buffers(1, kParameter);
  return plan;
}

class UploadedWeightsTest : public ::testing::TestWithParam<bool> {
 protected:
  bool far() const { return GetParam(); }
  static ParameterView Weight(float w, const std::string& hash) {
    ParameterView parameter = RowParameter(w);
    parameter.hash = hash;
    return parameter;
  }
  absl::StatusOr<std::shared_ptr<const Executable>> Load(const v1::Plan& plan,
                                                         const ParameterView& parameter) {
    return Executable::Load(plan, RowPlanObjects(), {parameter}, device_.get(),
                            {.ledger = &ledger_, .pool = &pool_, .poison = true});
  }
  // `w` is what is added twice.
  static void ExpectRight(const Executable& executable, float w) {
    auto context = executable.NewContext().value();
    RowCall call(5);
    const absl::Status status = call.Run(executable, context.get());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(call.Right(w));
  }

  EitherDevice<FunctionDevice> device_{FunctionDevice::Make(2), GetParam()};
  Ledger ledger_;
  PreparedPool pool_{device_.get(), &ledger_};
};

INSTANTIATE_TEST_SUITE_P(Devices, UploadedWeightsTest, ::testing::Bool(), EitherDeviceName);

TEST_P(UploadedWeightsTest, WhatRunsReadIsHeldOnce) {
  auto first = Load(PlanThatReadsTheWeight(), Weight(3, "W")).value();
  EXPECT_EQ(ledger_.weights(), far() ? 64 : 0);
  auto second = Load(PlanThatReadsTheWeight(), Weight(3, "W")).value();
  EXPECT_EQ(ledger_.weights(), far() ? 64 : 0);
  auto other = Load(PlanThatReadsTheWeight(), Weight(5, "V")).value();
  EXPECT_EQ(ledger_.weights(), far() ? 128 : 0);
  first.reset();
  EXPECT_EQ(ledger_.weights(), far() ? 128 : 0);
  ExpectRight(*second, 1.5f);
  ExpectRight(*other, 2.5f);
  second.reset();
  EXPECT_EQ(ledger_.weights(), far() ? 64 : 0);
  other.reset();
  EXPECT_EQ(ledger_.weights(), 0);
}

TEST_P(UploadedWeightsTest, NothingIsSharedWithoutAHash) {
  auto first = Load(PlanThatReadsTheWeight(), Weight(3, "")).value();
  auto second = Load(PlanThatReadsTheWeight(), Weight(5, "")).value();
  EXPECT_EQ(ledger_.weights(), far() ? 128 : 0);
  ExpectRight(*first, 1.5f);
  ExpectRight(*second, 2.5f);
}

TEST_P(UploadedWeightsTest, NorWithoutASharedPool) {
  for (const float w : {3.0f, 5.0f}) {
    auto executable = Executable::Load(PlanThatReadsTheWeight(), RowPlanObjects(), {Weight(w, "W")},
                                       device_.get(), {.ledger = &ledger_})
                          .value();
    EXPECT_EQ(ledger_.weights(), far() ? 64 : 0);
    ExpectRight(*executable, w / 2);
  }
  EXPECT_EQ(ledger_.weights(), 0);
}

TEST_P(UploadedWeightsTest, WhatOnlyPrepareReadsIsGivenBack) {
  auto first = Load(HashedPlan(), Weight(3, "W")).value();
  EXPECT_EQ(ledger_.most, far() ? 64 : 0);
  EXPECT_EQ(ledger_.weights(), 0);
  ExpectRight(*first, 3);
  // What it prepared is there, so the next load has no use for the weight.
  ledger_.limit = 0;
  auto second = Load(HashedPlan(), Weight(3, "W"));
  ASSERT_TRUE(second.ok()) << second.status();
  ExpectRight(**second, 3);
}

TEST_P(UploadedWeightsTest, TheCallersMemoryIsKeptWhereItIsRead) {
  ParameterView parameter = Weight(3, "W");
  const std::weak_ptr<const void> alive = parameter.owner;
  auto executable = Load(PlanThatReadsTheWeight(), parameter).value();
  parameter = {};
  EXPECT_EQ(alive.expired(), far());
  ExpectRight(*executable, 1.5f);
  executable.reset();
  EXPECT_TRUE(alive.expired());
}

TEST_P(UploadedWeightsTest, WhatDoesNotFitIsRefused) {
  auto held = Load(PlanThatReadsTheWeight(), Weight(3, "W")).value();
  // A second weight that runs read.
  v1::Plan plan = PlanThatReadsTheWeight();
  *plan.add_buffers() = plan.buffers(kParameter);
  plan.mutable_buffers(plan.buffers_size() - 1)->set_name("v");
  plan.mutable_run(1)->set_buffers(1, plan.buffers_size() - 1);
  ParameterView second = Weight(1, "V");
  second.name = "v";
  const std::vector<ParameterView> parameters = {Weight(3, "W"), second};
  const auto load = [&] {
    return Executable::Load(plan, RowPlanObjects(), parameters, device_.get(),
                            {.ledger = &ledger_, .pool = &pool_})
        .status();
  };
  ledger_.limit = 127;
  const absl::Status refused = load();
  EXPECT_EQ(refused.code(), far() ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kOk);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(far() ? "plan 'p-0' needs 128 bytes for weights on the device, 64 of them "
                                "new: held and limit"
                              : ""));
  EXPECT_EQ(ledger_.weights(), far() ? 64 : 0);
  ledger_.limit = 128;
  EXPECT_TRUE(load().ok());
}

// A weight of no bytes, and two names of one weight.
TEST_P(UploadedWeightsTest, EmptyAndEqualWeights) {
  v1::Plan plan = PlanThatReadsTheWeight();
  for (const char* name : {"empty", "same"}) {
    *plan.add_buffers() = plan.buffers(kParameter);
    v1::Buffer& buffer = *plan.mutable_buffers(plan.buffers_size() - 1);
    buffer.set_name(name);
    v1::PlanOutput* output = plan.add_outputs();
    output->set_name(name);
    output->set_buffer(plan.buffers_size() - 1);
    if (std::string(name) == "empty") buffer.mutable_bytes()->clear_terms();
  }
  ParameterView same = Weight(3, "W");
  same.name = "same";
  const std::vector<ParameterView> parameters = {Weight(3, "W"), {"empty", "", nullptr, "E"}, same};
  auto executable = Executable::Load(plan, RowPlanObjects(), parameters, device_.get(),
                                     {.ledger = &ledger_, .pool = &pool_})
                        .value();
  EXPECT_EQ(ledger_.weights(), far() ? 128 : 0);
  auto context = executable->NewContext().value();
  RowCall call(2);
  std::vector<float> copy(kWidth);
  const absl::string_view inputs[] = {RowCall::View(call.x), RowCall::View(call.idx)};
  const absl::Span<char> outputs[] = {
      RowCall::Span(call.y), RowCall::Span(call.g), {}, RowCall::Span(copy)};
  ASSERT_TRUE(executable->Run(context.get(), {2}, inputs, outputs, {}).ok());
  EXPECT_TRUE(call.Right(1.5f));
  EXPECT_EQ(copy, std::vector<float>(kWidth, 3.0f));
}

TEST(WeightKeyTest, SaysWhoseBytesTheyAre) {
  EXPECT_EQ(WeightKey(""), "");
  EXPECT_EQ(WeightKey("W"), WeightKey("W"));
  EXPECT_NE(WeightKey("W"), WeightKey("V"));
  EXPECT_EQ(WeightKey("W").size(), 32);
}

}  // namespace
}  // namespace athanor
