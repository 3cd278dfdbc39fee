#include "server/generate/outbox.h"

namespace athanor {

bool Outbox::Put(GenerateEvent event) {
  bool full;
  {
    MutexLock lock(mu_);
    if (abandoned_) return true;
    events_.push_back(std::move(event));
    full = full_ = static_cast<int64_t>(events_.size()) >= most_;
    if (std::exchange(told_, true)) return !full;
  }
  filled_();
  return !full;
}

void Outbox::Close(absl::Status status) {
  {
    MutexLock lock(mu_);
    if (abandoned_ || end_.has_value()) return;
    end_ = std::move(status);
    if (std::exchange(told_, true)) return;
  }
  filled_();
}

Outbox::Content Outbox::Take() {
  Content content;
  {
    MutexLock lock(mu_);
    content.events.swap(events_);
    content.end = end_;
    told_ = false;
    if (!std::exchange(full_, false)) return content;
  }
  drained_();
  return content;
}

void Outbox::Abandon() {
  std::vector<GenerateEvent> dropped;  // destroyed without the lock
  MutexLock lock(mu_);
  abandoned_ = true;
  dropped.swap(events_);
}

}  // namespace athanor
