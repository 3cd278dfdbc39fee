// Helpers of the client's source files to make calls: deadlines, cancellation, retries.
#ifndef ATHANOR_CLIENTS_CPP_CLIENT_CLIENT_CALL_H_
#define ATHANOR_CLIENTS_CPP_CLIENT_CLIENT_CALL_H_

#include <algorithm>
#include <memory>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/cpp/client/client.h"
#include "clients/cpp/client/retry_after.h"
#include "grpcpp/grpcpp.h"
#include "proto/athanor/v1/cache.grpc.pb.h"
#include "proto/athanor/v1/compile.grpc.pb.h"
#include "proto/athanor/v1/generate.grpc.pb.h"
#include "proto/athanor/v1/model.grpc.pb.h"
#include "proto/inference/open_inference_grpc.grpc.pb.h"

namespace athanor::client {

// Stubs of the services, which share one connection.
struct Services {
  std::unique_ptr<v1::ModelService::Stub> models;
  std::unique_ptr<v1::CompileService::Stub> compile;
  std::unique_ptr<v1::CacheService::Stub> cache;
  std::unique_ptr<v1::GenerateService::Stub> generate;
  std::unique_ptr<inference::GRPCInferenceService::Stub> inference;
};

// Context of one call. Sets the deadline and the trace, and registers the call with its
// Cancellation while it runs.
class CallScope {
 public:
  explicit CallScope(const CallOptions& options) : cancellation_(options.cancellation) {
    if (options.timeout < absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
    }
    AddHeader("traceparent", options.traceparent);
    AddHeader("tracestate", options.tracestate);
    if (cancellation_ != nullptr) cancellation_->Add(&context_);
  }
  ~CallScope() {
    if (cancellation_ != nullptr) cancellation_->Remove(&context_);
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  void AddHeader(const char* key, const std::string& value) {
    // gRPC would end the program over other characters.
    if (!value.empty() && absl::c_all_of(value, absl::ascii_isprint)) {
      context_.AddMetadata(key, value);
    }
  }

  grpc::ClientContext context_;
  Cancellation* const cancellation_;
};

// Converts the status of a call that has ended, with its request id and when to come again
// (retry_after.h); gRPC and absl use the same codes.
inline absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context) {
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         status.error_message());
  if (converted.ok()) return converted;
  NoteRetryAfter(status.error_details(), &converted);
  const auto& trailing = context.GetServerTrailingMetadata();
  if (const auto id = trailing.find(kRequestIdKey); id != trailing.end()) {
    converted.SetPayload(kRequestIdKey,
                         absl::Cord(absl::string_view(id->second.data(), id->second.size())));
  }
  return converted;
}

// Makes a unary call. With `retry`, tries again while the server is unreachable, or says when to
// come again, and time is left.
template <typename Stub, typename Request, typename Reply>
absl::StatusOr<Reply> Call(Stub* stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Reply*),
                           const Request& request, const CallOptions& options, bool retry) {
  constexpr int kAttempts = 3;
  constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  const absl::Time end = absl::Now() + options.timeout;
  absl::Duration pause = kFirstPause;
  for (int attempt = 1;; ++attempt) {
    CallOptions left = options;
    left.timeout = end - absl::Now();
    Reply reply;
    absl::Status status;
    {
      CallScope scope(left);
      status = ToStatus((stub->*method)(scope.context(), request, &reply), *scope.context());
    }
    if (status.ok()) return reply;
    const absl::Duration asked = RetryAfter(status);
    const bool again = absl::IsUnavailable(status) || asked > absl::ZeroDuration();
    const absl::Duration wait = std::max(pause, asked);
    if (!retry || !again || attempt == kAttempts || absl::Now() + wait >= end) return status;
    if (options.cancellation == nullptr) {
      absl::SleepFor(wait);
    } else {
      options.cancellation->AwaitFor(wait);  // a call that is cancelled ends the next attempt
    }
    pause *= 2;
  }
}

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_CLIENT_CLIENT_CALL_H_
