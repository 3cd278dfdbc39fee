#include "server/search/plan_verifier.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/child/tuner_channel.h"

namespace athanor {
namespace {

// One piece of work; other searches and jobs wait for it.
constexpr std::chrono::milliseconds kPiece{100};

}  // namespace

absl::Status PlanVerifier::Advance(Reference* r) {
  if (!r->plan.has_plan()) {
    const auto lower = [&] { return tuner_.Lower(*graph_, target_, r->exact, r->way.plain()); };
    absl::StatusOr<internal::LowerReply> lowered = lower();
    if (WorthRetrying(lowered.status())) lowered = lower();
    if (!lowered.ok()) return lowered.status();
    *r->plan.mutable_plan() = std::move(*lowered->mutable_plan());
    r->checks.assign(lowered->checks().begin(), lowered->checks().end());
    return absl::OkStatus();
  }
  const v1::Plan& plan = r->plan.plan();
  if (r->plan.objects_size() < plan.kernels_size()) {
    absl::StatusOr<KernelObject> object = maker_.Compile(plan.kernels(r->plan.objects_size()));
    if (!object.ok()) return object.status();
    r->plan.add_objects(std::move(object->object));
    return absl::OkStatus();
  }
  if (r->checked < r->checks.size()) {
    internal::KernelCheck& check = r->checks[r->checked];
    check.mutable_request()->clear_objects();
    absl::Status s = maker_.AddObjects(check.mutable_request());
    if (s.ok()) s = maker_.Check(check.request(), plan.kernels(static_cast<int>(check.kernel())));
    if (s.ok()) ++r->checked;
    return s;
  }
  r->done = true;
  r->checks.clear();
  return absl::OkStatus();
}

void PlanVerifier::GiveUp(Reference* r, const absl::Status& why) {
  const bool again = r->way.TurnPlain(why);
  const char* what = r->exact ? "no plan in f64 to compare with" : "no baseline to compare with";
  LogWarn(again ? "a plan to compare with is made plain" : what, {{"error", why.ToString()}});
  if (again) {
    *r = Reference{.exact = r->exact, .way = r->way};
    return;
  }
  r->status = r->way.Explained(why);
  r->done = true;
}

absl::StatusOr<const v1::Plan*> PlanVerifier::BaselinePlan() {
  if (!baseline_.status.ok()) return baseline_.status;
  if (!baseline_.plan.has_plan()) {
    if (absl::Status s = Advance(&baseline_); !s.ok()) return s;
  }
  return &baseline_.plan.plan();
}

absl::StatusOr<bool> PlanVerifier::Prepare() {
  const auto start = std::chrono::steady_clock::now();
  for (Reference* r : {&baseline_, &exact_}) {
    while (!r->done) {
      if (std::chrono::steady_clock::now() - start > kPiece) return false;
      const absl::Status status = Advance(r);
      if (absl::IsCancelled(status) || absl::IsAborted(status)) return status;
      if (absl::IsUnavailable(status) && ++lost_children_ <= kMostLostChildren) return false;
      if (!status.ok()) GiveUp(r, status);
    }
  }
  graph_.reset();
  return true;
}

absl::Status PlanVerifier::Verify(
    const CompiledPlan& found, const google::protobuf::RepeatedPtrField<internal::Sizes>& sizes) {
  if (!baseline_.status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no baseline to compare with: ", baseline_.status.message()));
  }
  internal::PlanCheckRequest request;
  *request.mutable_candidate()->mutable_plan() = found.plan;
  for (const KernelObject& object : found.objects) {
    request.mutable_candidate()->add_objects(object.object);
  }
  *request.mutable_baseline() = baseline_.plan;
  if (exact_.status.ok()) {
    *request.mutable_exact() = exact_.plan;
  } else {
    request.set_no_exact(exact_.status.ToString());
  }
  request.set_graph_text(graph_text_);
  *request.mutable_sizes() = sizes;
  request.set_seed(seed_);
  request.set_threads(target_.threads());
  request.set_approximate(approximate_);
  absl::StatusOr<internal::PlanCheckReply> reply = tuner_.CheckPlan(request);
  if (!reply.ok()) return reply.status();
  for (const std::string& left_out : reply->left_out()) {
    LogWarn("plan not compared", {{"plan", found.plan.plan_id()}, {"left_out", left_out}});
  }
  LogInfo("plan verified", {{"plan", found.plan.plan_id()},
                            {"compared_with", reply->compared_with()},
                            {"of_allowed", reply->worst_error()},
                            {"runs", static_cast<int64_t>(reply->runs())},
                            {"elements", reply->elements()},
                            {"seconds", reply->seconds()}});
  return absl::OkStatus();
}

}  // namespace athanor
