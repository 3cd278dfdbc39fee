// Delays the answers to refused requests, to slow down clients that retry at once.
//
//   if (std::optional<Clock::time_point> at = pace.Hold(client, Clock::now())) {
//     ...                                  // answers at that time, or when its caller has gone
//     pace.Answered();
//   }
//
// Reading and refusing a request takes processor time that runs could use: a client that retries in
// a loop slows the machine down, and so causes more refusals, also for others. Each client gets its
// first refusals at once and later ones at a steady rate (generic cell rate algorithm, ITU-T
// I.371), each delayed by half a second at most. Thread-safe.
#ifndef ATHANOR_SERVER_BATCH_REFUSAL_PACE_H_
#define ATHANOR_SERVER_BATCH_REFUSAL_PACE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class RefusalPace {
 public:
  using Clock = std::chrono::steady_clock;

  // Refusals of one client that are answered at once after a pause, as time at the rate.
  static constexpr Clock::duration kBurst = std::chrono::milliseconds(100);
  static constexpr Clock::duration kLongest = std::chrono::milliseconds(500);
  // Number of clients remembered.
  static constexpr int64_t kMostClients = 1024;

  // `per_second` 0: all refusals are answered at once. At most `most_held` answers are held at a
  // time; further refusals are answered at once.
  RefusalPace(int64_t per_second, int64_t most_held)
      : per_second_(per_second), most_held_(most_held) {}

  // Returns when to answer a refused request of `client`; nullopt: now.
  std::optional<Clock::time_point> Hold(const std::string& client, Clock::time_point now);
  // Records that a held answer has been given.
  void Answered();
  int64_t held() const;

 private:
  const int64_t per_second_, most_held_;
  mutable Mutex mu_;
  int64_t held_ ABSL_GUARDED_BY(mu_) = 0;
  // By client: the time until which its refusals so far last at the rate.
  absl::flat_hash_map<std::string, Clock::time_point> paid_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_REFUSAL_PACE_H_
