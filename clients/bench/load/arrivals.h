// Schedules when calls are due: by rate, phase after phase, always the same for the same seed.
//
//   Arrivals arrivals(Arrival::kPoisson, 1, {{.seconds = 60, .rate = 100, .rate_end = 500}}, seed);
//   while (std::optional<Arrivals::Due> due = arrivals.Next()) ...
//
// A trace's calls are due when it says:
//
//   Arrivals arrivals({0, 0.25, 0.25, 3});
//
// Draws gaps at a rate of one and stretches each by the rate at its time (the time change of an
// inhomogeneous renewal process), so that a ramp keeps its kind of arrivals. Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_ARRIVALS_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_ARRIVALS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor::bench {

enum class Arrival : uint8_t {
  kClosed,   // no schedule: each caller sends its next call when the last one is answered
  kFixed,    // equal gaps, the first call at 0
  kPoisson,  // exponential gaps
  kGamma,  // gamma-distributed gaps with shape `burstiness`; below 1 they are burstier than Poisson
  kTrace,  // times from a file
};

absl::string_view ArrivalName(Arrival arrival);  // "closed"
std::optional<Arrival> FindArrival(absl::string_view name);

struct Phase {
  double seconds = 10;
  // Open loop: calls per second at the beginning and at the end, linear in between; 0 is a pause.
  double rate = 0, rate_end = 0;
  int concurrency = 1;  // closed loop: number of callers
};

double TotalSeconds(absl::Span<const Phase> phases);
// Returns how many calls the phases' rates come to.
double ExpectedCalls(absl::Span<const Phase> phases);

class Arrivals {
 public:
  // REQUIRES: neither kClosed nor kTrace; burstiness > 0; seconds > 0 and rates >= 0.
  Arrivals(Arrival arrival, double burstiness, std::vector<Phase> phases, uint64_t seed);
  // kTrace: calls are due at these seconds, which do not descend, all in one phase.
  explicit Arrivals(std::vector<double> due);

  struct Due {
    double seconds;  // since the first phase began
    int phase;
  };
  // Returns the next call, in order of time; nullopt after the last one.
  std::optional<Due> Next();

 private:
  double Gap();

  const Arrival arrival_;
  const std::vector<double> due_;  // of kTrace
  size_t next_ = 0;                // of due_
  const std::vector<Phase> phases_;
  std::mt19937_64 random_;
  std::gamma_distribution<double> gamma_;
  bool first_ = true;
  size_t phase_ = 0;
  double begin_ = 0;  // start of the current phase, in seconds
  double calls_ = 0;  // calls due since the phase began, at a rate of one
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_ARRIVALS_H_
