// Tries the plans that a search proposes: compiles and checks their kernels, measures each whole,
// in turn with what serves, and verifies one that is faster (plan_verifier.h).
//
//   absl::Status tried = plans.Try(/*last_try=*/false, end);   // the step's plan
//   while (plans.has_winner()) plans.Verify();   // in pieces; a plan that is right is found
//   plans.Taken(absl::OkStatus());               // it serves now
#ifndef ATHANOR_SERVER_SEARCH_CANDIDATE_PLANS_H_
#define ATHANOR_SERVER_SEARCH_CANDIDATE_PLANS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_process.h"
#include "server/plans/plan_search.h"
#include "server/search/candidate_memory.h"
#include "server/search/kernel_maker.h"
#include "server/search/plan_verifier.h"
#include "server/search/search_record.h"
#include "server/search/search_steps.h"

namespace athanor {

// Borrows all but the plans, the graph and the maker; used by one thread at a time.
class CandidatePlans {
 public:
  using Sizes = google::protobuf::RepeatedPtrField<internal::Sizes>;

  // `serving` runs now.
  CandidatePlans(CompiledPlan serving, const Graph& graph, KernelMaker maker, TunerProcess* tuner,
                 const internal::TargetReply& machine, const CandidateMemory* memory,
                 const PlanSearchOptions& options, SearchSteps* steps, SearchRecord* record);

  // Measures the plan of the step; one that wins waits to be verified. `last_try`: a plan that
  // could not be measured for requests before `end` has failed. Else the errors are CANCELLED and
  // ABORTED.
  absl::Status Try(bool last_try, SearchSteps::Time end);
  bool has_winner() const { return winner_.has_value(); }
  // Verifies some of the winner. Returns it once it is right; nullopt: not yet, or it is wrong.
  // Errors as of Try.
  absl::StatusOr<std::optional<CompiledPlan>> Verify();
  // Tells whether the plan that was found serves now.
  void Taken(const absl::Status& taken);

  // Returns the bytes between the steps of the baseline, by size, whatever serves: a search could
  // not take over times that were measured among other bytes. Errors as of Try.
  absl::StatusOr<std::vector<int64_t>> ActivationBytesOf(const Sizes& sizes);
  // Times the serving plan whole beside `other`, in turn.
  absl::StatusOr<v1::PlanComparison> CompareWith(const CompiledPlan& other);
  // Returns the cost of each step of `plan` at the sizes of the search.
  absl::StatusOr<std::vector<v1::PlanCost>> Costs(const CompiledPlan& plan);

 private:
  // How one plan's time relates to another's.
  struct Comparison {
    double ratio = 1;          // geometric mean over the sizes
    double low = 1, high = 1;  // the least and the most of it that the times allow
    double worst = 1;          // the largest ratio of a size at which it is surely slower
  };

  // On an error `fault` is what it failed at.
  absl::StatusOr<CompiledPlan> Make(const internal::SearchPlan& plan, FailureKind* fault);
  // `after` by `before`, timed in turn.
  absl::StatusOr<Comparison> Compare(const CompiledPlan& before, const CompiledPlan& after,
                                     const Sizes& sizes);
  internal::MeasureRequest RequestFor(std::initializer_list<const CompiledPlan*> plans,
                                      const Sizes& sizes) const;
  // Says what the plan was made by and which of its kernels do not serve yet.
  std::string About(const v1::Plan& plan) const;
  // Shows the step's plan, or one found before, among what was put aside.
  void ShowFailed(const v1::Plan& plan, const absl::Status& status, bool from_cache = false);
  // The step's plan cannot be used.
  void Fail(const CandidateMemory::PlanFailure& failure, bool from_cache = false);

  CompiledPlan serving_;
  KernelMaker maker_;
  TunerProcess& tuner_;
  const internal::TargetReply& machine_;
  const CandidateMemory& memory_;
  SearchSteps& steps_;
  SearchRecord& record_;
  PlanVerifier verifier_;
  std::optional<CompiledPlan> winner_;  // faster, not verified
  std::optional<CompiledPlan> found_;
  std::string about_;  // SearchPlan.about of the plan tried last
  double ratio_ = 1;   // of that plan
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_CANDIDATE_PLANS_H_
