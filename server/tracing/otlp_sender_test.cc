// Tests what is made of a collector's answers, by one within the test.
#include "server/tracing/otlp_sender.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "proto/google/rpc/retry_details.pb.h"
#include "proto/opentelemetry/trace_service.grpc.pb.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
using opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
using opentelemetry::proto::collector::trace::v1::TraceService;
using std::chrono::milliseconds;

class Collector final : public TraceService::Service {
 public:
  grpc::Status Export(grpc::ServerContext*, const ExportTraceServiceRequest*,
                      ExportTraceServiceResponse* response) override {
    response->mutable_partial_success()->set_rejected_spans(2);
    return answer;
  }
  grpc::Status answer;
};

class OtlpSenderTest : public testing::Test {
 protected:
  OtlpSenderTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&collector_);
    server_ = builder.BuildAndStart();
    sender_ = MakeOtlpSender({.target = "127.0.0.1:" + std::to_string(port)});
  }
  ~OtlpSenderTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  absl::StatusOr<int64_t> Send() { return sender_->Send({}, std::chrono::minutes(1)); }
  // Answers as a full collector does that wants to be asked again in so many milliseconds.
  absl::Status Full(int64_t retry_ms) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_ms / 1'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(retry_ms % 1'000 * 1'000'000));
    google::rpc::Status details;
    details.add_details()->PackFrom(google::rpc::Status());
    details.add_details()->PackFrom(retry);
    collector_.answer = {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details.SerializeAsString()};
    return Send().status();
  }

  Collector collector_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<SpanSender> sender_;
};

TEST_F(OtlpSenderTest, TellsHowManySpansWereRefused) { EXPECT_EQ(Send().value(), 2); }

TEST_F(OtlpSenderTest, ARefusalSaysWhenToComeAgain) {
  const absl::Status full = Full(1'250);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "full");
  EXPECT_EQ(RetryAfter(full), milliseconds(1'250));
  EXPECT_EQ(RetryAfter(Full(INT64_MAX)), milliseconds(60'000)) << "no wait is endless";
  EXPECT_EQ(RetryAfter(Full(INT64_MIN)), kUnmeasuredRetry);
}

TEST_F(OtlpSenderTest, OtherRefusalsDoNot) {
  for (const std::string details : {"", "\xff\xff"}) {
    collector_.answer = {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details};
    const absl::Status full = Send().status();
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(RetryAfter(full), milliseconds(0));
  }
}

TEST_F(OtlpSenderTest, CancelEndsIt) {
  sender_->Cancel();
  EXPECT_EQ(Send().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace athanor
