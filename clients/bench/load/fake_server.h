// An in-process inference server whose behaviour the test chooses.
//
//   FakeServer server;
//   server.service().delay = absl::Milliseconds(2);
//   server.address();   // "127.0.0.1:40123"
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_FAKE_SERVER_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_FAKE_SERVER_H_

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/bench/load/fake_host.h"
#include "clients/bench/load/load.h"
#include "grpcpp/grpcpp.h"
#include "proto/inference/open_inference_grpc.grpc.pb.h"

namespace athanor::bench {

// Fields that are not atomic must be set before the first call.
class FakeInference final : public inference::GRPCInferenceService::Service {
 public:
  grpc::Status ModelInfer(grpc::ServerContext* context, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override {
    const int64_t number = ++calls;
    const int now = ++running;
    int most = most_running;
    while (now > most && !most_running.compare_exchange_weak(most, now)) {
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(delay_us);
    while ((std::chrono::steady_clock::now() < end || stuck) && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    --running;
    if (fail || number == fail_call) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"};
    }
    auto& parameters = *response->mutable_parameters();
    for (const auto& [key, value] : times_us) parameters[key].set_int64_param(value);
    if (!plan_id.empty()) parameters["plan_id"].set_string_param(plan_id);
    return grpc::Status::OK;
  }

  std::map<std::string, int64_t> times_us = {{"queue_us", 20}, {"exec_us", 100}};
  std::string plan_id = "p-1";
  std::atomic<int64_t> delay_us = 0;
  std::atomic<bool> fail = false, stuck = false;
  std::atomic<int64_t> fail_call = 0;  // fails only this call, counted from 1
  std::atomic<int64_t> calls = 0;
  std::atomic<int> running = 0, most_running = 0;
};

using FakeServer = FakeHost<FakeInference>;

// Makes a load of small requests to the server: one closed-loop caller for 0.2 s.
inline LoadOptions LoadOf(const FakeServer& server) {
  LoadOptions options;
  options.address = server.address();
  options.model = "m";
  client::InferRequest request{"m"};
  request.inputs["x"] = client::Tensor{"f32", {2}, std::string(8, '\0')};
  options.requests = {request};
  options.phases = {{.seconds = 0.2}};
  return options;
}

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_FAKE_SERVER_H_
