// When calls are due: a schedule by rate, phase after phase, the same for the same seed.
//
//   Arrivals arrivals(Arrival::kPoisson, 1, {{.seconds = 60, .rate = 100, .rate_end = 500}}, seed);
//   while (std::optional<Arrivals::Due> due = arrivals.Next()) ...
//
// Gaps are drawn at a rate of one and stretched by the rate of their moment (the time change of an
// inhomogeneous renewal process), so that a ramp keeps the kind of its arrivals. Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_ARRIVALS_H_
#define ATHANOR_CLIENTS_BENCH_ARRIVALS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor::bench {

enum class Arrival : uint8_t {
  kClosed,   // no schedule: each caller calls again when it was answered
  kFixed,    // equal gaps, the first call at 0
  kPoisson,  // exponential gaps
  kGamma,  // gaps of the gamma distribution with shape `burstiness`: below 1 burstier than Poisson
};

absl::string_view ArrivalName(Arrival arrival);  // "closed"
std::optional<Arrival> FindArrival(absl::string_view name);

struct Phase {
  double seconds = 10;
  // Open loop: calls per second at the beginning and the end, linear between; 0 is a pause.
  double rate = 0, rate_end = 0;
  int concurrency = 1;  // closed loop: callers
};

double TotalSeconds(absl::Span<const Phase> phases);
// How many calls the rates make.
double ExpectedCalls(absl::Span<const Phase> phases);

class Arrivals {
 public:
  // REQUIRES: not kClosed; burstiness > 0; seconds > 0 and rates >= 0.
  Arrivals(Arrival arrival, double burstiness, std::vector<Phase> phases, uint64_t seed);

  struct Due {
    double seconds;  // since the beginning of the first phase
    int phase;
  };
  // The next call, in order; nothing after the last.
  std::optional<Due> Next();

 private:
  double Gap();

  const Arrival arrival_;
  const std::vector<Phase> phases_;
  std::mt19937_64 random_;
  std::gamma_distribution<double> gamma_;
  bool first_ = true;
  size_t phase_ = 0;
  double begin_ = 0;  // of the phase, seconds
  double calls_ = 0;  // due at a rate of one, since the beginning of the phase
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_ARRIVALS_H_
