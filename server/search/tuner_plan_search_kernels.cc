// A search's kernels: what the cache remembers of them, else compiled, measured alone, checked.
#include <string>
#include <utility>
#include <vector>

#include "server/search/plan_cost.h"
#include "server/search/tuner_plan_search.h"

namespace athanor {

void TunerPlanSearch::Record(const std::string& key,
                             const absl::StatusOr<std::vector<double>>& outcome) {
  internal::KernelOutcome told;
  told.set_key(key);
  if (outcome.ok()) {
    told.mutable_seconds()->Assign(outcome->begin(), outcome->end());
  } else {
    told.set_code(static_cast<int>(outcome.status().code()));
    told.set_message(std::string(outcome.status().message()));
  }
  *news_.add_kernels() = told;
  kernels_[key] = std::move(told);
}

// Of the baseline, also where a better plan serves: times measured among other bytes would be none
// that a search could take over from the one before.
absl::Status TunerPlanSearch::LearnActivations(const Sizes& sizes) {
  if (!activation_bytes_.empty()) return absl::OkStatus();
  const v1::Plan* plan = &serving_.plan;
  if (plan->kind() == kSearchedPlan) {
    const absl::StatusOr<const v1::Plan*> baseline =
        Timed("search", [&] { return verifier_.BaselinePlan(); });
    if (absl::IsCancelled(baseline.status()) || absl::IsAborted(baseline.status())) {
      return baseline.status();
    }
    if (baseline.ok()) plan = *baseline;
  }
  for (const internal::Sizes& size : sizes) {
    const std::vector<int64_t> dims(size.values().begin(), size.values().end());
    activation_bytes_.push_back(ActivationBytes(*plan, dims));
  }
  return absl::OkStatus();
}

void TunerPlanSearch::FailKernel(const internal::SearchKernel& kernel, const absl::Status& status,
                                 bool from_cache) {
  const v1::Plan& plan = kernel.check().plan();
  // The task's own kernel is the last: what packs its weights comes before.
  const v1::Kernel& last = plan.kernels(plan.run(plan.run_size() - 1).kernel());
  v1::SearchFailure failure;
  failure.set_kernel(last.source_hash());
  failure.set_about(last.name());
  failure.set_from_cache(from_cache);
  Fail(std::move(failure), status);
}

absl::Status TunerPlanSearch::TryKernel(const internal::SearchKernel& kernel) {
  if (absl::Status s = LearnActivations(kernel.sizes()); !s.ok()) return s;
  const CandidateMemory::Kernel of = memory_.Of(kernel, activation_bytes_);
  if (const auto known = memory_.Find(of, kernel)) {
    progress_.set_candidates_from_cache(progress_.candidates_from_cache() + 1);
    if (!known->ok()) FailKernel(kernel, known->status(), /*from_cache=*/true);
    Record(kernel.key(), *known);
    return absl::OkStatus();
  }
  std::optional<FailureKind> fault;
  const absl::StatusOr<TimingRow> row = MeasureKernel(kernel, &fault);
  if (absl::IsCancelled(row.status()) || absl::IsAborted(row.status())) return row.status();
  maker_.CountCandidate();
  if (row.ok()) {
    memory_.Put(of, *row);
    Record(kernel.key(), row->seconds);
    return absl::OkStatus();
  }
  FailKernel(kernel, row.status(), /*from_cache=*/false);
  if (fault.has_value()) memory_.PutFailure(of, *fault, row.status());
  Record(kernel.key(), row.status());
  return absl::OkStatus();
}

void TunerPlanSearch::LeaveKernels() {
  for (; next_kernel_ < step_.kernels_size(); ++next_kernel_) {
    Record(step_.kernels(next_kernel_).key(),
           absl::AbortedError("not measured: the search's time is up"));
  }
}

absl::StatusOr<TimingRow> TunerPlanSearch::MeasureKernel(const internal::SearchKernel& kernel,
                                                         std::optional<FailureKind>* fault) {
  internal::CheckRequest check = kernel.check();
  *fault = FailureKind::kCompile;
  const absl::Status compiled = Timed("compile", [&] { return maker_.AddObjects(&check); });
  if (!compiled.ok()) return compiled;
  internal::MeasureRequest request;
  internal::MeasuredPlan* measured = request.add_plans();
  *measured->mutable_plan() = check.plan();
  *measured->mutable_objects() = check.objects();
  request.set_graph_text(check.graph_text());
  *request.mutable_sizes() = kernel.sizes();
  request.set_seed(check.seed() + 1);
  request.set_weight_bytes(kernel.weight_bytes());
  request.mutable_activation_bytes()->Assign(activation_bytes_.begin(), activation_bytes_.end());
  *request.mutable_give_up_seconds() = kernel.give_up_seconds();
  request.set_threads(machine_.target().threads());
  const auto measure = [&]() -> absl::StatusOr<TimingRow> {
    const int64_t child = tuner_.starts();
    absl::StatusOr<internal::MeasureReply> times =
        Timed("measure", [&] { return tuner_.Measure(request); });
    if (!times.ok()) {
      // Kernels run in a process of their own: a child that was lost was lost for something else.
      const bool lost = tuner_.pid() < 0 || tuner_.starts() != child;
      *fault = lost ? std::nullopt : std::optional(FailureKind::kMeasure);
      return times.status();
    }
    TimingRow row;
    for (const internal::SizeTimes& size : times->plans(0).sizes()) {
      row.seconds.push_back(size.seconds());
      row.low.push_back(size.low());
      row.high.push_back(size.high());
      row.rounds = size.rounds();
    }
    return row;
  };
  absl::StatusOr<TimingRow> row = measure();
  if (!row.ok()) return row;
  NoteReached(check.plan(), kernel.sizes(), row->seconds);
  const bool first = kernel.best_seconds().empty();
  // Only what may be chosen has to be right: one that is slower in the sum never is.
  if (!first && !FasterThanBest(row->seconds, kernel)) return row;
  const v1::Kernel& about = check.plan().kernels(check.plan().kernels_size() - 1);
  *fault = FailureKind::kCheck;
  const absl::Status right = Timed("check", [&] { return maker_.Check(check, about); });
  if (!right.ok()) return right;
  // The least of many times is low by luck, too: what wins is measured again, and that time counts.
  if (!first) row = measure();
  if (row.ok()) row->checked = true;
  return row;
}

void TunerPlanSearch::NoteReached(const v1::Plan& plan, const Sizes& sizes,
                                  absl::Span<const double> seconds) {
  for (int s = 0; s < sizes.size(); ++s) {
    const std::vector<int64_t> dims(sizes[s].values().begin(), sizes[s].values().end());
    const double share = ReachedShare(plan, dims, seconds[s], Known());
    if (share > 1) limits_.Beaten(share);
  }
}

}  // namespace athanor
