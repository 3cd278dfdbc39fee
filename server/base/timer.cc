#include "server/base/timer.h"

namespace athanor {

Timer::Timer() : thread_([this] { Loop(); }) {}

Timer::~Timer() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  cv_.NotifyAll();
  thread_.join();
}

Timer::Id Timer::At(Clock::time_point when, absl::AnyInvocable<void()> work) {
  MutexLock lock(mu_);
  const Id id = ++last_;
  const bool first = pending_.empty() || when < pending_.begin()->first.first;
  pending_.emplace(Key{when, id}, std::move(work));
  when_.emplace(id, when);
  if (first) cv_.NotifyOne();
  return id;
}

bool Timer::Cancel(Id id) {
  // Destroyed after the lock is released: its captures may be anything.
  absl::AnyInvocable<void()> work;
  MutexLock lock(mu_);
  auto it = when_.find(id);
  if (it == when_.end()) return false;
  auto entry = pending_.find({it->second, id});
  work = std::move(entry->second);
  pending_.erase(entry);
  when_.erase(it);
  return true;
}

void Timer::Loop() {
  MutexLock lock(mu_);
  while (!stopping_) {
    if (pending_.empty()) {
      cv_.Wait(lock);
      continue;
    }
    auto first = pending_.begin();
    if (first->first.first > Clock::now()) {
      cv_.WaitUntil(lock, first->first.first);
      continue;
    }
    absl::AnyInvocable<void()> work = std::move(first->second);
    when_.erase(first->first.second);
    pending_.erase(first);
    lock.Unlock();
    work();
    work = nullptr;
    lock.Lock();
  }
}

}  // namespace athanor
