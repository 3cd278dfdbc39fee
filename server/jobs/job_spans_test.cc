#include "server/jobs/job_spans.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tracing/tracer_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using Job = v1::CompileJob;

class JobSpansTest : public testing::Test {
 protected:
  JobSpansTest() {
    auto sender = std::make_unique<FakeSender>();
    collector_ = sender->collector();
    tracer_ = std::make_unique<Tracer>(1'000'000, Quick(), std::move(sender),
                                       opentelemetry::proto::resource::v1::Resource(), &metrics_);
    job_.set_id("job-1");
    job_.set_model("m");
    job_.set_version("2");
    job_.set_phase(Job::QUEUED);
  }
  void Enter(Job::Phase phase, JobSpans* spans) {
    job_.set_phase(phase);
    spans->Note(job_);
  }

  MetricCells metrics_{MetricScope::kServer};
  std::shared_ptr<FakeCollector> collector_;
  std::unique_ptr<Tracer> tracer_;
  Job job_;
};

TEST_F(JobSpansTest, EachPhaseIsASpan) {
  JobSpans spans(tracer_->BeginOwn("compile m", std::chrono::steady_clock::now()));
  Enter(Job::QUEUED, &spans);
  Enter(Job::LOWERING, &spans);
  Enter(Job::COMPILING_KERNELS, &spans);
  Enter(Job::COMPILING_KERNELS, &spans);  // progress within it
  Enter(Job::SEARCHING, &spans);
  job_.mutable_search()->set_plans_taken(3);
  job_.set_kernels_total(5);
  job_.set_stop_reason(Job::STOP_BUDGET);
  Enter(Job::DONE, &spans);
  Enter(Job::DONE, &spans);
  const std::vector<OtlpSpan> sent = collector_->AwaitSpans(5);
  std::vector<std::string> names;
  for (const OtlpSpan& span : sent) names.push_back(span.name());
  EXPECT_THAT(names,
              ElementsAre("queued", "lowering", "compiling kernels", "searching", "compile m"));
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(sent[i].start_time_unix_nano(), sent[i - 1].end_time_unix_nano());
  }
  const OtlpSpan& own = sent[4];
  EXPECT_EQ(own.end_time_unix_nano(), sent[3].end_time_unix_nano());
  EXPECT_EQ(AttributeOf(sent[3], "athanor.search.plans_taken"), "3");
  EXPECT_EQ(AttributeOf(own, "athanor.job.id"), "job-1");
  EXPECT_EQ(AttributeOf(own, "athanor.job.stop_reason"), "stop_budget");
  EXPECT_EQ(AttributeOf(own, "athanor.kernels.total"), "5");
  EXPECT_EQ(own.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_UNSET);
}

TEST_F(JobSpansTest, AFailureSaysWhy) {
  JobSpans spans(tracer_->BeginOwn("compile m", std::chrono::steady_clock::now()));
  job_.set_error_code(static_cast<int>(absl::StatusCode::kUnimplemented));
  job_.set_error("no such op");
  Enter(Job::FAILED, &spans);
  const OtlpSpan own = collector_->AwaitSpans(2)[1];
  EXPECT_EQ(own.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(own.status().message(), "no such op");
  EXPECT_EQ(AttributeOf(own, "error.type"), "UNIMPLEMENTED");
}

TEST_F(JobSpansTest, AJobThatIsNotRecordedHasNone) {
  JobSpans spans(nullptr);
  Enter(Job::LOWERING, &spans);
  Enter(Job::DONE, &spans);
}

}  // namespace
}  // namespace athanor
