#include "server/batch/refusal_pace.h"

#include <algorithm>

namespace athanor {

std::optional<RefusalPace::Clock::time_point> RefusalPace::Hold(const std::string& client,
                                                                Clock::time_point now) {
  if (per_second_ == 0) return std::nullopt;
  const Clock::duration each = Clock::duration(std::chrono::seconds(1)) / per_second_;
  MutexLock lock(mu_);
  auto it = paid_.find(client);
  if (it == paid_.end()) {
    if (static_cast<int64_t>(paid_.size()) >= kMostClients) {
      absl::erase_if(paid_, [now](const auto& entry) { return entry.second <= now; });
      if (static_cast<int64_t>(paid_.size()) >= kMostClients) return std::nullopt;
    }
    it = paid_.try_emplace(client, now).first;
  }
  Clock::time_point& paid = it->second;
  const Clock::time_point begin = std::max(paid, now);
  // Limits the debt to the longest hold, so that a client that stops retrying recovers soon.
  paid = std::min(begin + each, now + kBurst + kLongest);
  const Clock::time_point at = std::min(begin - kBurst, now + kLongest);
  if (at <= now || held_ >= most_held_) return std::nullopt;
  ++held_;
  return at;
}

void RefusalPace::Answered() {
  MutexLock lock(mu_);
  --held_;
}

int64_t RefusalPace::held() const {
  MutexLock lock(mu_);
  return held_;
}

}  // namespace athanor
