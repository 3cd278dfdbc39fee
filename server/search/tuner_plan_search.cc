#include "server/search/tuner_plan_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/machine_id.h"
#include "server/search/plan_cost.h"

namespace athanor {
namespace {

constexpr int kFailuresKept = 8;
constexpr int kKernelsNamed = 6;  // of a plan that was put aside
// A plan takes over when it is faster by more than this and by more than the noise.
constexpr double kLeastGain = 0.01;

v1::CompileJob::StopReason StopReasonOf(const std::string& stop) {
  if (stop == "roofline") return v1::CompileJob::STOP_ROOFLINE;
  if (stop == "stagnation") return v1::CompileJob::STOP_STAGNATION;
  if (stop == "budget") return v1::CompileJob::STOP_BUDGET;
  return v1::CompileJob::STOP_EXHAUSTED;
}

void AddPlan(const CompiledPlan& plan, internal::MeasureRequest* request) {
  internal::MeasuredPlan* measured = request->add_plans();
  *measured->mutable_plan() = plan.plan;
  for (const KernelObject& object : plan.objects) measured->add_objects(object.object);
}

}  // namespace

TunerPlanSearch::TunerPlanSearch(uint64_t session, const Graph& graph, CompiledPlan serving,
                                 KernelMaker maker, TunerProcess* tuner,
                                 const internal::TargetReply& machine, MachineLimits* limits,
                                 const PlanSearchOptions& options)
    : session_(session),
      graph_text_(ToText(graph)),
      maker_(maker),
      tuner_(*tuner),
      machine_(machine),
      limits_(*limits),
      recipes_(options.recipes),
      serving_(std::move(serving)),
      verifier_(graph, maker, tuner, machine.target(), options.seed, options.approximate),
      memory_(maker.cache(), &machine_, ClocksText(), graph, options) {
  start_.set_graph_text(graph_text_);
  *start_.mutable_target() = machine.target();
  start_.set_seed(options.seed);
  start_.set_max_kernels(options.max_candidates);
  start_.set_mode(options.mode);
  start_.mutable_disabled_rules()->Assign(options.disabled_rules.begin(),
                                          options.disabled_rules.end());
  start_.set_approximate(options.approximate);
  progress_.set_best(1);
  progress_.set_predicted(1);
}

void TunerPlanSearch::AddTime(const char* on, double seconds) {
  v1::SearchTime* time = nullptr;
  for (v1::SearchTime& t : *progress_.mutable_times()) {
    if (t.on() == on) time = &t;
  }
  if (time == nullptr) {
    time = progress_.add_times();
    time->set_on(on);
  }
  time->set_seconds(time->seconds() + seconds);
  time->set_calls(time->calls() + 1);
}

absl::StatusOr<internal::MachineReply> TunerPlanSearch::MeasureMachine() {
  const TunerProcess::Background background(&tuner_, end_);
  const auto measure = [&] {
    return tuner_.Machine(machine_.target(), machine_.target().threads());
  };
  absl::StatusOr<internal::MachineReply> measured = Timed("limits", measure);
  // Without limits there is no search: a child that is lost once may have been lost for something
  // else.
  if (!start_.has_machine() && WorthRetrying(measured.status())) return Timed("limits", measure);
  return measured;
}

absl::StatusOr<bool> TunerPlanSearch::LearnLimits(MachineLimits::When when) {
  absl::StatusOr<internal::MachineReply> limits =
      limits_.Get([&] { return MeasureMachine(); }, when, end_);
  if (!limits.ok()) return limits.status();
  if (!start_.has_machine()) {
    *start_.mutable_machine() = *std::move(limits);
    return true;
  }
  if (!Raised(Known(), *limits)) return false;
  internal::RaisedLimits& raised = raised_.emplace_back();
  raised.set_steps(step_.steps());
  *raised.mutable_machine() = *std::move(limits);
  *news_.add_limits() = raised;
  return true;
}

absl::Status TunerPlanSearch::Ask() {
  if (absl::Status s = LearnRecipes(); !s.ok()) return s;
  for (int losses = 0;; ++losses) {
    internal::SearchRequest request;
    if (child_ == tuner_.starts() && tuner_.pid() >= 0) {
      request = news_;
    } else {
      *request.mutable_start() = start_;
      for (const auto& [key, outcome] : kernels_) *request.add_kernels() = outcome;
      for (const auto& [id, outcome] : plans_) *request.add_plans() = outcome;
      for (const internal::RaisedLimits& raised : raised_) *request.add_limits() = raised;
    }
    request.set_session(session_);
    request.set_finish(finishing_);
    absl::StatusOr<internal::SearchReply> step = tuner_.Search(request);
    if (step.ok()) {
      child_ = tuner_.starts();
      step_ = *std::move(step);
      break;
    }
    const bool forgotten = absl::IsFailedPrecondition(step.status()) && !request.has_start();
    if (absl::IsCancelled(step.status()) || losses >= 2 ||
        !(forgotten || WorthRetrying(step.status()))) {
      return step.status();
    }
    child_ = -1;
  }
  news_.Clear();
  next_kernel_ = 0;
  KeepRecipes();
  // What only this side knows is carried over.
  v1::SearchProgress progress = step_.progress();
  progress.set_plans_measured(progress_.plans_measured());
  progress.set_plans_taken(progress_.plans_taken());
  progress.set_plans_failed(progress_.plans_failed());
  progress.set_best(progress_.best());
  progress.set_candidates_from_cache(progress_.candidates_from_cache());
  progress.set_failures_from_cache(progress_.failures_from_cache());
  *progress.mutable_failures() = progress_.failures();
  *progress.mutable_times() = progress_.times();
  progress_ = std::move(progress);
  return absl::OkStatus();
}

std::vector<absl::StatusOr<std::string>> TunerPlanSearch::TakePictures() {
  std::vector<absl::StatusOr<std::string>> pictures;
  for (internal::RegionPicture& picture : *step_.mutable_pictures()) {
    if (picture.error().empty()) {
      pictures.emplace_back(std::move(*picture.mutable_dot()));
    } else {
      pictures.emplace_back(absl::FailedPreconditionError(picture.error()));
    }
  }
  step_.clear_pictures();
  return pictures;
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::Next() {
  const TunerProcess::Background background(&tuner_, end_);
  absl::StatusOr<Step> step = Work();
  // Nothing is at fault: it is tried again while there is time.
  if (absl::IsAborted(step.status())) step = Step{};
  const bool ended = step.ok() && (step->found.has_value() || step->stop.has_value());
  if (step.ok() && !ended && Over()) step->stop = v1::CompileJob::STOP_BUDGET;
  return step;
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::Work() {
  const bool nothing = next_kernel_ >= step_.kernels_size() && !step_.has_plan();
  if (nothing) {
    if (step_.done()) return Step{.stop = StopReasonOf(step_.stop())};
    if (auto learnt = LearnLimits(MachineLimits::When::kDue); !learnt.ok()) return learnt.status();
    if (absl::Status s = Timed("search", [&] { return Ask(); }); !s.ok()) return s;
    if (step_.done()) {
      const v1::CompileJob::StopReason reason = StopReasonOf(step_.stop());
      if (reason != v1::CompileJob::STOP_ROOFLINE) return Step{.stop = reason};
      // Near limits that were measured too low is not near.
      absl::StatusOr<bool> raised = LearnLimits(MachineLimits::When::kNow);
      if (!raised.ok()) return raised.status();
      if (!*raised) return Step{.stop = reason};
      step_.clear_done();
      return Step{};
    }
  }
  if (next_kernel_ < step_.kernels_size()) {
    if (finishing_) {
      LeaveKernels();
      return Step{};
    }
    const absl::Status tried = TryKernel(step_.kernels(next_kernel_));
    if (!tried.ok()) return tried;
    ++next_kernel_;
    return Step{};
  }
  if (winner_) return Timed("verify", [&] { return VerifyWinner(); });
  if (const absl::Status tried = TryPlan(); !tried.ok()) return tried;
  if (!winner_) step_.clear_plan();
  return Step{};
}

bool TunerPlanSearch::TryAgain(const absl::Status& status) {
  if (!absl::IsAborted(status)) return false;
  return !finishing_ || Over() || !std::exchange(last_try_, true);
}

void TunerPlanSearch::Fail(v1::SearchFailure failure, const absl::Status& status) {
  LogInfo("candidate put aside", {{"about", failure.about()},
                                  {"source_hash", failure.kernel()},
                                  {"plan", failure.plan_id()},
                                  {"from_cache", failure.from_cache()},
                                  {"error", status.ToString()}});
  if (failure.from_cache()) progress_.set_failures_from_cache(progress_.failures_from_cache() + 1);
  failure.set_code(static_cast<int>(status.code()));
  failure.set_message(std::string(status.message()));
  v1::SearchProgress kept;
  *kept.add_failures() = std::move(failure);
  for (const v1::SearchFailure& f : progress_.failures()) {
    if (kept.failures_size() < kFailuresKept) *kept.add_failures() = f;
  }
  progress_.mutable_failures()->Swap(kept.mutable_failures());
}

absl::StatusOr<TunerPlanSearch::Comparison> TunerPlanSearch::Compare(const CompiledPlan& before,
                                                                     const CompiledPlan& after,
                                                                     const Sizes& sizes) {
  internal::MeasureRequest request = RequestFor({&before, &after}, sizes);
  absl::StatusOr<internal::MeasureReply> times = tuner_.Measure(request);
  // A child that is lost once may have been lost for something else.
  if (WorthRetrying(times.status())) times = tuner_.Measure(request);
  if (!times.ok()) return times.status();
  double ratio = 0, low = 0, high = 0, worst = 0;
  const int count = times->plans(0).sizes_size();
  for (int s = 0; s < count; ++s) {
    const internal::SizeTimes& was = times->plans(0).sizes(s);
    const internal::SizeTimes& is = times->plans(1).sizes(s);
    ratio += std::log(is.seconds() / was.seconds()) / count;
    low += std::log(is.low() / was.high()) / count;
    high += std::log(is.high() / was.low()) / count;
    if (is.low() > was.high()) worst = std::max(worst, is.seconds() / was.seconds());
  }
  return Comparison{std::exp(ratio), std::exp(low), std::exp(high), worst};
}

internal::MeasureRequest TunerPlanSearch::RequestFor(
    std::initializer_list<const CompiledPlan*> plans, const Sizes& sizes) const {
  internal::MeasureRequest request;
  for (const CompiledPlan* plan : plans) AddPlan(*plan, &request);
  request.set_graph_text(graph_text_);
  *request.mutable_sizes() = sizes;
  request.set_seed(start_.seed());
  request.set_threads(machine_.target().threads());
  return request;
}

absl::StatusOr<v1::PlanComparison> TunerPlanSearch::CompareWith(const CompiledPlan& other) {
  v1::PlanComparison comparison;
  comparison.set_plan_id(serving_.plan.plan_id());
  comparison.set_against(other.plan.plan_id());
  comparison.set_ratio(1);
  comparison.set_low(1);
  comparison.set_high(1);
  if (comparison.plan_id() == comparison.against()) return comparison;
  const TunerProcess::Background background(&tuner_, end_);
  absl::StatusOr<Comparison> times = Compare(other, serving_, step_.sizes());
  if (!times.ok()) return times.status();
  comparison.set_ratio(times->ratio);
  comparison.set_low(times->low);
  comparison.set_high(times->high);
  return comparison;
}

absl::StatusOr<std::vector<v1::PlanCost>> TunerPlanSearch::Costs(const CompiledPlan& plan) {
  const TunerProcess::Background background(&tuner_, end_);
  if (auto learnt = LearnLimits(MachineLimits::When::kDue); !learnt.ok()) return learnt.status();
  internal::MeasureRequest request = RequestFor({&plan}, step_.sizes());
  request.set_steps(true);
  absl::StatusOr<internal::MeasureReply> times = tuner_.Measure(request);
  if (!times.ok()) return times.status();
  std::vector<v1::PlanCost> costs;
  for (int i = 0; i < step_.sizes_size(); ++i) {
    const auto& values = step_.sizes(i).values();
    v1::PlanCost& cost = costs.emplace_back(
        CountCost(plan.plan, std::vector<int64_t>(values.begin(), values.end()), Known()));
    const internal::SizeTimes& measured = times->plans(0).sizes(i);
    for (int s = 0; s < std::min(cost.steps_size(), measured.step_seconds_size()); ++s) {
      cost.mutable_steps(s)->set_seconds(measured.step_seconds(s));
    }
  }
  return costs;
}

absl::StatusOr<CompiledPlan> TunerPlanSearch::MakePlan(const internal::SearchPlan& plan,
                                                       FailureKind* fault) {
  CompiledPlan made{plan.plan(), {}, {}};
  *fault = FailureKind::kCompile;
  for (const v1::Kernel& kernel : plan.plan().kernels()) {
    absl::StatusOr<KernelObject> object = Timed("compile", [&] { return maker_.Compile(kernel); });
    if (!object.ok()) return object.status();
    made.objects.push_back(*std::move(object));
  }
  for (internal::KernelCheck check : plan.checks()) {
    if (absl::Status s = maker_.AddObjects(check.mutable_request()); !s.ok()) return s;
    const v1::Kernel& about = plan.plan().kernels(check.kernel());
    *fault = FailureKind::kCheck;
    const absl::Status passed =
        Timed("check", [&] { return maker_.Check(check.request(), about); });
    if (!passed.ok()) return passed;
  }
  return made;
}

std::string TunerPlanSearch::About(const v1::Plan& plan) const {
  std::set<std::string> serving;
  for (const v1::Kernel& kernel : serving_.plan.kernels()) serving.insert(kernel.source_hash());
  std::string about = "plan";
  if (!found_about_.empty()) absl::StrAppend(&about, " of ", found_about_);
  int named = 0;
  for (const v1::Kernel& kernel : plan.kernels()) {
    if (serving.contains(kernel.source_hash()) || ++named > kKernelsNamed) continue;
    absl::StrAppend(&about, named == 1 ? ", with " : " ", kernel.name());
  }
  return about;
}

void TunerPlanSearch::ShowFailed(const v1::Plan& plan, const absl::Status& status,
                                 bool from_cache) {
  v1::SearchFailure failure;
  failure.set_plan_id(plan.plan_id());
  failure.set_about(About(plan));
  failure.set_from_cache(from_cache);
  progress_.set_plans_failed(progress_.plans_failed() + 1);
  Fail(std::move(failure), status);
}

void TunerPlanSearch::FailPlan(const CandidateMemory::PlanFailure& failure, bool from_cache) {
  const absl::Status& status = failure.status;
  ShowFailed(step_.plan().plan(), status, from_cache);
  if (!from_cache) memory_.PutFailure(step_.plan(), failure);
  internal::PlanOutcome outcome;
  outcome.set_plan_id(step_.plan().plan().plan_id());
  outcome.set_code(static_cast<int>(status.code()));
  outcome.set_message(std::string(status.message()));
  // Its kernels are right, each for its part, and the whole is not.
  outcome.set_wrong(failure.kind == FailureKind::kPlanCheck && absl::IsDataLoss(status));
  RecordPlan(std::move(outcome));
}

absl::Status TunerPlanSearch::TryPlan() {
  const internal::SearchPlan& plan = step_.plan();
  const std::string& id = plan.plan().plan_id();
  found_about_ = plan.about();
  if (const auto known = memory_.FindFailure(plan)) {
    FailPlan(*known, /*from_cache=*/true);
    return absl::OkStatus();
  }
  FailureKind fault = FailureKind::kMeasure;
  absl::StatusOr<CompiledPlan> made = MakePlan(plan, &fault);
  if (made.ok()) fault = FailureKind::kMeasure;
  const auto compare = [&] { return Compare(serving_, *made, plan.sizes()); };
  absl::StatusOr<Comparison> times = made.ok() ? Timed("plans", compare) : made.status();
  if (absl::IsCancelled(times.status()) || TryAgain(times.status())) return times.status();
  progress_.set_plans_measured(progress_.plans_measured() + 1);
  maker_.CountCandidate();
  if (!times.ok()) {
    FailPlan({fault, times.status()});
    return absl::OkStatus();
  }
  LogInfo(
      "plan measured",
      {{"plan", id}, {"ratio", times->ratio}, {"surely", times->high}, {"worst", times->worst}});
  // What is faster on the whole is not taken if calls of some size would notice how much slower it
  // is.
  const bool faster = times->ratio <= 1 - kLeastGain && times->high <= 1 + kLeastGain;
  const bool nowhere_slower = times->worst <= 1 + 2 * kLeastGain;
  if (!faster || !nowhere_slower) {
    internal::PlanOutcome outcome;
    outcome.set_plan_id(id);
    outcome.set_ratio(faster ? times->worst : times->ratio);
    RecordPlan(std::move(outcome));
    return absl::OkStatus();
  }
  winner_ = *std::move(made);
  found_ratio_ = times->ratio;
  return absl::OkStatus();
}

absl::StatusOr<PlanSearch::Step> TunerPlanSearch::VerifyWinner() {
  absl::StatusOr<bool> prepared = verifier_.Prepare();
  if (!prepared.ok()) return prepared.status();
  if (!*prepared) return Step{};
  absl::Status right = verifier_.Verify(*winner_, step_.plan().sizes());
  if (WorthRetrying(right)) right = verifier_.Verify(*winner_, step_.plan().sizes());
  if (absl::IsCancelled(right) || absl::IsAborted(right)) return right;
  if (right.ok()) {
    found_ = *std::move(winner_);
  } else {
    FailPlan({FailureKind::kPlanCheck, right});
  }
  winner_.reset();
  step_.clear_plan();
  return right.ok() ? Step{.found = *found_} : Step{};
}

void TunerPlanSearch::Taken(const absl::Status& taken) {
  if (!found_) return;
  internal::PlanOutcome outcome;
  outcome.set_plan_id(found_->plan.plan_id());
  outcome.set_taken(taken.ok());
  outcome.set_ratio(found_ratio_);
  RecordPlan(std::move(outcome));
  if (!taken.ok()) ShowFailed(found_->plan, taken);
  if (taken.ok()) {
    serving_ = *std::move(found_);
    progress_.set_plans_taken(progress_.plans_taken() + 1);
    progress_.set_best(progress_.best() * found_ratio_);
  }
  found_.reset();
}

void TunerPlanSearch::RecordPlan(internal::PlanOutcome outcome) {
  *news_.add_plans() = outcome;
  const std::string id = outcome.plan_id();
  plans_[id] = std::move(outcome);
}

}  // namespace athanor
