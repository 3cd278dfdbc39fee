#include "server/search/tuner_plan_search.h"

#include <utility>

#include "server/base/machine_id.h"

namespace athanor {
namespace {

v1::CompileJob::StopReason StopReasonOf(const std::string& stop) {
  if (stop == "roofline") return v1::CompileJob::STOP_ROOFLINE;
  if (stop == "stagnation") return v1::CompileJob::STOP_STAGNATION;
  if (stop == "budget") return v1::CompileJob::STOP_BUDGET;
  return v1::CompileJob::STOP_EXHAUSTED;
}

}  // namespace

TunerPlanSearch::TunerPlanSearch(uint64_t session, const Graph& graph, CompiledPlan serving,
                                 KernelMaker maker, TunerProcess* tuner,
                                 const internal::TargetReply& machine, MachineLimits* limits,
                                 const PlanSearchOptions& options, Searches* searches)
    : tuner_(*tuner),
      searches_(searches),
      memory_(maker.cache(), &machine, ClocksText(), graph, options),
      steps_(session, graph, tuner, machine, maker.cache(), &memory_, limits, options, &record_),
      kernels_(maker, tuner, machine, &memory_, limits, &steps_, &record_),
      plans_(std::move(serving), graph, maker, tuner, machine, &memory_, options, &steps_,
             &record_) {}

std::vector<absl::StatusOr<std::string>> TunerPlanSearch::TakePictures() {
  std::vector<absl::StatusOr<std::string>> pictures;
  for (internal::RegionPicture& picture : steps_.TakePictures()) {
    if (picture.error().empty()) {
      pictures.emplace_back(std::move(*picture.mutable_dot()));
    } else {
      pictures.emplace_back(absl::FailedPreconditionError(picture.error()));
    }
  }
  return pictures;
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::Next() {
  const TunerProcess::Background background(&tuner_, end_);
  const Searches::Work work(searches_);
  absl::StatusOr<Step> step = Work();
  // Nothing is at fault: it is tried again while there is time.
  if (absl::IsAborted(step.status())) step = Step{};
  const bool ended = step.ok() && (step->found.has_value() || step->stop.has_value());
  if (step.ok() && !ended && Over()) step->stop = v1::CompileJob::STOP_BUDGET;
  return step;
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::Work() {
  const internal::SearchReply& step = steps_.step();
  if (kernels_.empty() && !step.has_plan()) {
    if (step.done()) return Step{.stop = StopReasonOf(step.stop())};
    if (absl::Status s = steps_.Ask(finishing_, end_); !s.ok()) return s;
    kernels_.Begin();
    if (step.done()) return AtEnd();
  }
  if (!kernels_.empty()) return TryKernels();
  if (plans_.has_winner()) return VerifyWinner();
  // The last plan has one more try: a build may have been in its way, and no further step runs
  // beside one.
  const absl::Status tried = plans_.Try(finishing_ && last_try_, end_);
  if (absl::IsAborted(tried) && finishing_ && !Over()) last_try_ = true;
  if (!tried.ok()) return tried;
  if (!plans_.has_winner()) steps_.ClearPlan();
  return Step{};
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::AtEnd() {
  const v1::CompileJob::StopReason reason = StopReasonOf(steps_.step().stop());
  if (reason != v1::CompileJob::STOP_ROOFLINE) return Step{.stop = reason};
  // Near limits that were measured too low is not near.
  absl::StatusOr<bool> raised = steps_.LearnLimits(MachineLimits::When::kNow, end_);
  if (!raised.ok()) return raised.status();
  if (!*raised) return Step{.stop = reason};
  steps_.GoOn();
  return Step{};
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::TryKernels() {
  if (finishing_) {
    kernels_.Leave();
    return Step{};
  }
  if (activation_bytes_.empty()) {
    auto bytes = plans_.ActivationBytesOf(steps_.step().sizes());
    if (!bytes.ok()) return bytes.status();
    activation_bytes_ = *std::move(bytes);
  }
  if (absl::Status s = kernels_.Try(activation_bytes_, end_); !s.ok()) return s;
  return Step{};
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::VerifyWinner() {
  absl::StatusOr<std::optional<CompiledPlan>> found = plans_.Verify();
  if (!found.ok()) return found.status();
  if (!plans_.has_winner()) steps_.ClearPlan();
  return Step{.found = *std::move(found)};
}

absl::StatusOr<v1::PlanComparison> TunerPlanSearch::CompareWith(const CompiledPlan& other) {
  const TunerProcess::Background background(&tuner_, end_);
  const Searches::Work work(searches_);
  return plans_.CompareWith(other);
}

absl::StatusOr<std::vector<v1::PlanCost>> TunerPlanSearch::Costs(const CompiledPlan& plan) {
  const TunerProcess::Background background(&tuner_, end_);
  const Searches::Work work(searches_);
  auto learnt = steps_.LearnLimits(MachineLimits::When::kDue, end_);
  if (!learnt.ok()) return learnt.status();
  return plans_.Costs(plan);
}

}  // namespace athanor
