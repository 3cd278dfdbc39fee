// What earlier searches on the same cache found out of candidates: how long kernels take alone, and
// which kernels and plans cannot be used.
//
//   CandidateMemory memory(&cache, machine, ClocksText(), graph, options);
//   const CandidateMemory::Kernel of = memory.Of(kernel, activation_bytes);
//   if (auto known = memory.Find(of, kernel)) return *known;   // seconds by size, or why not
//   ... compile, measure, check ...
//   memory.Put(of, row);   // or PutFailure(of, FailureKind::kCompile, status)
//
// A time is another's only where all is equal that it hangs on: the plan that the kernel is
// measured in, sizes, what lies in the caches beside it, compiler, machine, threads. Borrows the
// cache and the machine; used by one thread at a time.
#ifndef ATHANOR_SERVER_SEARCH_CANDIDATE_MEMORY_H_
#define ATHANOR_SERVER_SEARCH_CANDIDATE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/cache/cache.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/plan.pb.h"
#include "server/plans/plan_search.h"

namespace athanor {

class CandidateMemory {
 public:
  // `graph` is the one searched for; `clocks` as ClocksText has it.
  CandidateMemory(Cache* cache, const internal::TargetReply* machine, std::string clocks,
                  const Graph& graph, const PlanSearchOptions& options);

  struct Kernel {
    std::string right;  // key of whether it compiles and passes its check
    TimingKey time;
    std::string about;
  };
  // As the search measures it, among `activation_bytes`.
  Kernel Of(const internal::SearchKernel& kernel, absl::Span<const int64_t> activation_bytes) const;
  // Seconds by size, or why it cannot be used; nullopt: it has to be tried. One that was never
  // checked, as it was slow beside others, and is fast here, has to be.
  std::optional<absl::StatusOr<std::vector<double>>> Find(
      const Kernel& of, const internal::SearchKernel& kernel) const;
  void Put(const Kernel& of, const TimingRow& row) const { cache_.timings().Put(of.time, row); }
  // What says nothing of the kernel (CANCELLED, ABORTED) is not kept.
  void PutFailure(const Kernel& of, FailureKind kind, const absl::Status& status) const;

  // Find and keep the limits of the machine, for later servers.
  std::optional<internal::MachineReply> FindLimits() const;
  void PutLimits(const internal::MachineReply& limits) const;
  // The speed at which the cache's times of kernels are told (TryOutcome.f32_flops_per_second);
  // nullopt: it has none yet.
  std::optional<double> FlopsOfTimes() const;
  void PutFlopsOfTimes(double flops) const;

  struct PlanFailure {
    FailureKind kind;
    absl::Status status;
  };
  // Why the plan of `plan` cannot be used; nullopt: that is not known.
  std::optional<PlanFailure> FindFailure(const internal::SearchPlan& plan) const;
  void PutFailure(const internal::SearchPlan& plan, const PlanFailure& failure) const;

 private:
  std::string KeyOf(const internal::SearchPlan& plan) const;
  MachineConditions Conditions() const;
  // The key of something about the machine, not of a kernel.
  TimingKey MachineKey(std::string what) const;

  Cache& cache_;
  const internal::TargetReply& machine_;
  const std::string clocks_;
  const std::string graph_hash_;
  // What compiles and checks, and the whole graph with the search's options that matter to a plan's
  // check.
  std::string compiler_, search_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_CANDIDATE_MEMORY_H_
