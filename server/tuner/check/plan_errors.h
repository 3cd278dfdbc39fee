// How far a candidate plan's outputs are from the same graph computed in f64, beside a plan of
// checked kernels.
//
//   OutputErrors errors("y", DType::kF32);
//   errors.Add("b=1", {{shape, candidate, baseline, exact}, ...}, noise, DrawnValues::kUsual);
//   absl::Status same = errors.Judge();   // DATA_LOSS "output "y" at b=1: ..."
//
// With t an element in f64, an element's error is |got - t| / (|t| + r): r is the root mean square
// of t over its row, so that cancellation in one element is no error and a small row does not hide
// behind a large one (a mixed error, componentwise and normwise: Higham, "Accuracy and Stability of
// Numerical Algorithms", sections 1.2 and 6.2). Rows are the last axes that hold kLeastRow elements
// together, or else all of the group. Three norms of it are compared for each group of tensors (one
// size, several seeds):
//
//   largest     one wrong element
//   root mean   what is wrong a little everywhere; random errors average out in it
//   square
//   median      as above, where a few elements differ much because a comparison of rounded values
//               fell the other way, in the baseline too
//
// Each may be twice the baseline's (DESIGN §7), a little more where a group has few elements, in
// the group itself or in the worst group of usual values; and at least a floor, a small multiple of
// roundings.h's noise, because the baseline may be exact by luck. Where the baseline has a NaN or
// an infinity and f64 has the same, so must the candidate; where they differ (an overflow that f64
// does not have), and for integers and bools, elements unlike those in f64 are counted: at most
// twice as many as the baseline's, none where it has none. Of values at the ends of the range that
// is all that is compared: what is rounded there may be as far off as a sine of 1e38.
#ifndef ATHANOR_SERVER_TUNER_CHECK_PLAN_ERRORS_H_
#define ATHANOR_SERVER_TUNER_CHECK_PLAN_ERRORS_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/value/dtype.h"

namespace athanor {

// One output of one run; bytes of the output's dtype.
struct ComparedTensor {
  std::vector<int64_t> shape;
  absl::string_view candidate, baseline;
  absl::string_view exact;
  DType exact_dtype = DType::kF64;  // or the output's, for what is exact as it is
  // Where only some elements are known in f64: which, row-major. All four hold these only.
  absl::Span<const int64_t> positions;
};

enum Norm : uint8_t { kLargest, kRootMeanSquare, kMedian, kNorms };
absl::string_view NormName(Norm norm);

// What a group's inputs are: usual, special (zeros, NaN, infinities), at the ends of the range.
enum class DrawnValues : uint8_t { kUsual, kSpecial, kEnds };

class OutputErrors {
 public:
  // `trust`: 1, or more where the exact values are themselves rounded: then no floor is smaller
  // than that many times the usual one.
  OutputErrors(std::string name, DType dtype, double trust = 1)
      : name_(std::move(name)), dtype_(dtype), trust_(trust) {}

  // `about` is for messages. `noise`: RoundingNoise at these sizes.
  void Add(std::string about, absl::Span<const ComparedTensor> tensors, double noise,
           DrawnValues values);

  // DATA_LOSS names the output, the sizes, the norm or the element, and both plans' errors.
  absl::Status Judge() const;

  struct Summary {
    std::array<double, kNorms> candidate{}, baseline{};  // the worst of all groups
    double worst = 0;                                    // largest error in units of its tolerance
    int64_t elements = 0;
    int64_t unlike = 0;  // counted as unlike f64 in the baseline
  };
  Summary Summarize() const;

 private:
  using Norms = std::array<double, kNorms>;
  struct Group {
    std::string about;
    DrawnValues values;
    double noise;
    int64_t elements = 0;
    Norms candidate{}, baseline{};
    int64_t candidate_unlike = 0, baseline_unlike = 0;
    std::string worst_element, unlike_element;  // texts
  };

  void AddFloats(absl::Span<const ComparedTensor> tensors, Group* group) const;
  void AddBytes(absl::Span<const ComparedTensor> tensors, Group* group) const;
  double Tolerance(const Group& group, Norm norm) const;
  double UnlikeAllowed(const Group& group) const;

  const std::string name_;
  const DType dtype_;
  const double trust_;
  std::vector<Group> groups_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_PLAN_ERRORS_H_
