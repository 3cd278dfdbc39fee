// Tests that scratch states hold logical contents where kernels expect them.
#include "server/tuner/run/scratch_states.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/state_layout.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 2, kDepth = 3;

// A plan without steps, with a state of 16 n slots.
v1::Plan PlanOf(absl::string_view layout) {
  v1::Plan plan;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("format: 5 plan_id: 'p-1' dims { name: 'n' min: 0 max: 8 } "
                   "buffers { kind: STATE name: 's' layout: '",
                   layout,
                   "' dtype: 'f32' bytes { terms { coefficient: 384 factors { symbol: 'n' } } } "
                   "shape { terms { coefficient: 16 factors { symbol: 'n' } } } "
                   "shape { terms { coefficient: 2 } } shape { terms { coefficient: 3 } } }"),
      &plan));
  return plan;
}

std::string Counted(int64_t elements) {
  std::string bytes;
  for (int64_t i = 0; i < elements; ++i) {
    const auto value = static_cast<float>(i + 1);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

class ScratchStatesTest : public ::testing::TestWithParam<bool> {
 protected:
  EitherDevice<FunctionDevice> device_{FunctionDevice::Make(/*threads=*/1), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Devices, ScratchStatesTest, ::testing::Bool(), EitherDeviceName);

TEST_P(ScratchStatesTest, HoldsElementsWhereTheLayoutSays) {
  for (const std::string layout : {"keys16", "values16", ""}) {
    auto states = ScratchStates::Create(PlanOf(layout), {{1}, {3}}, device_.get()).value();
    ASSERT_NE(states->memory(), nullptr);
    EXPECT_EQ(states->memory()->slots(), 48);
    EXPECT_EQ(states->memory()->specs()[0].layout, layout);
    const int64_t elements = 48 * kHeads * kDepth;
    const std::string logical = Counted(elements);
    ASSERT_EQ(states->Fill("s", {3}, logical), absl::OkStatus());
    if (!GetParam()) {
      for (int64_t i = 0; i < elements; ++i) {
        float value = 0;
        const int64_t place = StatePlace(layout, {48, kHeads, kDepth}, i);
        std::memcpy(&value, states->memory()->data(0) + place * 4, sizeof(value));
        ASSERT_EQ(value, static_cast<float>(i + 1)) << layout << " element " << i;
      }
    }
    std::string read(logical.size(), '?');
    ASSERT_EQ(states->Read("s", {3}, absl::MakeSpan(read)), absl::OkStatus());
    EXPECT_EQ(read, logical);
    // Smaller sizes are the first slots.
    read.resize(16 * kHeads * kDepth * 4);
    ASSERT_EQ(states->Read("s", {1}, absl::MakeSpan(read)), absl::OkStatus());
    EXPECT_EQ(read, logical.substr(0, read.size()));
    std::string none;
    EXPECT_EQ(states->Read("s", {0}, absl::MakeSpan(none)), absl::OkStatus());
  }
}

TEST_P(ScratchStatesTest, BeginsWithZerosAndTakesAnyBytes) {
  auto states = ScratchStates::Create(PlanOf("keys16"), {{2}}, device_.get()).value();
  std::string read(32 * kHeads * kDepth * 4, '?');
  ASSERT_EQ(states->Read("s", {2}, absl::MakeSpan(read)), absl::OkStatus());
  EXPECT_EQ(read, std::string(read.size(), '\0'));
  ASSERT_EQ(states->FillAny([](absl::string_view) { return absl::string_view("ab"); }),
            absl::OkStatus());
  ASSERT_EQ(states->Read("s", {2}, absl::MakeSpan(read)), absl::OkStatus());
  EXPECT_EQ(std::count(read.begin(), read.end(), 'a'), static_cast<int64_t>(read.size()) / 2);
}

TEST_P(ScratchStatesTest, RefusesWhatDoesNotFit) {
  auto states = ScratchStates::Create(PlanOf("keys16"), {{2}}, device_.get()).value();
  EXPECT_EQ(states->Fill("t", {2}, "").code(), absl::StatusCode::kNotFound);
  const absl::Status few = states->Fill("s", {2}, "1234");
  EXPECT_EQ(few.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(few.message()), HasSubstr("state \"s\" has 768 bytes"));
  // More slots than there is memory for, sizes outside the plan's, and no state at all.
  EXPECT_EQ(states->Fill("s", {3}, std::string(3 * 384, 'a')).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScratchStates::Create(PlanOf(""), {{9}}, device_.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::Plan plan = PlanOf("keys16");
  plan.mutable_dims(0)->set_max(int64_t{1} << 24);
  const absl::Status many =
      ScratchStates::Create(plan, {{2}, {int64_t{1} << 24}}, device_.get()).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(many.message()), HasSubstr("268435456 slots of 24 bytes of plan 'p-1'"));
  plan = PlanOf("");
  plan.clear_buffers();
  plan.set_format(1);
  EXPECT_EQ(ScratchStates::Create(plan, {{2}}, device_.get()).value()->memory(), nullptr);
}

}  // namespace
}  // namespace athanor
