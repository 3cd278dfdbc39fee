// Medians of samples, with how well they are known.
//
//   const Median time = MedianOf({2.0, 1.0, 3.0, 1.5, 2.5, 1.2});
//   time.value;             // 2.0
//   time.low, time.high;    // 1.0 and 3.0: it lies between them with 95 %
//
//   const Median ratio = PairedRatio(candidate, incumbent);   // samples taken in turn
//   if (RatioIsKnown(ratio, 0.99)) ...;                       // it gains 1 %, or does not
#ifndef ATHANOR_SERVER_TUNER_MEASURE_MEDIAN_H_
#define ATHANOR_SERVER_TUNER_MEASURE_MEDIAN_H_

#include <vector>

namespace athanor {

struct Median {
  // Reports whether the interval is at most this share of the value wide.
  bool KnownWithin(double share) const { return high - low <= share * value; }

  double value = 0;
  double low = 0, high = 0;  // 95 % interval; five samples or fewer have none, and these are all
  int samples = 0;
};

// REQUIRES: samples
Median MedianOf(std::vector<double> samples);

// Returns the median of the ratios of samples that were taken side by side, round by round: what
// disturbs both samples of a round cancels. REQUIRES: samples; what one has more is left out
Median PairedRatio(const std::vector<double>& samples, const std::vector<double>& to);

// Returns the time that `ratio` to a time of `seconds` comes to.
Median Scaled(const Median& ratio, double seconds);

// Returns the sum of times that err independently of each other: its interval is as wide as the
// root of the sum of their squares. The fewest samples count; where they have no interval, all that
// the sum may be is given.
Median SumOf(const std::vector<Median>& times);

// Reports whether further rounds would not change on which side of `limit` the ratio lies: its
// interval lies there, or (the first rounds) all of it lies far above.
bool RatioIsKnown(const Median& ratio, double limit);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_MEDIAN_H_
