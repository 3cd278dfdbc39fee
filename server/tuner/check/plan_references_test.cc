// Checks of plans that a device worker is said to run: how their references end, and where they
// lie.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner/check/plan_check.h"
#include "server/tuner/check/plan_runs.h"
#include "server/tuner/check/plan_subjects.h"
#include "server/tuner/run/device_worker_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr uint64_t kSeed = 5;

// y = x + x
Graph Doubling() {
  Graph graph;
  graph.name = "double";
  graph.dims = {{"n", 1, 1000}};
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
  builder.Output("y", builder.Add(Op::kAdd, {x, x}).value());
  return graph;
}

class PlanReferencesTest : public ::testing::Test {
 protected:
  PlanReferencesTest() {
    const Graph graph = Doubling();
    request_.set_graph_text(ToText(graph));
    request_.set_seed(kSeed);
    request_.set_threads(1);
    std::vector<Expr::Env> sizes;
    for (const int64_t n : {1, 7, 100}) {
      request_.add_sizes()->add_values(n);
      sizes.push_back({{"n", n}});
    }
    for (const auto& [plan, id] : {std::pair(request_.mutable_candidate(), "candidate"),
                                   std::pair(request_.mutable_baseline(), "baseline"),
                                   std::pair(request_.mutable_exact(), "exact")}) {
      plan->mutable_plan()->set_plan_id(id);
      plan->mutable_plan()->add_dims()->set_name("n");
    }
    runs_.emplace(PlanRuns::Create(graph, sizes, kSeed).value());
  }

  // Writes what a right plan gives.
  void Compute(const internal::PlanJob& job) {
    for (const internal::PlanJob::Subject& subject : job.subjects()) {
      const SharedMemory marks = FakeWorker::Memory(subject.marks());
      for (int r = 0; r < job.planned_size(); ++r) {
        if (!job.planned(r) || (job.made_size() > 0 && !job.made(r))) continue;
        reinterpret_cast<PlanMark*>(marks.data())[r] = {.ran = true};
        const absl::string_view x = runs_->runs()[r].inputs[0];
        const GuardedBytes y = FakeWorker::Bytes(subject.runs(r).outputs(0));
        const bool wide = subject.plan().plan().plan_id() == "exact";
        for (size_t i = 0; i < x.size() / sizeof(float); ++i) {
          float value = 0;
          std::memcpy(&value, x.data() + i * sizeof(float), sizeof(float));
          const float narrow = value + value;
          const double exact = double{value} + double{value};
          std::memcpy(y.data() + i * (wide ? 8 : 4), wide ? (const void*)&exact : &narrow,
                      wide ? 8 : 4);
        }
      }
    }
  }
  static void Zero(const internal::PlanJob::Subject& subject) {
    for (const internal::PlanJob::Outputs& run : subject.runs()) {
      for (const internal::SharedBytes& output : run.outputs()) {
        const GuardedBytes bytes = FakeWorker::Bytes(output);
        std::memset(bytes.data(), 0, bytes.bytes());
      }
    }
  }

  static bool IsZero(const internal::PlanJob::Subject& subject) {
    for (const internal::PlanJob::Outputs& run : subject.runs()) {
      for (const internal::SharedBytes& output : run.outputs()) {
        const GuardedBytes bytes = FakeWorker::Bytes(output);
        if (bytes.view() != std::string(bytes.bytes(), '\0')) return false;
      }
    }
    return true;
  }

  // Checks, with a worker that computes, unless `fail` answers the job of these names itself.
  using Fail = std::function<bool(const internal::WorkerJob& job, internal::WorkerReply* reply)>;
  absl::StatusOr<internal::PlanCheckReply> Check(const Fail& fail) {
    jobs_.clear();
    FakeWorker worker([&](const internal::WorkerJob& job, internal::WorkerReply* reply) {
      jobs_.push_back(job);
      if (!fail(job, reply)) Compute(job.plan());
    });
    return CheckPlan(request_, worker.limits());
  }
  // Fails the job of this name.
  static Fail FailAt(const std::string& what, Code code, bool short_of_memory = false) {
    return [=](const internal::WorkerJob& job, internal::WorkerReply* reply) {
      if (job.what() != what) return false;
      reply->set_code(static_cast<int>(code));
      reply->set_message(absl::StrCat(what, " failed"));
      reply->set_short_of_memory(short_of_memory);
      return true;
    };
  }

  internal::PlanCheckRequest request_;
  std::optional<PlanRuns> runs_;
  std::vector<internal::WorkerJob> jobs_;
};

bool Nothing(const internal::WorkerJob&, internal::WorkerReply*) { return false; }

TEST_F(PlanReferencesTest, ARightPlanPasses) {
  const auto reply = Check(Nothing);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->compared_with(), "f64 plan");
  EXPECT_EQ(jobs_.size(), 2u);
}

// A second try finds the evidence that a killed process did not give.
TEST_F(PlanReferencesTest, AKillWhileReferencesRunIsNoVerdict) {
  const auto twin = Check(FailAt("the plan in f64", Code::kUnavailable));
  EXPECT_EQ(twin.status(), absl::UnavailableError("the plan in f64 failed"));
  EXPECT_EQ(jobs_.size(), 1u);
  request_.clear_exact();
  request_.set_no_exact("none was made");
  const auto baseline = Check(FailAt("the baseline", Code::kUnavailable));
  EXPECT_EQ(baseline.status(), absl::UnavailableError("the baseline failed"));
  EXPECT_EQ(jobs_.size(), 1u);
  const auto candidate = Check(FailAt("the plan", Code::kUnavailable));
  EXPECT_EQ(candidate.status(), absl::UnavailableError("the plan failed"));
}

TEST_F(PlanReferencesTest, ATwinThatFailsItselfLeavesWeakerEvidence) {
  for (const Code code : {Code::kResourceExhausted, Code::kDeadlineExceeded, Code::kInternal}) {
    const auto reply = Check(FailAt("the plan in f64", code));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->compared_with(), "f64 samples");
    ASSERT_EQ(jobs_.size(), 3u);
  }
  const auto none = Check([&](const internal::WorkerJob& job, internal::WorkerReply* reply) {
    return FailAt("the plan in f64", Code::kInternal)(job, reply) ||
           FailAt("the baseline", Code::kInternal)(job, reply);
  });
  EXPECT_EQ(none.status().code(), Code::kFailedPrecondition) << none.status();
}

// A twin takes more memory than the plans that a server holds; the next try finds no more.
TEST_F(PlanReferencesTest, MemoryThatOthersHoldLeavesWeakerEvidenceForATwinAlone) {
  const auto twin = Check(FailAt("the plan in f64", Code::kUnavailable, /*short_of_memory=*/true));
  ASSERT_TRUE(twin.ok()) << twin.status();
  EXPECT_EQ(twin->compared_with(), "f64 samples");
  EXPECT_THAT(twin->left_out(0), HasSubstr("the plan in f64 failed"));
  request_.clear_exact();
  for (const char* what : {"the baseline", "the plan"}) {
    const auto other = Check(FailAt(what, Code::kUnavailable, /*short_of_memory=*/true));
    EXPECT_EQ(other.status().code(), Code::kUnavailable) << other.status();
  }
}

// Baseline and memory are what they were: a second set would be held beside the first.
TEST_F(PlanReferencesTest, ABaselineThatRunsAgainHasTheSameMemory) {
  ASSERT_TRUE(Check(FailAt("the plan in f64", Code::kInternal)).ok());
  ASSERT_EQ(jobs_.size(), 3u);
  const internal::PlanJob &first = jobs_[0].plan(), &again = jobs_[1].plan();
  ASSERT_EQ(first.subjects(0).plan().plan().plan_id(), "baseline");
  ASSERT_EQ(again.subjects(0).plan().plan().plan_id(), "baseline");
  int same = 0;
  for (int r = 0; r < first.planned_size(); ++r) {
    if (!first.planned(r) || !again.planned(r)) continue;
    EXPECT_EQ(first.subjects(0).runs(r).outputs(0).offset(),
              again.subjects(0).runs(r).outputs(0).offset());
    ++same;
  }
  EXPECT_GT(same, 3);
}

// The code of a kernel may reach all memory that its process shares with the tuner.
TEST_F(PlanReferencesTest, ACandidateThatWritesOverTheReferencesIsFound) {
  const auto forged = [&](const internal::WorkerJob& job, internal::WorkerReply*) {
    if (job.what() != "the plan") return false;
    Compute(job.plan());
    Zero(job.plan().subjects(0));
    for (size_t before = 0; before + 1 < jobs_.size(); ++before) {
      for (const auto& subject : jobs_[before].plan().subjects()) {
        EXPECT_TRUE(IsZero(subject)) << "they are there to be read";
        Zero(subject);
      }
    }
    return true;
  };
  const auto twin = Check(forged);
  EXPECT_EQ(twin.status().code(), Code::kDataLoss) << twin.status();
  request_.clear_exact();
  const auto baseline = Check(forged);
  EXPECT_EQ(baseline.status().code(), Code::kDataLoss) << baseline.status();
}

}  // namespace
}  // namespace athanor
