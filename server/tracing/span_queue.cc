#include "server/tracing/span_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace athanor {

using Clock = std::chrono::steady_clock;

void SpanQueue::Put(std::vector<OtlpSpan> spans) {
  MutexLock lock(mu_);
  if (metrics_ == nullptr) return;
  if (spans_.size() + spans.size() > most_) {
    metrics_->Count(Metric::kSpansDropped, SpanDrop::kQueue, static_cast<int64_t>(spans.size()));
    return;
  }
  spans_.insert(spans_.end(), std::make_move_iterator(spans.begin()),
                std::make_move_iterator(spans.end()));
  told_.NotifyOne();
}

std::vector<OtlpSpan> SpanQueue::Take(size_t most, std::chrono::milliseconds gather) {
  MutexLock lock(mu_);
  while (spans_.empty() && metrics_ != nullptr) told_.Wait(lock);
  const Clock::time_point until = Clock::now() + gather;
  while (spans_.size() < most && metrics_ != nullptr) {
    if (!told_.WaitUntil(lock, until)) break;
  }
  const auto end = spans_.begin() + static_cast<ptrdiff_t>(std::min(most, spans_.size()));
  std::vector<OtlpSpan> taken(std::make_move_iterator(spans_.begin()),
                              std::make_move_iterator(end));
  spans_.erase(spans_.begin(), end);
  return taken;
}

bool SpanQueue::AwaitClose(std::chrono::milliseconds time) {
  const Clock::time_point until = Clock::now() + time;
  MutexLock lock(mu_);
  while (metrics_ != nullptr) {
    if (!told_.WaitUntil(lock, until)) break;
  }
  return metrics_ == nullptr;
}

void SpanQueue::Drop(SpanDrop why, size_t spans) {
  MutexLock lock(mu_);
  if (metrics_ == nullptr) return;
  metrics_->Count(Metric::kSpansDropped, why, static_cast<int64_t>(spans));
}

void SpanQueue::Close() {
  MutexLock lock(mu_);
  metrics_ = nullptr;
  told_.NotifyAll();
}

}  // namespace athanor
