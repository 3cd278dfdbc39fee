#include "server/search/search_time.h"

#include <algorithm>

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kLeastForAPlan{2500}, kMostForAPlan{10'000};

}  // namespace

void SearchTime::Begin(Clock::duration budget, Clock::time_point now) {
  begun_ = true;
  start_ = now;
  end_ = budget > Clock::duration::zero() ? now + budget : Clock::time_point::max();
}

SearchTime::Clock::duration SearchTime::Used(Clock::time_point now) const {
  return begun_ ? now - start_ : Clock::duration::zero();
}

bool SearchTime::MustFinish(Clock::time_point now, Clock::duration of_a_plan) const {
  if (!begun_ || end_ == Clock::time_point::max()) return false;
  const Clock::duration all = end_ - start_;
  const Clock::duration guess = std::clamp<Clock::duration>(all / 4, kLeastForAPlan, kMostForAPlan);
  return end_ - now <= std::min(all / 2, std::max(guess, of_a_plan + of_a_plan / 4));
}

SearchTime::Clock::duration TimeOfAPlan(const v1::SearchProgress& progress) {
  if (progress.plans_measured() == 0) return {};
  double seconds = 0;
  for (const v1::SearchTime& time : progress.times()) {
    if (time.on() == "plans" || time.on() == "verify") seconds += time.seconds();
  }
  return std::chrono::duration_cast<SearchTime::Clock::duration>(
      std::chrono::duration<double>(seconds / progress.plans_measured()));
}

}  // namespace athanor
