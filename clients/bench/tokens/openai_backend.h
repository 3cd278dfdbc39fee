// Calls that generate tokens, by OpenAI's protocol: POST /v1/completions and
// /v1/chat/completions, streamed as server-sent events. For llama-server, vLLM and others.
//
//   OpenAiTarget target{"127.0.0.1:8080"};
//   absl::StatusOr<OpenAiModel> model = FindModel(target, "smollm2", timeout);
//   std::unique_ptr<Backend> backend = MakeOpenAiBackend(target, {"smollm2"}, prompts);
//
// An event with a choice is a chunk (openai_stream.h). The number of tokens is the server's
// `usage`; a stream without it fails. cpp-httplib waits for answers, so each call in progress has a
// thread. Each call makes its connection, which its times include. A server that
// goes silent in the middle of a stream may keep it up to twice its time.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_OPENAI_BACKEND_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_OPENAI_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/bench/tokens/generate_backend.h"

namespace athanor::bench {

struct OpenAiTarget {
  std::string address;              // "127.0.0.1:8080", "https://example.org"
  std::string ca_file;              // root certificates (PEM) of https; empty: the system's
  std::string cert_file, key_file;  // the client's (PEM) of https; empty: none is shown
  std::string api_key;              // sent as a bearer token; empty: none
};

// Limit on calls in progress, each a thread.
inline constexpr int kMostOpenAiCalls = 4096;

struct OpenAiModel {
  std::string owner;                          // "llamacpp"; empty: not told
  int64_t vocabulary = 0, max_model_len = 0;  // 0: not told
};

// Asks /v1/models about the model with this id. Servers of one model take any name, so a single
// model is meant whatever its id.
absl::StatusOr<OpenAiModel> FindModel(const OpenAiTarget& target, const std::string& id,
                                      absl::Duration timeout);

std::unique_ptr<Backend> MakeOpenAiBackend(const OpenAiTarget& target,
                                           const GenerateOptions& options,
                                           const PromptOptions& prompts);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_OPENAI_BACKEND_H_
