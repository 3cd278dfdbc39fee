// Medians of samples, with how well they are known.
//
//   const Median time = MedianOf({2.0, 1.0, 3.0, 1.5, 2.5, 1.2});
//   time.value;             // 2.0
//   time.low, time.high;    // 1.0 and 3.0: it lies between them with 95 %
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

// Reports whether further samples would not change how the medians compare: each two neighbours lie
// apart, or are both known within `share`.
bool ComparisonIsKnown(std::vector<Median> medians, double share);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_MEDIAN_H_
