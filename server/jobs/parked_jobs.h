// Holds compile jobs whose plan another job is making or searching for, in this process or in
// another one on the same cache. Parked jobs occupy no worker.
//
//   ParkedJobs parked(&cache, [&](const std::shared_ptr<CompileJob>& job) { ... });
//   parked.Park(job, key, kPlanLease);   // leases().Take(key, kPlanLease, ...) was refused
//
// Wakes a job once nobody holds its lease: then its plan is in the cache, or the job that made it
// has failed or died. While jobs are parked, checks every 50 ms whether anything was written to the
// cache, and every half second whether holders are alive; otherwise costs nothing. Thread-safe.
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

// Values of LeaseTable::Holder.kind: for a baseline, and for a search.
inline constexpr absl::string_view kPlanLease = "plan";
inline constexpr absl::string_view kSearchLease = "search";

// The lease of what a job would make, held by another job on the same cache.
struct LeaseWait {
  std::string waits_for;  // its holder, for people
  std::string key;
};

class ParkedJobs {
 public:
  // Called on the thread of ParkedJobs, without locks.
  using Wake = std::function<void(const std::shared_ptr<CompileJob>& job)>;

  // `cache` must outlive it.
  ParkedJobs(Cache* cache, Wake wake);
  ~ParkedJobs();  // wakes no job
  ParkedJobs(const ParkedJobs&) = delete;
  ParkedJobs& operator=(const ParkedJobs&) = delete;

  // Parks the job until nobody holds the lease of `key`.
  void Park(std::shared_ptr<CompileJob> job, std::string key, absl::string_view kind);
  // Returns false if the job is not parked, or is just being woken.
  bool Remove(const std::shared_ptr<CompileJob>& job);

 private:
  using Clock = std::chrono::steady_clock;
  struct Parked {
    std::shared_ptr<CompileJob> job;
    std::string key, kind;
  };

  void Run();
  // Removes and returns jobs whose lease is free.
  std::vector<Parked> TakeFree();

  Cache& cache_;
  const Wake wake_;
  Mutex mu_;
  CondVar changed_;
  std::vector<Parked> parked_ ABSL_GUARDED_BY(mu_);
  bool added_ ABSL_GUARDED_BY(mu_) = false;  // since the last check
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  // Used by the thread only.
  int64_t seen_version_ = -1;
  Clock::time_point looked_;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_PARKED_JOBS_H_
