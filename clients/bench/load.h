// Calls sent by a schedule, and what became of each.
//
//   absl::StatusOr<std::unique_ptr<Load>> load = Load::Create(options);   // connects, warms up
//   LoadResult result = (*load)->Run(options.phases, options.seed);
//
// Open loop: calls are due by Arrivals and wait for no answer. Closed loop: each of `concurrency`
// callers calls again when it was answered. Latency counts from when a call was due, so a server
// (or a generator) that stands still for a while does not hide it ("coordinated omission", Tene).
//
// One thread sleeps until calls are due and begins them; gRPC's threads take the answers, and in a
// closed loop begin the caller's next call at once. README.md has what that can send.
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "clients/bench/arrivals.h"
#include "clients/cpp/client.h"

namespace athanor::bench {

struct LoadOptions {
  std::string address;  // "127.0.0.1:50051"
  client::ClientOptions client;
  std::string model, version;
  std::vector<client::InferRequest> requests;  // sent in turn
  Arrival arrival = Arrival::kClosed;
  double burstiness = 1;  // of kGamma
  std::vector<Phase> phases;
  int64_t warmups = 0;  // calls before the measured ones, in none of the figures
  uint64_t seed = 0;
  // From when a call was due until its caller gives up: DEADLINE_EXCEEDED, or not sent at all.
  absl::Duration timeout = absl::Seconds(60);
  int connections = 1;
  // Open loop: further calls wait, due all the same, until one of these is answered.
  int most_outstanding = 10'000;
};

// Times are nanoseconds since the beginning of the run.
struct CallRecord {
  int64_t due_ns = 0, sent_ns = 0, done_ns = 0;
  // What the reply says the server spent; -1: it does not say.
  int64_t queue_us = -1, batch_us = -1, exec_us = -1;
  int32_t code = 0;  // gRPC's; 0: answered
  int32_t phase = 0;
  int32_t plan = -1;  // in plan_ids; -1: the reply names none

  bool answered() const { return code == 0; }
};

struct LoadResult {
  std::vector<CallRecord> calls;  // that were sent, by due time
  std::vector<std::string> plan_ids;
  std::map<int32_t, std::string> messages;  // of the first failure with each code
  std::vector<int64_t> not_sent;            // by phase: due, but the generator did not get to them
  int most_outstanding = 0;                 // that were out at one time
  double seconds = 0;                       // that calls were due for
  // A closed loop ends early when it has as many calls as are kept.
  bool full = false;
};

// Every call is kept until the figures are made: 64 bytes each.
inline constexpr int64_t kMostCalls = 20'000'000;

class Load {
 public:
  // Sends the warm-up calls. The first one's error, if it fails: a wrong input, a server that is
  // not there. INVALID_ARGUMENT for options that make no run, by their flag's name.
  static absl::StatusOr<std::unique_ptr<Load>> Create(LoadOptions options);
  ~Load();

  // Returns when every call that was sent has ended. One run at a time.
  LoadResult Run(absl::Span<const Phase> phases, uint64_t seed);

  const LoadOptions& options() const { return options_; }
  client::Client& client() { return *clients_[0]; }

 private:
  explicit Load(LoadOptions options);
  absl::Status WarmUp();

  const LoadOptions options_;
  std::vector<inference::ModelInferRequest> messages_;
  std::vector<std::unique_ptr<client::Client>> clients_;  // one per connection
};

// Create and Run.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options);

// INVALID_ARGUMENT names the flag whose value makes no run, and what would be right.
absl::Status CheckLoadOptions(const LoadOptions& options);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_H_
