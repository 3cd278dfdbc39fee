// The jobs that wait to be built, and the order in which they are taken.
//
//   WaitingJobs waiting;
//   waiting.Append({job, {}});
//   auto next = waiting.Next([](const WaitingJobs::Waiting&) { return true; });
//   WaitingJobs::Build build = waiting.Take(next, ...);
//
// First plans go first, small models before large ones; boxes go behind all other jobs of versions
// that serve. A first or later plan that was passed over kMostPassed times goes next. If a job of
// the same version waits for boxes, they are as urgent as that job. Has no lock: its owner has.
#ifndef ATHANOR_SERVER_JOBS_WAITING_JOBS_H_
#define ATHANOR_SERVER_JOBS_WAITING_JOBS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/job_builder.h"
#include "server/jobs/kernel_work.h"

namespace athanor {

class WaitingJobs {
 public:
  using Job = std::shared_ptr<CompileJob>;
  struct Build {
    Job job;  // null: stop
    JobRest rest;
    // Another worker builds the job; a task of this work is to be done. Null: the job is to be
    // built.
    std::shared_ptr<KernelWork> help = nullptr;
  };
  // In the order they are taken. Boxes have a baseline that serves their sizes meanwhile.
  enum class Rank : uint8_t { kFirstPlan, kLater, kBoxes, kOld };
  struct Waiting {
    Build build;
    Rank rank;
    int64_t cost = 0;  // nodes to compile; 0 where plans may be in the cache
    int passed = 0;    // how often one that came later was taken before it; kMostPassed: it is next
  };
  static constexpr int kMostPassed = 8;
  using Iterator = std::deque<Waiting>::iterator;
  using MayBegin = absl::FunctionRef<bool(const Waiting&)>;

  void Append(Build build);
  // Appends a job of a version that serves nobody.
  void AppendOld(const Job& job) { waiting_.push_back({{job, {}}, Rank::kOld}); }
  // Adds a job that is taken before all others.
  void AddNext(const Job& job) {
    waiting_.push_front({{job, {}}, Rank::kFirstPlan, 0, kMostPassed});
  }
  // Removes a job; nullopt: it does not wait.
  std::optional<Build> Remove(const Job& job);

  // Returns the job to be taken of those that may begin; end(): there is none.
  Iterator Next(MayBegin may_begin);
  Build Take(Iterator next, MayBegin may_begin);
  Iterator end() { return waiting_.end(); }
  // Reports whether a first plan may begin.
  bool HasFirstPlan(MayBegin may_begin) const;
  // Returns the number of jobs that have not begun: what is left of others keeps nobody out.
  int64_t not_begun() const;

 private:
  static Rank RankOf(const Build& build);
  static int64_t CostOf(const CompileJob& job);
  // Reports whether `a` is taken before `b`, which came later.
  static bool IsBefore(const Waiting& a, const Waiting& b);
  void RaiseBoxes(const ModelVersion* version);

  std::deque<Waiting> waiting_;  // in the order of their arrival
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_WAITING_JOBS_H_
