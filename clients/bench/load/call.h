// Defines a call of a load: what sends it, and the record that is kept of it.
//
//   std::unique_ptr<Call> call = backend->NewCall();
//   call->Prepare(seed, number);
//   call->Begin(timeout, [&](absl::Status status) { if (status.ok()) call->Tell(start, &record,
//   &plan); });
//
// Call and Backend are the seam between loads, which know when, and protocols, which know how:
// tensors (infer_backend.h), tokens over gRPC (generate_backend.h), tokens over HTTP
// (openai_backend.h).
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_CALL_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_CALL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace athanor::bench {

using Clock = std::chrono::steady_clock;

// The kind of answers of a run's calls; it decides which metrics the run has.
enum class Answers : uint8_t { kTensors = 1, kTokens = 2 };

// The tokens that an answered call brought. Times are nanoseconds since the beginning of the run.
struct TokenStream {
  int64_t input_tokens = 0;   // of the prompt: the server's count, else what was sent
  int64_t cached_tokens = 0;  // of those, not computed again
  int64_t output_tokens = 0;
  std::vector<int64_t> chunk_ns;      // when each chunk with tokens came; at least one, ascending
  std::vector<int32_t> chunk_tokens;  // tokens of each chunk; empty: the protocol does not tell
};

// Times are nanoseconds since the beginning of the run.
struct CallRecord {
  int64_t due_ns = 0, sent_ns = 0, done_ns = 0;
  // Times that the server reports in its reply; -1: not reported.
  int64_t queue_us = -1, batch_us = -1, exec_us = -1;
  int32_t code = 0;  // gRPC's status code; 0: answered
  int32_t phase = 0;
  int32_t plan = -1;  // index into LoadResult::plan_ids; -1: the reply names no plan
  std::shared_ptr<const TokenStream> tokens;  // set for answered calls of kTokens

  bool answered() const { return code == 0; }
};

// State of one call at a time, used again for the next. Not thread-safe.
class Call {
 public:
  virtual ~Call() = default;
  // Makes the request. Equal seeds and numbers make equal requests; warm-up calls have negative
  // numbers.
  virtual void Prepare(uint64_t seed, int64_t number) = 0;
  // Sends it and returns at once. `done` runs once, on any thread, must not block and may use this
  // call again. An answer that lacks something that was asked for is an error.
  virtual void Begin(absl::Duration timeout, std::function<void(absl::Status)> done) = 0;
  // Writes what the answer tells: `done_ns` too, if it differs from when `done` ran. `plan_id`
  // becomes empty if the answer names none. REQUIRES: the last call was answered.
  virtual void Tell(Clock::time_point start, CallRecord* record, std::string* plan_id) = 0;
};

// Makes calls of one kind to one server. Thread-safe; outlives its calls.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Call> NewCall() = 0;
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_CALL_H_
