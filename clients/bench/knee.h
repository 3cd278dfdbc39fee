// Looks for the knee of a server: the highest rate of calls at which it meets the service levels.
//
//   Knee knee(/*first=*/1);
//   while (std::optional<double> rate = knee.Next()) knee.Tell(Meets(Measure(*rate)));
//   knee.rate();
//
// The rate doubles until the levels are missed (halves, if the first rate misses them), then halves
// what is between the two until they are 5 % apart. Pure; not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_KNEE_H_
#define ATHANOR_CLIENTS_BENCH_KNEE_H_

#include <limits>
#include <optional>

namespace athanor::bench {

class Knee {
 public:
  static constexpr double kApart = 1.05;
  // A server that misses the levels at this share of the first rate has no knee.
  static constexpr double kLeast = 1.0 / 1024;

  // REQUIRES: 0 < first <= most. No rate is above `most`.
  Knee(double first, double most) : first_(first), most_(most), next_(first) {}

  // Returns the rate to measure; nullopt once the knee is known.
  std::optional<double> Next() const;
  // Says whether the rate of Next met the levels.
  void Tell(bool met);

  // Returns the highest rate that met the levels; 0: none did.
  double rate() const { return met_; }
  // Returns the lowest rate that missed them; infinite: none did.
  double missed() const { return missed_; }

 private:
  const double first_, most_;
  double next_;
  double met_ = 0, missed_ = std::numeric_limits<double>::infinity();
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_KNEE_H_
