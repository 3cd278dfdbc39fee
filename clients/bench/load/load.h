// Sends calls by a schedule and records what became of each.
//
//   absl::StatusOr<std::unique_ptr<Load>> load = Load::Create(options);   // connects, warms up
//   LoadResult result = (*load)->Run(options.phases, options.seed);
//
// Open loop: calls are due by Arrivals, independently of answers. Closed loop: each of
// `concurrency` callers sends its next call when the last one is answered, and its time to think
// is over. Latency counts from when
// a call was due, so that it shows a stall of the server or of the generator ("coordinated
// omission", Tene).
//
// One thread sleeps until calls are due and begins them; gRPC's threads take the answers, and in a
// closed loop begin the caller's next call at once. README.md says how many calls that can send.
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_LOAD_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_LOAD_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "clients/bench/load/arrivals.h"
#include "clients/bench/load/call.h"
#include "clients/cpp/client/client.h"

namespace athanor::bench {

// Limit on the calls of a run; each is kept, with 80 bytes, until the figures are made.
inline constexpr int64_t kMostCalls = 20'000'000;
inline constexpr double kMostRate = 1e6;  // calls per second
// The limit of kTokens, whose calls also keep a time for each chunk.
inline constexpr int64_t kMostStreams = 1'000'000;
constexpr int64_t MostCallsOf(Answers answers) {
  return answers == Answers::kTokens ? kMostStreams : kMostCalls;
}

struct LoadOptions {
  Answers answers = Answers::kTensors;
  std::string address;  // "127.0.0.1:50051"
  client::ClientOptions client;
  std::string model, version;
  std::vector<client::InferRequest> requests;  // sent in rotation; of kTensors
  Arrival arrival = Arrival::kClosed;
  double burstiness = 1;    // for kGamma
  std::vector<double> due;  // for kTrace: seconds, within the one phase
  std::vector<Phase> phases;
  absl::Duration think;  // closed loop: a caller's pause between an answer and its next call
  int64_t most_calls = kMostCalls;  // a run ends when it has sent so many
  int64_t warmups = 0;              // calls before the measured ones; no figure counts them
  uint64_t seed = 0;
  // Time from when a call is due until its caller gives up: the call ends with DEADLINE_EXCEEDED,
  // or is not sent at all.
  absl::Duration timeout = absl::Seconds(60);
  int connections = 1;
  // Open loop: most calls out at once; further due calls wait until one is answered.
  int most_outstanding = 10'000;
};

struct LoadResult {
  std::vector<CallRecord> calls;  // the calls that were sent, by due time
  std::vector<std::string> plan_ids;
  std::map<int32_t, std::string> messages;  // message of the first failure with each code
  std::vector<int64_t> not_sent;            // per phase, calls that were due but never sent
  int most_outstanding = 0;                 // most calls out at one time
  double seconds = 0;                       // seconds during which calls were due
  // The run ended early, because it had made as many calls as fit into the record.
  bool full = false;
};

// Counts of the run that goes on; for showing how far it is.
struct Progress {
  std::atomic<int64_t> answered = 0, failed = 0, tokens = 0;
};

class Load {
 public:
  // Connects and sends the warm-up calls; `backend`: of kTokens, else it is made of `requests`.
  // Returns the first one's error if it fails, such as a wrong input or a server that does not
  // answer. INVALID_ARGUMENT names a flag whose value makes no run.
  static absl::StatusOr<std::unique_ptr<Load>> Create(LoadOptions options,
                                                      std::unique_ptr<Backend> backend = nullptr);
  ~Load();

  // Runs the load; returns when every call that was sent has ended. One run at a time. Calls are
  // numbered from `first_number` on: a run that goes on where another ended repeats none of what is
  // used in rotation.
  LoadResult Run(absl::Span<const Phase> phases, uint64_t seed, int64_t first_number = 0);

  const LoadOptions& options() const { return options_; }
  // Thread-safe.
  const Progress& progress() const { return progress_; }

 private:
  Load(LoadOptions options, std::unique_ptr<Backend> backend);
  absl::Status WarmUp();

  const LoadOptions options_;
  const std::unique_ptr<Backend> backend_;
  Progress progress_;
};

// Calls Create, then Run.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options);

// INVALID_ARGUMENT names a flag whose value makes no run, and what would be right.
absl::Status CheckLoadOptions(const LoadOptions& options);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_LOAD_H_
