// Traces of calls that generate: when each was due, how long it was, and which blocks of its prompt
// other prompts begin with too.
//
//   absl::StatusOr<Trace> trace = ReadTrace("conversation_trace.jsonl");
//
// The form is that of the traces published with Mooncake (Qin et al., "Mooncake: Trading More
// Storage for Less Computation", FAST 2025), JSON lines:
//
//   {"timestamp": 3052, "input_length": 1600, "output_length": 120, "hash_ids": [0, 28, 29, 30]}
//
// `timestamp` is in milliseconds. Each id stands for the kTraceBlock tokens of a block and all
// before them, the last one for what is left: equal ids are equal tokens.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_TRACE_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace athanor::bench {

inline constexpr int64_t kTraceBlock = 512;  // tokens

struct TraceCall {
  double seconds = 0;  // since the first call was due
  int64_t input_tokens = 0, output_tokens = 0;
  std::vector<int64_t> blocks;  // ids, one for each block of the prompt
};

using Trace = std::vector<TraceCall>;

// Reads a trace that has at least one call. INVALID_ARGUMENT names the line, what is wrong, and
// what would be right.
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_TRACE_H_
