#include "server/jobs/parked_jobs.h"

#include <pthread.h>

#include <algorithm>
#include <set>
#include <utility>

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kAskEvery{50};
constexpr std::chrono::milliseconds kLookEvery{500};  // even if nothing was written

}  // namespace

ParkedJobs::ParkedJobs(Cache* cache, Wake wake) : cache_(*cache), wake_(std::move(wake)) {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "parked");
}

ParkedJobs::~ParkedJobs() {
  {
    MutexLock lock(mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void ParkedJobs::Park(std::shared_ptr<CompileJob> job, std::string key, absl::string_view kind) {
  MutexLock lock(mu_);
  parked_.push_back({std::move(job), std::move(key), std::string(kind)});
  added_ = true;
  changed_.NotifyAll();
}

bool ParkedJobs::Remove(const std::shared_ptr<CompileJob>& job) {
  MutexLock lock(mu_);
  return std::erase_if(parked_, [&](const Parked& p) { return p.job == job; }) > 0;
}

void ParkedJobs::Run() {
  MutexLock lock(mu_);
  while (!stop_) {
    if (parked_.empty()) {
      changed_.Wait(lock);
      continue;
    }
    lock.Unlock();
    for (const Parked& free : TakeFree()) wake_(free.job);
    lock.Lock();
    // A job parked meanwhile is checked with the others.
    const auto next = Clock::now() + kAskEvery;
    while (!stop_ && !parked_.empty() && changed_.WaitUntil(lock, next)) {
    }
  }
}

std::vector<ParkedJobs::Parked> ParkedJobs::TakeFree() {
  std::set<std::pair<std::string, std::string>> keys;  // keys with their kinds
  bool added;  // a new job's lease may have been released before it was parked
  {
    MutexLock lock(mu_);
    for (const Parked& parked : parked_) keys.emplace(parked.key, parked.kind);
    added = std::exchange(added_, false);
  }
  const int64_t version = cache_.data_version();
  const auto now = Clock::now();
  if (!added && version == seen_version_ && now < looked_ + kLookEvery) return {};
  seen_version_ = version;
  looked_ = now;
  std::erase_if(keys, [&](const auto& key) {
    return cache_.leases().HolderOf(key.first, key.second).has_value();
  });
  std::vector<Parked> free;
  MutexLock lock(mu_);
  std::erase_if(parked_, [&](Parked& parked) {
    if (!keys.contains({parked.key, parked.kind})) return false;
    free.push_back(std::move(parked));
    return true;
  });
  return free;
}

}  // namespace athanor
