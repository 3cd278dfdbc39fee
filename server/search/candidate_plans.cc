#include "server/search/candidate_plans.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/child/tuner_channel.h"
#include "server/search/plan_cost.h"

namespace athanor {
namespace {

constexpr int kKernelsNamed = 6;  // of a plan that was put aside
// A plan takes over when it is faster by more than this and surely not slower. measure.cc ends a
// comparison once that is known.
constexpr double kLeastGain = 0.01;

void AddPlan(const CompiledPlan& plan, internal::MeasureRequest* request) {
  internal::MeasuredPlan* measured = request->add_plans();
  *measured->mutable_plan() = plan.plan;
  for (const KernelObject& object : plan.objects) measured->add_objects(object.object);
}

}  // namespace

CandidatePlans::CandidatePlans(CompiledPlan serving, const Graph& graph, KernelMaker maker,
                               TunerProcess* tuner, const internal::TargetReply& machine,
                               const CandidateMemory* memory, const PlanSearchOptions& options,
                               SearchSteps* steps, SearchRecord* record)
    : serving_(std::move(serving)),
      maker_(maker),
      tuner_(*tuner),
      machine_(machine),
      memory_(*memory),
      steps_(*steps),
      record_(*record),
      verifier_(graph, maker, tuner, machine.target(), options.seed, options.approximate) {}

absl::StatusOr<std::vector<int64_t>> CandidatePlans::ActivationBytesOf(const Sizes& sizes) {
  const v1::Plan* plan = &serving_.plan;
  if (plan->kind() == kSearchedPlan) {
    const absl::StatusOr<const v1::Plan*> baseline =
        record_.Timed("search", [&] { return verifier_.BaselinePlan(); });
    if (absl::IsCancelled(baseline.status()) || absl::IsAborted(baseline.status())) {
      return baseline.status();
    }
    if (baseline.ok()) plan = *baseline;
  }
  std::vector<int64_t> bytes;
  for (const internal::Sizes& size : sizes) {
    bytes.push_back(
        ActivationBytes(*plan, std::vector<int64_t>(size.values().begin(), size.values().end())));
  }
  return bytes;
}

absl::StatusOr<CandidatePlans::Comparison> CandidatePlans::Compare(const CompiledPlan& before,
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
    const internal::SizeTimes& is = times->plans(1).sizes(s);
    ratio += std::log(is.ratio()) / count;
    low += std::log(is.ratio_low()) / count;
    high += std::log(is.ratio_high()) / count;
    if (is.ratio_low() > 1) worst = std::max(worst, is.ratio());
  }
  return Comparison{std::exp(ratio), std::exp(low), std::exp(high), worst};
}

internal::MeasureRequest CandidatePlans::RequestFor(
    std::initializer_list<const CompiledPlan*> plans, const Sizes& sizes) const {
  internal::MeasureRequest request;
  for (const CompiledPlan* plan : plans) AddPlan(*plan, &request);
  request.set_graph_text(steps_.graph_text());
  *request.mutable_sizes() = sizes;
  request.set_seed(steps_.seed());
  request.set_threads(machine_.target().threads());
  return request;
}

absl::StatusOr<v1::PlanComparison> CandidatePlans::CompareWith(const CompiledPlan& other) {
  v1::PlanComparison comparison;
  comparison.set_plan_id(serving_.plan.plan_id());
  comparison.set_against(other.plan.plan_id());
  comparison.set_ratio(1);
  comparison.set_low(1);
  comparison.set_high(1);
  if (comparison.plan_id() == comparison.against()) return comparison;
  absl::StatusOr<Comparison> times = Compare(other, serving_, steps_.step().sizes());
  if (!times.ok()) return times.status();
  comparison.set_ratio(times->ratio);
  comparison.set_low(times->low);
  comparison.set_high(times->high);
  return comparison;
}

absl::StatusOr<std::vector<v1::PlanCost>> CandidatePlans::Costs(const CompiledPlan& plan) {
  internal::MeasureRequest request = RequestFor({&plan}, steps_.step().sizes());
  request.set_steps(true);
  absl::StatusOr<internal::MeasureReply> times = tuner_.Measure(request);
  if (!times.ok()) return times.status();
  std::vector<v1::PlanCost> costs;
  for (int i = 0; i < steps_.step().sizes_size(); ++i) {
    const auto& values = steps_.step().sizes(i).values();
    v1::PlanCost& cost = costs.emplace_back(
        CountCost(plan.plan, std::vector<int64_t>(values.begin(), values.end()), steps_.limits()));
    const internal::SizeTimes& measured = times->plans(0).sizes(i);
    for (int s = 0; s < std::min(cost.steps_size(), measured.step_seconds_size()); ++s) {
      cost.mutable_steps(s)->set_seconds(measured.step_seconds(s));
    }
  }
  return costs;
}

absl::StatusOr<CompiledPlan> CandidatePlans::Make(const internal::SearchPlan& plan,
                                                  FailureKind* fault) {
  CompiledPlan made{plan.plan(), {}, {}};
  *fault = FailureKind::kCompile;
  for (const v1::Kernel& kernel : plan.plan().kernels()) {
    absl::StatusOr<KernelObject> object =
        record_.Timed("compile", [&] { return maker_.Compile(kernel); });
    if (!object.ok()) return object.status();
    made.objects.push_back(*std::move(object));
  }
  for (internal::KernelCheck check : plan.checks()) {
    if (absl::Status s = maker_.AddObjects(check.mutable_request()); !s.ok()) return s;
    const v1::Kernel& about = plan.plan().kernels(check.kernel());
    *fault = FailureKind::kCheck;
    const absl::Status passed =
        record_.Timed("check", [&] { return maker_.Check(check.request(), about); });
    if (!passed.ok()) return passed;
  }
  return made;
}

std::string CandidatePlans::About(const v1::Plan& plan) const {
  std::set<std::string> serving;
  for (const v1::Kernel& kernel : serving_.plan.kernels()) serving.insert(kernel.source_hash());
  std::string about = "plan";
  if (!about_.empty()) absl::StrAppend(&about, " of ", about_);
  int named = 0;
  for (const v1::Kernel& kernel : plan.kernels()) {
    if (serving.contains(kernel.source_hash()) || ++named > kKernelsNamed) continue;
    absl::StrAppend(&about, named == 1 ? ", with " : " ", kernel.name());
  }
  return about;
}

void CandidatePlans::ShowFailed(const v1::Plan& plan, const absl::Status& status, bool from_cache) {
  v1::SearchFailure failure;
  failure.set_plan_id(plan.plan_id());
  failure.set_about(About(plan));
  failure.set_from_cache(from_cache);
  record_.CountPlanFailed();
  record_.Fail(std::move(failure), status);
}

void CandidatePlans::Fail(const CandidateMemory::PlanFailure& failure, bool from_cache) {
  const absl::Status& status = failure.status;
  ShowFailed(steps_.step().plan().plan(), status, from_cache);
  if (!from_cache) memory_.PutFailure(steps_.step().plan(), failure);
  internal::PlanOutcome outcome;
  outcome.set_plan_id(steps_.step().plan().plan().plan_id());
  outcome.set_code(static_cast<int>(status.code()));
  outcome.set_message(std::string(status.message()));
  // Its kernels are right, each for its part, and the whole is not.
  outcome.set_wrong(failure.kind == FailureKind::kPlanCheck && absl::IsDataLoss(status));
  steps_.TellPlan(std::move(outcome));
}

absl::Status CandidatePlans::Try(bool last_try, SearchSteps::Time end) {
  const internal::SearchPlan& plan = steps_.step().plan();
  const std::string& id = plan.plan().plan_id();
  about_ = plan.about();
  if (const auto known = memory_.FindFailure(plan)) {
    Fail(*known, /*from_cache=*/true);
    return absl::OkStatus();
  }
  FailureKind fault = FailureKind::kMeasure;
  absl::StatusOr<CompiledPlan> made = Make(plan, &fault);
  if (made.ok()) fault = FailureKind::kMeasure;
  const auto compare = [&] { return Compare(serving_, *made, plan.sizes()); };
  absl::StatusOr<Comparison> times = made.ok() ? record_.Timed("plans", compare) : made.status();
  if (absl::IsCancelled(times.status())) return times.status();
  const bool over = std::chrono::steady_clock::now() >= end;
  if (absl::IsAborted(times.status()) && (over || !last_try)) return times.status();
  record_.CountPlanMeasured();
  maker_.CountCandidate();
  if (!times.ok()) {
    Fail({fault, times.status()});
    return absl::OkStatus();
  }
  LogInfo(
      "plan measured",
      {{"plan", id}, {"ratio", times->ratio}, {"surely", times->high}, {"worst", times->worst}});
  // A plan that is faster on the whole is not taken if calls of some size would notice how much
  // slower it is.
  const bool faster = times->ratio <= 1 - kLeastGain && times->high <= 1;
  const bool nowhere_slower = times->worst <= 1 + 2 * kLeastGain;
  if (!faster || !nowhere_slower) {
    internal::PlanOutcome outcome;
    outcome.set_plan_id(id);
    outcome.set_ratio(faster ? times->worst : times->ratio);
    steps_.TellPlan(std::move(outcome));
    return absl::OkStatus();
  }
  winner_ = *std::move(made);
  ratio_ = times->ratio;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CompiledPlan>> CandidatePlans::Verify() {
  const auto verify = [&]() -> absl::StatusOr<std::optional<CompiledPlan>> {
    absl::StatusOr<bool> prepared = verifier_.Prepare();
    if (!prepared.ok()) return prepared.status();
    if (!*prepared) return std::nullopt;
    absl::Status right = verifier_.Verify(*winner_, steps_.step().plan().sizes());
    if (WorthRetrying(right)) right = verifier_.Verify(*winner_, steps_.step().plan().sizes());
    if (absl::IsCancelled(right) || absl::IsAborted(right)) return right;
    if (right.ok()) {
      found_ = *std::move(winner_);
    } else {
      Fail({FailureKind::kPlanCheck, right});
    }
    winner_.reset();
    if (!right.ok()) return std::nullopt;
    return found_;
  };
  return record_.Timed("verify", verify);
}

void CandidatePlans::Taken(const absl::Status& taken) {
  if (!found_) return;
  internal::PlanOutcome outcome;
  outcome.set_plan_id(found_->plan.plan_id());
  outcome.set_taken(taken.ok());
  outcome.set_ratio(ratio_);
  steps_.TellPlan(std::move(outcome));
  if (!taken.ok()) ShowFailed(found_->plan, taken);
  if (taken.ok()) {
    serving_ = *std::move(found_);
    record_.TakePlan(ratio_);
  }
  found_.reset();
}

}  // namespace athanor
