// Tests buckets from upload to reply: which plan serves which sizes, and what GetModel reports.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

// A model y = relu(x), x f32 [b, s], b in 1..64, s in 1..16.
TestModel TwoDims() {
  Graph graph;
  graph.name = "two";
  graph.dims = {{"b", 1, 64}, {"s", 1, 16}};
  GraphBuilder builder(&graph);
  const NodeId x =
      builder.Input("x", {DType::kF32, {Expr::Symbol("b"), Expr::Symbol("s")}}).value();
  builder.Output("y", builder.Add(Op::kRelu, {x}).value());
  return ModelOf(graph, {});
}

using Spans = std::vector<std::pair<int64_t, int64_t>>;

void SetRanges(v1::DimBuckets* buckets, const std::string& dim, const Spans& spans) {
  buckets->set_dim(dim);
  for (const auto& [min, max] : spans) {
    auto* range = buckets->add_ranges();
    range->set_min(min);
    range->set_max(max);
  }
}

class BucketsTest : public ::testing::Test {
 protected:
  v1::UploadModelResponse Upload(const Spans& b, const Spans& s) {
    auto messages = UploadMessages("m", TwoDims());
    if (!b.empty()) SetRanges(messages[0].mutable_header()->add_buckets(), "b", b);
    if (!s.empty()) SetRanges(messages[0].mutable_header()->add_buckets(), "s", s);
    v1::UploadModelResponse reply;
    const grpc::Status status = test_.Send(messages, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  grpc::Status Call(int64_t b, int64_t s, std::string* bucket = nullptr,
                    std::string* plan_id = nullptr) {
    auto request = FloatRequest("m", std::vector<float>(b * s, -2));
    request.mutable_inputs(0)->clear_shape();
    request.mutable_inputs(0)->add_shape(b);
    request.mutable_inputs(0)->add_shape(s);
    inference::ModelInferResponse reply;
    grpc::Status status = test_.Infer(request, &reply);
    if (!status.ok()) return status;
    EXPECT_EQ(reply.raw_output_contents(0), std::string(b * s * sizeof(float), '\0'));
    if (bucket != nullptr) *bucket = reply.parameters().at("bucket").string_param();
    if (plan_id != nullptr) *plan_id = reply.parameters().at("plan_id").string_param();
    return status;
  }
  std::string BucketOf(int64_t b, int64_t s) {
    std::string bucket;
    const grpc::Status status = Call(b, s, &bucket);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return bucket;
  }

  grpc::Status StartCompile(const Spans& b, v1::CompileJob* job) {
    v1::StartCompileRequest request;
    request.set_model("m");
    if (!b.empty()) SetRanges(request.add_buckets(), "b", b);
    grpc::ClientContext context;
    return test_.compile->StartCompile(&context, request, job);
  }

  TestServer test_;
};

TEST_F(BucketsTest, EachSizeIsServedByItsBox) {
  const v1::CompileJob job =
      test_.WaitForJob(Upload({{1, 1}, {2, 64}}, {{1, 4}, {5, 16}}).compile_job_id());
  EXPECT_EQ(job.phase(), v1::CompileJob::DONE) << job.error();
  EXPECT_EQ(job.buckets_total(), 4);
  EXPECT_EQ(job.buckets_done(), 4);
  EXPECT_EQ(BucketOf(1, 4), "b=1..1 s=1..4");
  EXPECT_EQ(BucketOf(1, 5), "b=1..1 s=5..16");
  EXPECT_EQ(BucketOf(2, 1), "b=2..64 s=1..4");
  EXPECT_EQ(BucketOf(64, 16), "b=2..64 s=5..16");
  const v1::Model model = test_.Get("m");
  ASSERT_EQ(model.buckets_size(), 4);
  for (const v1::BucketState& state : model.buckets()) {
    EXPECT_EQ(state.bucket_size(), 2);
    EXPECT_NE(state.plan_id(), "");
    EXPECT_NE(state.plan_id(), model.plan_id());
    EXPECT_EQ(state.reason(), "");
  }
  EXPECT_EQ(model.buckets(1).bucket(1).min(), 5);
  // The plan of a box has details like any other plan.
  v1::GetPlanRequest asked;
  asked.set_name("m");
  asked.set_plan_id(model.buckets(0).plan_id());
  v1::PlanDetails details;
  grpc::ClientContext context;
  ASSERT_TRUE(test_.models->GetPlan(&context, asked, &details).ok());
  EXPECT_EQ(details.plan().dims(0).max(), 1);
}

TEST_F(BucketsTest, SizesInNoBoxDoNotExistAndOthersAreRefusedWithTheBounds) {
  test_.WaitForJob(Upload({{1, 1}, {2, 64}}, {}).compile_job_id());
  const grpc::Status b = Call(65, 3), s = Call(3, 17);
  EXPECT_EQ(b.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(b.error_message(), HasSubstr("\"b\""));
  EXPECT_THAT(b.error_message(), HasSubstr("[1, 64]"));
  EXPECT_EQ(s.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(s.error_message(), HasSubstr("\"s\""));
  EXPECT_THAT(s.error_message(), HasSubstr("[1, 16]"));
}

TEST_F(BucketsTest, TheFullRangeServesUntilTheBoxesAreThere) {
  test_.control->HoldCompiles();
  const v1::UploadModelResponse reply = Upload({{1, 1}, {2, 64}}, {});
  EXPECT_EQ(test_.Get("m").buckets(0).reason(), "not compiled yet");
  test_.control->ReleaseCompiles();
  std::string bucket;
  EXPECT_TRUE(Call(1, 1, &bucket).ok());
  test_.WaitForJob(reply.compile_job_id());
  EXPECT_EQ(BucketOf(1, 1), "b=1..1 s=1..16");
  EXPECT_EQ(test_.Get("m").buckets(0).reason(), "");
}

TEST_F(BucketsTest, StartCompileReplacesThemAndTheyAreStored) {
  test_.WaitForJob(Upload({{1, 1}, {2, 64}}, {}).compile_job_id());
  v1::CompileJob job;
  ASSERT_TRUE(StartCompile({{1, 8}, {9, 64}}, &job).ok());
  EXPECT_EQ(test_.WaitForJob(job.id()).phase(), v1::CompileJob::DONE);
  EXPECT_EQ(BucketOf(1, 1), "b=1..8 s=1..16");
  EXPECT_EQ(test_.Get("m").buckets_size(), 2);
  // A job without buckets leaves the buckets as they are.
  const std::string plan = test_.Get("m").buckets(0).plan_id();
  ASSERT_TRUE(StartCompile({}, &job).ok());
  test_.WaitForJob(job.id());
  EXPECT_EQ(test_.Get("m").buckets(0).plan_id(), plan);
  test_.Restart();
  while (test_.Get("m").buckets(1).plan_id().empty()) std::this_thread::yield();
  EXPECT_EQ(BucketOf(64, 1), "b=9..64 s=1..16");
  // A single range is the full range: no boxes are left.
  ASSERT_TRUE(StartCompile({{1, 64}}, &job).ok());
  test_.WaitForJob(job.id());
  EXPECT_EQ(test_.Get("m").buckets_size(), 0);
  EXPECT_EQ(BucketOf(64, 1), "b=1..64 s=1..16");
}

TEST_F(BucketsTest, WrongBucketsOfStartCompileAreRefused) {
  test_.WaitForJob(Upload({{1, 1}, {2, 64}}, {}).compile_job_id());
  v1::CompileJob job;
  const grpc::Status gap = StartCompile({{1, 8}, {10, 64}}, &job);
  EXPECT_EQ(gap.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(gap.error_message(), HasSubstr("buckets: dim \"b\": sizes [9, 9] are in no range"));
  EXPECT_EQ(BucketOf(1, 1), "b=1..1 s=1..16");
}

TEST_F(BucketsTest, APinnedVersionIsServedByThePlanItIsPinnedTo) {
  test_.WaitForJob(Upload({{1, 1}, {2, 64}}, {}).compile_job_id());
  const auto pin = [&](const std::string& plan_id) {
    v1::PinPlanRequest request;
    request.set_name("m");
    request.set_plan_id(plan_id);
    v1::Model model;
    grpc::ClientContext context;
    const grpc::Status status = test_.models->PinPlan(&context, request, &model);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return model;
  };
  const v1::Model pinned = pin(test_.Get("m").plan_id());
  EXPECT_EQ(BucketOf(1, 1), "b=1..64 s=1..16");
  EXPECT_EQ(pinned.buckets(0).plan_id(), "");
  EXPECT_EQ(pinned.buckets(0).reason(), "the version is pinned to a plan of the full range");
  EXPECT_EQ(pin("").buckets(0).reason(), "");
  EXPECT_EQ(BucketOf(1, 1), "b=1..1 s=1..16");
}

TEST_F(BucketsTest, TapsAreReadFromTheFullRange) {
  test_.WaitForJob(Upload({{1, 1}, {2, 64}}, {}).compile_job_id());
  auto request = FloatRequest("m", {1});
  request.mutable_inputs(0)->add_shape(1);
  (*request.mutable_parameters())["taps"].set_string_param("x");
  inference::ModelInferResponse reply;
  const grpc::Status status = test_.Infer(request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.parameters().at("bucket").string_param(), "b=1..64 s=1..16");
}

TEST(BucketLimitsTest, TooManyAreRefused) {
  ServerOptions options;
  options.max_buckets = 1;
  TestServer test(options);
  auto messages = UploadMessages("m", TwoDims());
  SetRanges(messages[0].mutable_header()->add_buckets(), "b", {{1, 1}, {2, 64}});
  const grpc::Status status = test.Send(messages);
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("header.buckets: ranges 2 of b make 2 buckets; at most 1 are taken "
                        "(--max_buckets)"));
}

}  // namespace
}  // namespace athanor
