// Limits log lines of one kind per key, so that who causes many hides nobody else's.
//
//   static LogLimits limits({.most = 20, .most_together = 200});
//   if (auto held_back = limits.Pass("team-a")) LogInfo("refused", {..., {"held_back", ...}});
//   for (const auto& [key, lines] : limits.TakeHeldBack()) ...   // once a second: no count is lost
//
// Thread-safe.
#ifndef ATHANOR_SERVER_BASE_LOG_LIMITS_H_
#define ATHANOR_SERVER_BASE_LOG_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class LogLimits {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    int64_t most = 20;            // lines a second of one key
    int64_t most_together = 200;  // of all keys
    size_t most_keys = 1024;      // in a second; further ones share the key ""
    size_t most_told = 20;        // keys that TakeHeldBack returns; further ones share the key ""
  };

  explicit LogLimits(Options options) : options_(options) {}

  // Returns how many lines of the key were held back since the last one that passed, or nothing if
  // this line is held back too.
  std::optional<int64_t> Pass(absl::string_view key, Clock::time_point now = Clock::now());
  // Returns, and forgets, how many lines were held back in seconds that are over, by key: those
  // with the most, and behind them the sum of all others as that of the key "".
  std::vector<std::pair<std::string, int64_t>> TakeHeldBack(Clock::time_point now = Clock::now());

 private:
  struct Count {
    int64_t second = -1;  // of its last line
    int64_t passed = 0;   // in that second
    int64_t held_back = 0;
  };
  void Begin(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Mutex mu_;
  int64_t second_ ABSL_GUARDED_BY(mu_) = -1;
  int64_t passed_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, Count> counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_LOG_LIMITS_H_
