// Compile jobs whose plan another job is making, or searching for, of another process on the same
// cache or of this one: they hold no worker meanwhile.
//
//   ParkedJobs parked(&cache, [&](const std::shared_ptr<CompileJob>& job) { ... });
//   parked.Park(job, key, kPlanLease);   // leases().Take(key, kPlanLease, ...) was refused
//
// A job is woken once nobody holds that lease: its plan is in the cache then, or who made it has
// failed or died. Asked every 50 ms whether anything was written, and every half second whether
// the holder lives, as long as a job is parked; else it costs nothing. Thread-safe.
#ifndef ATHANOR_SERVER_JOBS_PARKED_JOBS_H_
#define ATHANOR_SERVER_JOBS_PARKED_JOBS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "compiler/cache/cache.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/jobs/compile_job.h"

namespace athanor {

// LeaseTable::Holder.kind: of a baseline, and of a search.
inline constexpr absl::string_view kPlanLease = "plan";
inline constexpr absl::string_view kSearchLease = "search";

// The lease of what a job would make, held by another job on the same cache.
struct LeaseWait {
  std::string waits_for;  // its holder, for people
  std::string key;
};

class ParkedJobs {
 public:
  // From its own thread, which holds no lock.
  using Wake = std::function<void(const std::shared_ptr<CompileJob>& job)>;

  // `cache` outlives it.
  ParkedJobs(Cache* cache, Wake wake);
  ~ParkedJobs();  // wakes nobody
  ParkedJobs(const ParkedJobs&) = delete;
  ParkedJobs& operator=(const ParkedJobs&) = delete;

  // Until nobody holds the lease of `key`.
  void Park(std::shared_ptr<CompileJob> job, std::string key, absl::string_view kind);
  // False: it is not parked, or is being woken.
  bool Remove(const std::shared_ptr<CompileJob>& job);

 private:
  using Clock = std::chrono::steady_clock;
  struct Parked {
    std::shared_ptr<CompileJob> job;
    std::string key, kind;
  };

  void Run();
  // Takes out those whose lease is free.
  std::vector<Parked> TakeFree();

  Cache& cache_;
  const Wake wake_;
  Mutex mu_;
  CondVar changed_;
  std::vector<Parked> parked_ ABSL_GUARDED_BY(mu_);
  bool added_ ABSL_GUARDED_BY(mu_) = false;  // since they were looked at
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  // Of the thread.
  int64_t seen_version_ = -1;
  Clock::time_point looked_;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_PARKED_JOBS_H_
