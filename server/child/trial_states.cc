#include "server/child/trial_states.h"

#include <cmath>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"

namespace athanor {
namespace {

using internal::TriedKernel;
using internal::TryOutcome;

bool HasTimes(const TryOutcome& part, const TriedKernel& tried) {
  return part.times_size() == tried.kernel().sizes_size() && absl::c_all_of(part.times(), IsTime);
}

// Also false for NaN.
bool IsSpent(const v1::SearchTime& spent) {
  const bool known = spent.on() == "compile" || spent.on() == "measure" || spent.on() == "check";
  return known && spent.calls() == 1 && spent.seconds() >= 0 && std::isfinite(spent.seconds());
}

// Reports whether the part has each object that the kernel lacked, and no other.
bool HasObjects(const TryOutcome& part, const TriedKernel& tried) {
  if (part.objects_size() != tried.objects_size()) return false;
  for (int i = 0; i < part.objects_size(); ++i) {
    if (part.objects(i).empty() == tried.objects(i).empty()) return false;
  }
  return true;
}

bool CanEnd(TrialState state, const TryOutcome& part, const TriedKernel& tried) {
  if (!IsStatusCode(part.code()) || !part.objects().empty()) return false;
  if (!part.times().empty() && !HasTimes(part, tried)) return false;
  // Also false for NaN.
  if (!(part.f32_flops_per_second() >= 0 && std::isfinite(part.f32_flops_per_second()))) {
    return false;
  }
  const bool compiled = state != TrialState::kCompiling;
  const bool right =
      state == TrialState::kMeasuringAgain || (state == TrialState::kMeasuring && tried.passed());
  if (part.checked() && !right) return false;
  if (part.code() == 0) {
    return part.failed_at() == TryOutcome::NONE && compiled && HasTimes(part, tried);
  }
  switch (part.failed_at()) {
    case TryOutcome::NONE:  // there was no time
      return part.code() == static_cast<int>(absl::StatusCode::kAborted);
    case TryOutcome::COMPILE:
      return !compiled && part.failed_kernel() < static_cast<uint32_t>(tried.objects_size());
    case TryOutcome::MEASURE:
      return compiled;
    case TryOutcome::CHECK:
      return state == TrialState::kChecking;
    default:
      return false;
  }
}

// Returns the state after the part; nullopt: it does not fit.
std::optional<TrialState> After(TrialState state, const TryOutcome& part,
                                const TriedKernel& tried) {
  if (part.ended()) {
    return CanEnd(state, part, tried) ? std::optional(TrialState::kEnded) : std::nullopt;
  }
  if (part.code() != 0) return std::nullopt;
  switch (state) {
    case TrialState::kCompiling:
      if (!HasObjects(part, tried)) return std::nullopt;
      return TrialState::kMeasuring;
    case TrialState::kMeasuring:
      if (part.checked() || !part.objects().empty() || !HasTimes(part, tried)) return std::nullopt;
      return TrialState::kChecking;
    case TrialState::kChecking:
      // The last is also false for NaN.
      if (!part.checked() || !part.objects().empty() || !(part.worst_error() <= 1)) {
        return std::nullopt;
      }
      return TrialState::kMeasuringAgain;
    default:
      return std::nullopt;
  }
}

}  // namespace

// Also false for NaN.
bool IsTime(const internal::SizeTimes& size) {
  return size.seconds() > 0 && std::isfinite(size.seconds()) && size.low() > 0 &&
         std::isfinite(size.high());
}

bool IsRatio(const internal::SizeTimes& size) {
  return size.ratio() > 0 && std::isfinite(size.ratio()) && size.ratio_low() <= size.ratio() &&
         size.ratio() <= size.ratio_high();
}

bool IsStatusCode(int code) {
  return code >= 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
}

TrialStates::TrialStates(const internal::TryRequest& request) : request_(request) {
  for (const TriedKernel& tried : request.kernels()) {
    const bool lacks = absl::c_any_of(tried.objects(), [](const auto& o) { return o.empty(); });
    states_.push_back(lacks ? TrialState::kCompiling : TrialState::kMeasuring);
  }
}

TrialState TrialStates::AtWork() const {
  for (TrialState state : {TrialState::kCompiling, TrialState::kChecking,
                           TrialState::kMeasuringAgain, TrialState::kMeasuring}) {
    if (absl::c_linear_search(states_, state)) return state;
  }
  return TrialState::kEnded;
}

bool TrialStates::Take(const TryOutcome& part) {
  if (part.kernel() >= states_.size() || !absl::c_all_of(part.spent(), IsSpent)) return false;
  TrialState& state = states_[part.kernel()];
  if (state == TrialState::kEnded) return false;
  const std::optional<TrialState> next =
      After(state, part, request_.kernels(static_cast<int>(part.kernel())));
  if (next.has_value()) state = *next;
  return next.has_value();
}

}  // namespace athanor
