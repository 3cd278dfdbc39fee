// The search of a tuner process (compiler/search), driven from here in small pieces of work:
//
//   record_    SearchRecord: what the search says of itself
//   steps_     SearchSteps: what the child's session asks for, and is told
//   kernels_   CandidateKernels: tries the kernels of a step, some of them at a time
//   plans_     CandidatePlans: measures a plan whole, and verifies one that is faster
//   memory_    CandidateMemory: what earlier searches on the same cache found out
//
// All outcomes are kept here, so a child that was lost costs the candidate it was working on; the
// next child goes on from the others.
#ifndef ATHANOR_SERVER_SEARCH_TUNER_PLAN_SEARCH_H_
#define ATHANOR_SERVER_SEARCH_TUNER_PLAN_SEARCH_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_process.h"
#include "server/plans/plan_search.h"
#include "server/plans/turns.h"
#include "server/search/candidate_kernels.h"
#include "server/search/candidate_memory.h"
#include "server/search/candidate_plans.h"
#include "server/search/kernel_maker.h"
#include "server/search/machine_limits.h"
#include "server/search/search_record.h"
#include "server/search/search_steps.h"

namespace athanor {

class TunerPlanSearch final : public PlanSearch {
 public:
  // `serving` runs now. Borrows what the maker does, the tuner, the machine, its limits, and where
  // its work is counted.
  TunerPlanSearch(uint64_t session, const Graph& graph, CompiledPlan serving, KernelMaker maker,
                  TunerProcess* tuner, const internal::TargetReply& machine, MachineLimits* limits,
                  const PlanSearchOptions& options, Searches* searches = nullptr);

  absl::StatusOr<Step> Next() override;
  void Finish() override { finishing_ = true; }
  void Until(std::chrono::steady_clock::time_point end) override { end_ = end; }
  void Taken(const absl::Status& taken) override { plans_.Taken(taken); }
  const v1::SearchProgress& progress() const override { return record_.progress(); }
  std::vector<absl::StatusOr<std::string>> TakePictures() override;
  absl::StatusOr<v1::PlanComparison> CompareWith(const CompiledPlan& other) override;
  absl::StatusOr<std::vector<v1::PlanCost>> Costs(const CompiledPlan& plan) override;

 private:
  // As Next; ABORTED: the time is up, or requests left none to measure.
  absl::StatusOr<Step> Work();
  absl::StatusOr<Step> AtEnd();
  absl::StatusOr<Step> TryKernels();
  absl::StatusOr<Step> VerifyWinner();
  bool Over() const { return std::chrono::steady_clock::now() >= end_; }

  TunerProcess& tuner_;
  Searches* const searches_;  // may be null
  const CandidateMemory memory_;
  SearchRecord record_;
  SearchSteps steps_;
  CandidateKernels kernels_;
  CandidatePlans plans_;
  // Bytes between the baseline's steps, by size; every kernel is measured among as many. Empty:
  // none was asked for yet.
  std::vector<int64_t> activation_bytes_;
  bool finishing_ = false;
  bool last_try_ = false;  // finishing, and there were no gaps to measure in
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_TUNER_PLAN_SEARCH_H_
