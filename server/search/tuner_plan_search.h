// The search of a tuner process (compiler/search), driven from here: what it asks for is compiled,
// checked and measured one candidate at a time, and told to it; a plan that is faster is verified
// whole before it is found (plan_verifier.h). All outcomes are kept here, so a
// child that was lost costs the candidate it was working on; the next child goes on from the
// others. What earlier searches on the same cache found out is told instead of being tried
// (candidate_memory.h); plans that may win are measured anew.
#ifndef ATHANOR_SERVER_SEARCH_TUNER_PLAN_SEARCH_H_
#define ATHANOR_SERVER_SEARCH_TUNER_PLAN_SEARCH_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/plans/plan_search.h"
#include "server/search/candidate_memory.h"
#include "server/search/kernel_maker.h"
#include "server/search/machine_limits.h"
#include "server/search/plan_verifier.h"
#include "server/search/tuner_process.h"

namespace athanor {

class TunerPlanSearch final : public PlanSearch {
 public:
  // `serving` runs now. Borrows the maker, the tuner, the machine and its limits.
  TunerPlanSearch(uint64_t session, const Graph& graph, CompiledPlan serving, KernelMaker maker,
                  TunerProcess* tuner, const internal::TargetReply& machine, MachineLimits* limits,
                  const PlanSearchOptions& options);

  ~TunerPlanSearch() override { tuner_.EndSearch(session_); }

  absl::StatusOr<Step> Next() override;
  void Finish() override { finishing_ = true; }
  void Until(std::chrono::steady_clock::time_point end) override { end_ = end; }
  void Taken(const absl::Status& taken) override;
  const v1::SearchProgress& progress() const override { return progress_; }
  std::vector<absl::StatusOr<std::string>> TakePictures() override;
  absl::StatusOr<v1::PlanComparison> CompareWith(const CompiledPlan& other) override;
  absl::StatusOr<std::vector<v1::PlanCost>> Costs(const CompiledPlan& plan) override;

 private:
  // As Next; ABORTED: the time is up, or requests left none to measure.
  absl::StatusOr<Step> Work();
  bool Over() const { return std::chrono::steady_clock::now() >= end_; }
  using Sizes = google::protobuf::RepeatedPtrField<internal::Sizes>;
  // Adds the time that `work` takes to what the progress says of `on`; returns what it returns.
  template <typename Work>
  auto Timed(const char* on, Work work) {
    const auto start = std::chrono::steady_clock::now();
    auto result = work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    AddTime(on, took.count());
    return result;
  }
  void AddTime(const char* on, double seconds);
  absl::Status Ask();
  absl::StatusOr<internal::MachineReply> MeasureMachine();
  // The limits as they are known, measured again where that is due, or now: what the search begins
  // with or, if they were raised, is told next. True: they were.
  absl::StatusOr<bool> LearnLimits(MachineLimits::When when);
  // The limits that the search knows.
  const internal::MachineReply& Known() const {
    return raised_.empty() ? start_.machine() : raised_.back().machine();
  }
  // What the cache knows of the graph's regions, for start_. The one error is CANCELLED.
  absl::Status LearnRecipes();
  // Those of the step, which is the last one.
  void KeepRecipes();
  // What lies beside the kernels that are measured, at these sizes. The one error is CANCELLED.
  absl::Status LearnActivations(const Sizes& sizes);
  // What is known of it, else compiles, checks and measures; only CANCELLED and ABORTED (there was
  // no time to measure, to be tried again) are errors, all else is an outcome.
  absl::Status TryKernel(const internal::SearchKernel& kernel);
  // Those of the step that are left have no time to be tried.
  void LeaveKernels();
  // On an error `fault` is what the kernel failed at; none: it may not be the kernel's.
  absl::StatusOr<TimingRow> MeasureKernel(const internal::SearchKernel& kernel,
                                          std::optional<FailureKind>* fault);
  // On an error `fault` is what it failed at.
  absl::StatusOr<CompiledPlan> MakePlan(const internal::SearchPlan& plan, FailureKind* fault);
  // Measures the plan of the step; one that wins becomes `winner_`.
  absl::Status TryPlan();
  // Goes on verifying `winner_`; the step has `found` when it is right.
  absl::StatusOr<Step> VerifyWinner();
  // How one plan's time relates to another's.
  struct Comparison {
    double ratio = 1;          // geometric mean over the sizes
    double low = 1, high = 1;  // the least and the most of it that the times allow
    double worst = 1;          // the largest ratio of a size at which it is surely slower
  };
  // Has the limits measured again where the kernel of `plan` was faster than they allow.
  void NoteReached(const v1::Plan& plan, const Sizes& sizes, absl::Span<const double> seconds);
  // `after` by `before`, timed in turn.
  absl::StatusOr<Comparison> Compare(const CompiledPlan& before, const CompiledPlan& after,
                                     const Sizes& sizes);
  internal::MeasureRequest RequestFor(std::initializer_list<const CompiledPlan*> plans,
                                      const Sizes& sizes) const;
  // Whether a plan that could not be measured for requests is tried again: once when the search is
  // to finish, since what was in the way may have been a build, which no further step runs beside.
  bool TryAgain(const absl::Status& status);
  void Record(const std::string& key, const absl::StatusOr<std::vector<double>>& outcome);
  void Fail(v1::SearchFailure failure, const absl::Status& status);
  void FailKernel(const internal::SearchKernel& kernel, const absl::Status& status,
                  bool from_cache);
  // What the step's plan was made by and which of its kernels do not serve yet.
  std::string About(const v1::Plan& plan) const;
  // Shows the step's plan, or one found before, among what was put aside.
  void ShowFailed(const v1::Plan& plan, const absl::Status& status, bool from_cache = false);
  // The step's plan cannot be used.
  void FailPlan(const CandidateMemory::PlanFailure& failure, bool from_cache = false);
  void RecordPlan(internal::PlanOutcome outcome);

  const uint64_t session_;
  const std::string graph_text_;
  KernelMaker maker_;
  TunerProcess& tuner_;
  const internal::TargetReply& machine_;
  MachineLimits& limits_;
  internal::SearchStart start_;  // its limits are those of the first step
  const bool recipes_;           // are tried and kept
  bool recipes_learnt_ = false;
  CompiledPlan serving_;

  // Everything told so far, for a child that has to begin again; and what is still to be told.
  std::map<std::string, internal::KernelOutcome> kernels_;
  std::map<std::string, internal::PlanOutcome> plans_;
  std::vector<internal::RaisedLimits> raised_;
  internal::SearchRequest news_;
  int64_t child_ = -1;  // TunerProcess::starts() of the child that knows the session

  internal::SearchReply step_;
  int next_kernel_ = 0;  // of step_
  // What lies between the baseline's steps, by size; all kernels are measured among as much. Empty:
  // none was asked for yet.
  std::vector<int64_t> activation_bytes_;
  bool finishing_ = false;
  bool last_try_ = false;  // finishing, and there were no gaps to measure in
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
  std::optional<CompiledPlan> winner_;  // faster, not verified
  PlanVerifier verifier_;
  const CandidateMemory memory_;
  std::optional<CompiledPlan> found_;
  std::string found_about_;  // SearchPlan.about of the plan tried last
  double found_ratio_ = 1;
  v1::SearchProgress progress_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_TUNER_PLAN_SEARCH_H_
