// Kernels that are calls of a GPU's library: the device worker asks it for them.
#include "tests/tuner/gpu_calls.h"

#include <signal.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/plan.pb.h"
#include "tests/tuner/gpu_tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
using std::chrono::milliseconds;

class GpuCallsTest : public GpuTunerTest {
 protected:
  void SetUp() override {
    GpuTunerTest::SetUp();
    target_.set_blas("cuBLASLt 13.1.0");
    *request_.mutable_target() = target_;
  }
  absl::StatusOr<v1::LibraryObject> Compile(const std::string& text) {
    absl::StatusOr<std::string> bytes = tuner_->Compile(text, target_, /*library_call=*/true);
    if (!bytes.ok()) return bytes.status();
    v1::LibraryObject object;
    EXPECT_TRUE(object.ParseFromString(*bytes));
    return object;
  }
  // Adds a plan whose one step is the call, to be compared with the product of the graph.
  void AddCall(const std::string& text, int64_t workspace = 0) {
    Add(text);
    internal::SearchKernel& kernel =
        *request_.mutable_kernels(request_.kernels_size() - 1)->mutable_kernel();
    *kernel.mutable_check() = CallCheck(text, workspace);
    kernel.mutable_sizes(0)->set_values(0, 7);
  }
  internal::CheckRequest CallCheck(const std::string& text, int64_t workspace) const {
    internal::CheckRequest check;
    check.set_graph_text(kCallGraph);
    check.set_seed(7);
    for (const int64_t n : {1, 4, 5, 16}) check.add_sizes()->add_values(n);
    *check.mutable_plan() = CallPlan(text, workspace);
    *check.mutable_plan()->mutable_target() = target_;
    return check;
  }
};

TEST_F(GpuCallsTest, AnObjectHasAnAlgorithmForEachWay) {
  Start();
  std::vector<std::string> seen;
  for (const auto& [proposal, workspace] :
       std::vector<std::pair<int, int64_t>>{{0, 0}, {1, 0}, {0, 4 << 20}, {3, 4 << 20}}) {
    const auto object = Compile(CallText(proposal, workspace));
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->library(), "cuBLASLt 13.1.0");
    ASSERT_EQ(object->algorithms_size(), 2);
    for (const std::string& algorithm : object->algorithms()) EXPECT_EQ(algorithm.size(), 64u);
    EXPECT_THAT(seen, ::testing::Not(::testing::Contains(object->algorithms(0))));
    seen.push_back(object->algorithms(0));
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(GpuCallsTest, WhatTheLibraryOrTheVerifierRefuses) {
  options_.max_source_bytes = int64_t{64} << 20;
  Start();
  const std::string good = CallText(0);
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {GpuKernel(""), ""},
           {"kernel() grid 1\nb0: f32 out\nv0: f32 = const 0x0 (0)\nstore b0[0] = v0: f32\n",
            "the kernel is code"},
           {absl::StrReplaceAll(good, {{"ways 4 16", "ways 16 4"}}), "ascending"},
           {absl::StrReplaceAll(good, {{"columns 8", "columns 4294967296"}}), "columns"},
           {absl::StrCat(good, std::string(32 << 20, 'x')), ""},
           {absl::StrReplaceAll(good, {{"rows s0", std::string(1 << 20, '(')}}), ""}}) {
    const absl::Status status = Compile(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status << text.substr(0, 200);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {CallText(2), "cuBLASLt 13.1.0 proposes 2 ways to multiply 4 rows with 0 bytes"},
           {CallText(7, 32 << 20), "proposes 4 ways"}}) {
    const absl::Status status = Compile(text).status();
    EXPECT_EQ(status.code(), Code::kOutOfRange) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
  EXPECT_TRUE(Compile(good).ok());
  EXPECT_EQ(tuner_->starts(), 1);
}

// Neither says anything of the kernel.
TEST_F(GpuCallsTest, AnotherLibraryThanTheServersOrNone) {
  const v1::LibraryObject old = [&] {
    Start();
    return Compile(CallText(0)).value();
  }();
  UseCublaslt("newer");
  Start();
  const absl::Status other = Compile(CallText(0)).status();
  EXPECT_EQ(other.code(), Code::kFailedPrecondition) << other;
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("calls cuBLASLt 13.1.0, and the device worker has cuBLASLt 13.2.0"));
  target_.set_blas("cuBLASLt 13.2.0");
  const auto updated = Compile(CallText(0));
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->library(), "cuBLASLt 13.2.0");
  EXPECT_NE(updated->algorithms(0), old.algorithms(0));
  UseCublaslt("nowhere");
  Start();
  const absl::Status none = Compile(CallText(0)).status();
  EXPECT_EQ(none.code(), Code::kFailedPrecondition) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("this machine has no cuBLASLt"));
  // Kernels of code are checked as ever.
  const absl::Status right = tuner_->Check(CheckOf(GpuKernel("")));
  EXPECT_TRUE(right.ok()) << right;
  target_.clear_blas();
  EXPECT_EQ(Compile(CallText(0)).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(GpuCallsTest, ALibraryThatHangsCostsTheWorker) {
  UseCublaslt("hanging");
  options_.check_timeout = milliseconds(6000);
  Start();
  const absl::Status late = Compile(CallText(0)).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late;
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("a library's proposal still ran after 1000 ms"));
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  EXPECT_TRUE(tuner_->Check(good).ok());
  // A kill says nothing of the kernel; the keeper's costs the tuner, too.
  const pid_t keeper = tuner_->worker_pid();
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(300));
    kill(keeper, SIGKILL);
  });
  const absl::Status killed = Compile(CallText(0)).status();
  killer.join();
  EXPECT_EQ(killed.code(), Code::kUnavailable) << killed;
  EXPECT_TRUE(tuner_->Check(good).ok());
  EXPECT_EQ(tuner_->starts(), 2);
}

TEST_F(GpuCallsTest, CallsAreMeasuredAndChecked) {
  Start();
  AddCall(CallText(0));
  AddCall(CallText(0, 4 << 20), 4 << 20);  // in two parts, which meet in the workspace
  AddCall(CallText(1));
  for (const internal::TryOutcome& end : Try()) {
    EXPECT_EQ(end.code(), 0) << end.message();
    EXPECT_TRUE(end.checked());
    EXPECT_EQ(end.times_size(), 1);
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

// An object of another version is no verdict about the call: it is made anew.
TEST_F(GpuCallsTest, AnObjectOfAnotherVersionIsNotRun) {
  Start();
  internal::CheckRequest check = CallCheck(CallText(0), 0);
  const auto add_object = [&] {
    check.clear_objects();
    check.add_objects(tuner_->Compile(CallText(0), target_, /*library_call=*/true).value());
  };
  add_object();
  const absl::Status right = tuner_->Check(check);
  EXPECT_TRUE(right.ok()) << right;
  UseCublaslt("newer");
  Start();
  const absl::Status old = tuner_->Check(check);
  EXPECT_EQ(old.code(), Code::kFailedPrecondition) << old;
  target_.set_blas("cuBLASLt 13.2.0");
  add_object();
  const absl::Status updated = tuner_->Check(check);
  EXPECT_TRUE(updated.ok()) << updated;
}

TEST_F(GpuCallsTest, ASearchLosesCallsAndKeepsTheRest) {
  Start();
  AddCall(CallText(2));                      // there are two
  Add(GpuKernel(""));                        // of code, and right
  AddCall(CallText(1, 32 << 20), 32 << 20);  // needs none of the workspace
  Add(GpuKernel("// no C", "no"));           // of code, and wrong
  const std::vector<internal::TryOutcome> ends = Try();
  const auto code = [&](int i) { return static_cast<Code>(ends[i].code()); };
  EXPECT_EQ(code(0), Code::kOutOfRange) << ends[0].message();
  EXPECT_EQ(ends[0].failed_at(), internal::TryOutcome::COMPILE);
  EXPECT_EQ(code(1), Code::kOk) << ends[1].message();
  EXPECT_TRUE(ends[1].checked());
  EXPECT_EQ(code(2), Code::kResourceExhausted) << ends[2].message();
  EXPECT_EQ(ends[2].failed_at(), internal::TryOutcome::COMPILE);
  EXPECT_EQ(code(3), Code::kInvalidArgument) << ends[3].message();
  EXPECT_EQ(tuner_->starts(), 1);
}

}  // namespace
}  // namespace athanor
