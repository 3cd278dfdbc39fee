#include "server/tracing/otlp_sender.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "deploy/bazel/libs/mutex.h"
#include "proto/google/rpc/retry_details.pb.h"
#include "proto/opentelemetry/trace_service.grpc.pb.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
using opentelemetry::proto::collector::trace::v1::TraceService;

// So that a collector that comes back is found soon; gRPC's own limit is two minutes.
constexpr int kFirstReconnectMs = 200, kLongestReconnectMs = 5'000;

std::shared_ptr<grpc::Channel> Connect(const CollectorAddress& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetUserAgentPrefix("athanord");
  return grpc::CreateCustomChannel(
      address.target, address.tls ? grpc::SslCredentials({}) : grpc::InsecureChannelCredentials(),
      arguments);
}

// Converts a refusal, with when the collector wants to be asked again. gRPC and absl use the same
// codes.
absl::Status ToStatus(const grpc::Status& refused) {
  absl::Status status(static_cast<absl::StatusCode>(refused.error_code()), refused.error_message());
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  if (!details.ParseFromString(refused.error_details())) return status;
  for (const auto& any : details.details()) {
    if (!any.Is<google::rpc::RetryInfo>() || !any.UnpackTo(&retry)) continue;
    constexpr int64_t kMostSeconds = 3600;  // of which WithRetryAfter takes less
    const int64_t seconds = std::clamp<int64_t>(retry.retry_delay().seconds(), 0, kMostSeconds);
    return WithRetryAfter(
        std::move(status),
        std::chrono::seconds(seconds) + std::chrono::nanoseconds(retry.retry_delay().nanos()));
  }
  return status;
}

class OtlpSender final : public SpanSender {
 public:
  explicit OtlpSender(const CollectorAddress& address)
      : stub_(TraceService::NewStub(Connect(address))) {}

  absl::StatusOr<int64_t> Send(const Request& request, std::chrono::milliseconds timeout) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    {
      MutexLock lock(mu_);
      if (cancelled_) return absl::CancelledError("the server stops");
      context_ = &context;
    }
    ExportTraceServiceResponse response;
    const grpc::Status status = stub_->Export(&context, request, &response);
    {
      MutexLock lock(mu_);
      context_ = nullptr;
    }
    if (status.ok()) return response.partial_success().rejected_spans();
    return ToStatus(status);
  }

  void Cancel() override {
    MutexLock lock(mu_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  const std::unique_ptr<TraceService::Stub> stub_;
  Mutex mu_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the Send under way
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

std::unique_ptr<SpanSender> MakeOtlpSender(const CollectorAddress& address) {
  return std::make_unique<OtlpSender>(address);
}

}  // namespace athanor
