// When refused requests are answered, so that a client that asks again at once is slowed down.
//
//   if (std::optional<Clock::time_point> at = pace.Hold(client, Clock::now())) {
//     ...                                  // answers it then, or when its caller has gone
//     pace.Answered();
//   }
//
// Reading and refusing a request takes processor time that runs would use: a client that retries
// in a loop makes the machine slower, which refuses more, also of others. Each client gets its
// first refusals at once and later ones at a steady rate (generic cell rate algorithm, ITU-T
// I.371), each held for half a second at most. Thread-safe.
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

  // Refusals of a client that may come at once after a pause, in time at the rate.
  static constexpr Clock::duration kBurst = std::chrono::milliseconds(100);
  static constexpr Clock::duration kLongest = std::chrono::milliseconds(500);
  // Clients that are remembered.
  static constexpr int64_t kMostClients = 1024;

  // `per_second` 0: all at once. At most `most_held` answers are held; further refusals are
  // answered at once.
  RefusalPace(int64_t per_second, int64_t most_held)
      : per_second_(per_second), most_held_(most_held) {}

  // When to answer a refused request of `client`. None: now.
  std::optional<Clock::time_point> Hold(const std::string& client, Clock::time_point now);
  // Counts an answer that was held as given.
  void Answered();
  int64_t held() const;

 private:
  const int64_t per_second_, most_held_;
  mutable Mutex mu_;
  int64_t held_ ABSL_GUARDED_BY(mu_) = 0;
  // Until when each client's refusals so far last at the rate.
  absl::flat_hash_map<std::string, Clock::time_point> paid_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_REFUSAL_PACE_H_
