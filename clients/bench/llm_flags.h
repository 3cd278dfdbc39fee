// Parses the flags of `athanor-bench llm`.
//
//   LlmPlan plan;
//   RETURN_IF_ERROR(PrepareRunFlags(flags, &run_flags, &plan));
//   ASSIGN_OR_RETURN(RunPlan run_plan, ParseRunFlags(run_flags));
//   RETURN_IF_ERROR(ParseLlmFlags(flags, &run_plan, &plan));
//   RETURN_IF_ERROR(FitPrompts(facts, &plan.prompts));       // once the servers were asked
#ifndef ATHANOR_CLIENTS_BENCH_LLM_FLAGS_H_
#define ATHANOR_CLIENTS_BENCH_LLM_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "clients/bench/flags.h"
#include "clients/bench/tokens/prompts.h"

namespace athanor::bench {

// The flags as given; an empty or absent one has its default.
struct LlmFlags {
  std::vector<std::string> models;          // for each server, or one for all
  std::vector<std::string> backends;        // "grpc" or "openai"; for each server, or one for all
  std::string input_tokens, output_tokens;  // as Lengths::Parse takes them; default 128
  std::string prompts;                      // a file of texts
  std::string shared_prefix;                // "1000" or "1000:4", tokens and groups
  std::optional<int> turns;                 // of a conversation; default 1
  std::string trace;                        // a file of calls
  bool chat = false;
  bool allow_eos = false;
  double temperature = 0;
  std::optional<int> vocabulary, max_model_len;
  std::string api_key;
};

enum class Protocol : uint8_t { kGrpc, kOpenAi };
inline constexpr char kGrpcBackend[] = "grpc", kOpenAiBackend[] = "openai";

struct LlmServer {
  Protocol protocol;
  std::string address, model;
};

struct LlmPlan {
  std::vector<LlmServer> servers;  // one, or two to compare
  PromptOptions prompts;
};

// Fills in what RunFlags has for all commands, the first model's name and the times of a trace,
// which it reads into the plan. INVALID_ARGUMENT names the flag, what is wrong, and what would be
// right.
absl::Status PrepareRunFlags(const LlmFlags& flags, RunFlags* run, LlmPlan* plan);
// Completes the plan. `run` is the plan of the other flags, and is limited to what the protocols
// can do.
absl::Status ParseLlmFlags(const LlmFlags& flags, RunPlan* run, LlmPlan* plan);

// A server's account of its model; 0: not told.
struct ModelFacts {
  int64_t vocabulary = 0, max_model_len = 0;
  std::vector<int32_t> end_tokens;
};

// Makes the prompts such that every server takes them: all get the same. INVALID_ARGUMENT names the
// flag that is missing or does not fit.
absl::Status FitPrompts(absl::Span<const ModelFacts> servers, PromptOptions* prompts);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LLM_FLAGS_H_
