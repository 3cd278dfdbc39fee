// Sends calls by a schedule and records what became of each.
//
//   absl::StatusOr<std::unique_ptr<Load>> load = Load::Create(options);   // connects, warms up
//   LoadResult result = (*load)->Run(options.phases, options.seed);
//
// Open loop: calls are due by Arrivals, independently of answers. Closed loop: each of
// `concurrency` callers sends its next call when the last one is answered. Latency counts from when
// a call was due, so that it shows a stall of the server or of the generator ("coordinated
// omission", Tene).
//
// One thread sleeps until calls are due and begins them; gRPC's threads take the answers, and in a
// closed loop begin the caller's next call at once. README.md says how many calls that can send.
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
  std::vector<client::InferRequest> requests;  // sent in rotation
  Arrival arrival = Arrival::kClosed;
  double burstiness = 1;  // for kGamma
  std::vector<Phase> phases;
  int64_t warmups = 0;  // calls before the measured ones; no figure counts them
  uint64_t seed = 0;
  // Time from when a call is due until its caller gives up: the call ends with DEADLINE_EXCEEDED,
  // or is not sent at all.
  absl::Duration timeout = absl::Seconds(60);
  int connections = 1;
  // Open loop: most calls out at once; further due calls wait until one is answered.
  int most_outstanding = 10'000;
};

// Times are nanoseconds since the beginning of the run.
struct CallRecord {
  int64_t due_ns = 0, sent_ns = 0, done_ns = 0;
  // Times that the server reports in its reply; -1: not reported.
  int64_t queue_us = -1, batch_us = -1, exec_us = -1;
  int32_t code = 0;  // gRPC's status code; 0: answered
  int32_t phase = 0;
  int32_t plan = -1;  // index into plan_ids; -1: the reply names no plan

  bool answered() const { return code == 0; }
};

struct LoadResult {
  std::vector<CallRecord> calls;  // the calls that were sent, by due time
  std::vector<std::string> plan_ids;
  std::map<int32_t, std::string> messages;  // message of the first failure with each code
  std::vector<int64_t> not_sent;            // per phase, calls that were due but never sent
  int most_outstanding = 0;                 // most calls out at one time
  double seconds = 0;                       // seconds during which calls were due
  // A closed loop ends early when it has made as many calls as fit into the record.
  bool full = false;
};

// Limit on the calls of a run; each is kept, with 64 bytes, until the figures are made.
inline constexpr int64_t kMostCalls = 20'000'000;

class Load {
 public:
  // Connects and sends the warm-up calls. Returns the first one's error if it fails, such as a
  // wrong input or a server that does not answer. INVALID_ARGUMENT names a flag whose value makes
  // no run.
  static absl::StatusOr<std::unique_ptr<Load>> Create(LoadOptions options);
  ~Load();

  // Runs the load; returns when every call that was sent has ended. One run at a time.
  LoadResult Run(absl::Span<const Phase> phases, uint64_t seed);

  const LoadOptions& options() const { return options_; }
  client::Client& client() { return *clients_[0]; }

 private:
  explicit Load(LoadOptions options);
  absl::Status WarmUp();

  const LoadOptions options_;
  std::vector<inference::ModelInferRequest> messages_;
  std::vector<std::unique_ptr<client::Client>> clients_;  // a client per connection
};

// Calls Create, then Run.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options);

// INVALID_ARGUMENT names a flag whose value makes no run, and what would be right.
absl::Status CheckLoadOptions(const LoadOptions& options);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_H_
