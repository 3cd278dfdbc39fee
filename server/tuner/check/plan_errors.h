// Compares the errors of a candidate plan's outputs with those of a plan of checked kernels (the
// baseline). Errors are differences to the same graph computed in f64.
//
//   OutputErrors errors("y", DType::kF32);
//   errors.Add("b=1", {{shape, candidate, baseline, exact}, ...}, noise, DrawnValues::kUsual);
//   absl::Status same = errors.Judge();   // DATA_LOSS "output "y" at b=1: ..."
//
// With t an element in f64, an element's error is |got - t| / (|t| + r), where r is the root mean
// square of t over its row. So cancellation in one element is not an error, and errors of a small
// row do not hide behind a large one (a mixed error, componentwise and normwise: Higham, "Accuracy
// and Stability of Numerical Algorithms", sections 1.2 and 6.2). Rows are the last axes that
// together hold kLeastRow elements, or else the whole group. Three norms are compared for each
// group of tensors (one size, several seeds):
//
//   largest           detects one wrong element
//   root mean square  detects a small error everywhere; random errors average out
//   median            the same, if a few elements differ much because a comparison of rounded
//                     values went the other way, as it may in the baseline too
//
// Each norm may be twice the baseline's (DESIGN §7), a little more if a group has few elements, of
// the same group or of the worst group of usual values. It may also be up to a floor, a small
// multiple of roundings.h's noise, because the baseline may be exact by chance. If the baseline has
// a NaN or an infinity and f64 has the same, the candidate must have it too. If they differ (an
// overflow that f64 does not have), and for integers and bools, elements unlike those in f64 are
// counted: at most twice as many as the baseline's, none if it has none. For values at the ends of
// the range only this count is compared: an error there may be as large as that of a sine of 1e38.
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

// An output of one run, as bytes of the output's dtype.
struct ComparedTensor {
  std::vector<int64_t> shape;
  absl::string_view candidate, baseline;
  absl::string_view exact;
  DType exact_dtype = DType::kF64;  // or the output's dtype, if the values are exact in it
  // Row-major positions of the elements, if only some are known in f64. Then all four members hold
  // only these.
  absl::Span<const int64_t> positions;
};

enum Norm : uint8_t { kLargest, kRootMeanSquare, kMedian, kNorms };
absl::string_view NormName(Norm norm);

// Kind of a group's inputs: usual, special (zeros, NaN, infinities), at the ends of the range.
enum class DrawnValues : uint8_t { kUsual, kSpecial, kEnds };

class OutputErrors {
 public:
  // `trust`: 1, or more if the exact values are themselves rounded: no floor is then below that
  // many times the usual one.
  OutputErrors(std::string name, DType dtype, double trust = 1)
      : name_(std::move(name)), dtype_(dtype), trust_(trust) {}

  // Adds a group. `about` names it in messages. `noise` is RoundingNoise at these sizes.
  void Add(std::string about, absl::Span<const ComparedTensor> tensors, double noise,
           DrawnValues values);

  // Returns DATA_LOSS naming the output, the sizes, the norm or the element, and both plans'
  // errors.
  absl::Status Judge() const;

  struct Summary {
    std::array<double, kNorms> candidate{}, baseline{};  // maximum over all groups
    double worst = 0;                                    // largest error relative to its tolerance
    int64_t elements = 0;
    int64_t unlike = 0;  // elements of the baseline unlike f64
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
    std::string worst_element, unlike_element;  // for messages
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
