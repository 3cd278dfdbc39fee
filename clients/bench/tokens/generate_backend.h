// Calls that generate tokens, over gRPC (athanor.v1.GenerateService).
//
//   absl::StatusOr<v1::EngineStatus> engine = GetEngine(target, "smollm2", "", timeout);
//   std::unique_ptr<Backend> backend = MakeGenerateBackend(target, {"smollm2"}, prompts);
//
// A message of the stream that has tokens is a chunk.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_GENERATE_BACKEND_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_GENERATE_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/bench/load/call.h"
#include "clients/bench/load/infer_backend.h"
#include "clients/bench/tokens/prompts.h"
#include "proto/athanor/v1/generate.pb.h"

namespace athanor::bench {

// Settings of generating, alike for each call and each protocol.
struct GenerateOptions {
  std::string model, version;
  bool ignore_eos = true;  // a sequence has all tokens asked for
  double temperature = 0;
};

absl::StatusOr<v1::EngineStatus> GetEngine(const GrpcTarget& target, const std::string& model,
                                           const std::string& version, absl::Duration timeout);

std::unique_ptr<Backend> MakeGenerateBackend(const GrpcTarget& target,
                                             const GenerateOptions& options,
                                             const PromptOptions& prompts);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_GENERATE_BACKEND_H_
