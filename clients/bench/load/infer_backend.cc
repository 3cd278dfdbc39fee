#include "clients/bench/load/infer_backend.h"

#include <utility>

#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

int64_t Microseconds(const inference::ModelInferResponse& response, const char* key) {
  const auto found = response.parameters().find(key);
  return found == response.parameters().end() ? -1 : found->second.int64_param();
}

struct Shared {
  std::vector<inference::ModelInferRequest> messages;
  std::vector<std::unique_ptr<client::Client>> clients;  // a client per connection
};

class InferCall final : public Call {
 public:
  explicit InferCall(const Shared& shared) : shared_(shared) {}

  void Prepare(uint64_t, int64_t number) override {
    number_ = number;
    response_.Clear();
  }

  void Begin(absl::Duration timeout, std::function<void(absl::Status)> done) override {
    client::CallOptions options;
    options.timeout = timeout;
    const auto& [messages, clients] = shared_;
    clients[number_ % clients.size()]->InferAsync(messages[number_ % messages.size()], &response_,
                                                  options, std::move(done));
  }

  void Tell(Clock::time_point, CallRecord* record, std::string* plan_id) override {
    record->queue_us = Microseconds(response_, "queue_us");
    record->batch_us = Microseconds(response_, "batch_us");
    record->exec_us = Microseconds(response_, "exec_us");
    const auto plan = response_.parameters().find("plan_id");
    plan_id->assign(plan == response_.parameters().end() ? "" : plan->second.string_param());
  }

 private:
  const Shared& shared_;
  int64_t number_ = 0;
  inference::ModelInferResponse response_;
};

class InferBackend final : public Backend {
 public:
  explicit InferBackend(Shared shared) : shared_(std::move(shared)) {}
  std::unique_ptr<Call> NewCall() override { return std::make_unique<InferCall>(shared_); }

 private:
  const Shared shared_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeInferBackend(
    const GrpcTarget& target, const std::vector<client::InferRequest>& requests) {
  Shared shared;
  for (const client::InferRequest& request : requests) {
    ASSIGN_OR_RETURN(inference::ModelInferRequest message, client::MakeInferRequest(request));
    shared.messages.push_back(std::move(message));
  }
  client::ClientOptions options = target.client;
  options.own_connection = true;
  for (int i = 0; i < target.connections; ++i) {
    shared.clients.push_back(std::make_unique<client::Client>(target.address, options));
  }
  return std::make_unique<InferBackend>(std::move(shared));
}

}  // namespace athanor::bench
