#include "server/base/log_limits.h"

#include <algorithm>
#include <utility>

namespace athanor {

void LogLimits::Begin(Clock::time_point now) {
  const int64_t second =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (second == second_) return;
  second_ = second;
  passed_ = 0;
  absl::erase_if(counts_, [](const auto& count) { return count.second.held_back == 0; });
}

std::optional<int64_t> LogLimits::Pass(absl::string_view key, Clock::time_point now) {
  MutexLock lock(mu_);
  Begin(now);
  auto found = counts_.find(key);
  if (found == counts_.end()) {
    const bool full = counts_.size() >= options_.most_keys;
    found = counts_.try_emplace(full ? std::string() : std::string(key)).first;
  }
  Count& count = found->second;
  if (std::exchange(count.second, second_) != second_) count.passed = 0;
  if (count.passed < options_.most && passed_ < options_.most_together) {
    ++count.passed;
    ++passed_;
    return std::exchange(count.held_back, 0);
  }
  ++count.held_back;
  return std::nullopt;
}

std::vector<std::pair<std::string, int64_t>> LogLimits::TakeHeldBack(Clock::time_point now) {
  MutexLock lock(mu_);
  Begin(now);
  std::vector<std::pair<std::string, int64_t>> taken;
  int64_t others = 0;
  absl::erase_if(counts_, [&, current = second_](const auto& count) {
    const auto& [key, of] = count;
    if (of.second == current || of.held_back == 0) return false;
    if (key.empty()) {
      others += of.held_back;
    } else {
      taken.emplace_back(key, of.held_back);
    }
    return true;
  });
  std::sort(taken.begin(), taken.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  for (; taken.size() > options_.most_told; taken.pop_back()) others += taken.back().second;
  if (others > 0) taken.emplace_back("", others);
  return taken;
}

}  // namespace athanor
