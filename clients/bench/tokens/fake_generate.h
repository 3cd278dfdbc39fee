// An in-process GenerateService whose streams the test scripts.
//
//   FakeGenerate server;
//   server.service().end_after = 3;      // fewer tokens than asked for
//   server.address();                    // "127.0.0.1:40123"
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_FAKE_GENERATE_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_FAKE_GENERATE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "clients/bench/load/fake_host.h"
#include "deploy/bazel/libs/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/athanor/v1/generate.grpc.pb.h"

namespace athanor::bench {

// Sends as many tokens as were asked for, `chunk` at a time. Fields that are not atomic must be set
// before the first call.
class FakeTokens final : public v1::GenerateService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      MutexLock lock(mu_);
      requests_.push_back(*request);
    }
    ++calls;
    if (refuse) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many sequences"};
    const int64_t asked = request->max_tokens();
    const int64_t tokens = end_after >= 0 ? std::min<int64_t>(end_after, asked) : asked;
    for (int64_t sent = 0; sent < tokens;) {
      v1::GenerateResponse message;
      for (int i = 0; i < chunk && sent < tokens; ++i, ++sent) message.add_tokens(7);
      std::this_thread::sleep_for(std::chrono::microseconds(gap_us));
      if (!writer->Write(message)) return grpc::Status::CANCELLED;
    }
    while (stuck && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (fail_late) return {grpc::StatusCode::INTERNAL, "the plan failed"};
    if (no_finish) return grpc::Status::OK;
    v1::GenerateResponse last;
    last.set_text("held back");
    last.set_finish(v1::FINISH_LENGTH);
    last.mutable_usage()->set_prompt_tokens(request->tokens().ids_size());
    last.mutable_usage()->set_cached_tokens(1);
    last.mutable_usage()->set_generated_tokens(tokens + lie);
    last.mutable_usage()->set_plan_id("p-1");
    last.mutable_times()->set_started_us(250);
    writer->Write(last);
    return grpc::Status::OK;
  }

  grpc::Status GetEngine(grpc::ServerContext*, const v1::GetEngineRequest* request,
                         v1::EngineStatus* engine) override {
    if (request->model() != "llm") return {grpc::StatusCode::NOT_FOUND, "no such model"};
    engine->set_family("llama");
    engine->set_vocabulary(100);
    engine->set_max_model_len(64);
    engine->add_end_tokens(2);
    return grpc::Status::OK;
  }

  std::vector<v1::GenerateRequest> requests() {
    MutexLock lock(mu_);
    return requests_;
  }

  int chunk = 1, gap_us = 0;
  int64_t lie = 0;  // added to the usage's tokens
  std::atomic<int64_t> end_after = -1, calls = 0;
  std::atomic<bool> refuse = false, stuck = false, fail_late = false, no_finish = false;

 private:
  Mutex mu_;
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(mu_);
};

using FakeGenerate = FakeHost<FakeTokens>;

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_FAKE_GENERATE_H_
