#include "clients/bench/load/arrivals.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace athanor::bench {
namespace {

// Indexed by the value of the enum.
constexpr absl::string_view kNames[] = {"closed", "fixed", "poisson", "gamma", "trace"};

double CallsOf(const Phase& phase) { return phase.seconds * (phase.rate + phase.rate_end) / 2; }

// Returns the seconds into the phase at which `calls` calls are due: the root of rate t + slope t^2
// / 2 = calls, in the form that loses no digits when the slope is small.
double TimeOf(double calls, const Phase& phase) {
  if (calls <= 0) return 0;
  const double slope = (phase.rate_end - phase.rate) / phase.seconds;
  const double square = std::max(0.0, phase.rate * phase.rate + 2 * slope * calls);
  return std::min(phase.seconds, 2 * calls / (phase.rate + std::sqrt(square)));
}

}  // namespace

absl::string_view ArrivalName(Arrival arrival) { return kNames[static_cast<size_t>(arrival)]; }

std::optional<Arrival> FindArrival(absl::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Arrival>(i);
  }
  return std::nullopt;
}

double TotalSeconds(absl::Span<const Phase> phases) {
  double seconds = 0;
  for (const Phase& phase : phases) seconds += phase.seconds;
  return seconds;
}

double ExpectedCalls(absl::Span<const Phase> phases) {
  double calls = 0;
  for (const Phase& phase : phases) calls += CallsOf(phase);
  return calls;
}

Arrivals::Arrivals(Arrival arrival, double burstiness, std::vector<Phase> phases, uint64_t seed)
    : arrival_(arrival),
      phases_(std::move(phases)),
      random_(seed),
      gamma_(arrival == Arrival::kGamma ? burstiness : 1,
             arrival == Arrival::kGamma ? 1 / burstiness : 1) {}

Arrivals::Arrivals(std::vector<double> due) : arrival_(Arrival::kTrace), due_(std::move(due)) {}

std::optional<Arrivals::Due> Arrivals::Next() {
  if (arrival_ == Arrival::kTrace) {
    if (next_ == due_.size()) return std::nullopt;
    return Due{due_[next_++], 0};
  }
  calls_ += Gap();
  while (phase_ < phases_.size() && calls_ >= CallsOf(phases_[phase_])) {
    calls_ -= CallsOf(phases_[phase_]);
    begin_ += phases_[phase_].seconds;
    ++phase_;
  }
  if (phase_ == phases_.size()) return std::nullopt;
  return Due{begin_ + TimeOf(calls_, phases_[phase_]), static_cast<int>(phase_)};
}

// Draws a gap with a mean of one.
double Arrivals::Gap() {
  const bool first = std::exchange(first_, false);
  if (arrival_ == Arrival::kFixed) return first ? 0 : 1;
  return gamma_(random_);
}

}  // namespace athanor::bench
