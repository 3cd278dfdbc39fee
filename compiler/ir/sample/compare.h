// Error bounds and comparisons of computed tensors with those of the reference evaluator.
//
//   absl::Status same = CompareTensors(got, want, /*relative=*/1e-6, /*absolute=*/0);
//   // INVALID_ARGUMENT "f32[2,3]: 1 of 6 elements differs; first [0,1]: got 1.5, ..."
//
//   // A contraction of length K in any order of summation:
//   std::vector<double> sums = ContractMagnitudes(spec, lhs, rhs).value();  // of |a*b|
//   CompareTensors(got, want, ContractTolerances(want, sums, /*length=*/K));
#ifndef ATHANOR_COMPILER_IR_SAMPLE_COMPARE_H_
#define ATHANOR_COMPILER_IR_SAMPLE_COMPARE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"
#include "compiler/ir/value/tensor.h"

namespace athanor {

// Returns the unit roundoff u of a float dtype: half the distance from 1 to the next value.
double UnitRoundoff(DType dtype);
// Returns the distance from |value| to the next larger value of the dtype; the smallest subnormal
// at 0, infinity for a value that is not finite.
double UnitInLastPlace(DType dtype, double value);
// Returns |got - want| in units in the last place of `want`; 0 for two NaNs or equal infinities,
// infinity if only one is NaN or infinite.
double UlpDistance(DType dtype, double got, double want);

// Returns gamma(K) = K*u / (1 - K*u), which bounds the relative error of K successive roundings
// (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1); infinity once K*u
// reaches 1.
double Gamma(int64_t length, double unit_roundoff);

// Returns the error bound of a sum of `length` products in the accumulator of `dtype`, in any
// order: c * gamma(K) * sum|a*b|, plus one unit in the last place of `reference`, because both it
// and the result were rounded to `dtype`. Also covers plain sums, with `magnitude` the sum of |a|.
double ContractTolerance(DType dtype, int64_t length, double magnitude, double reference,
                         double c = 1);
// Returns the same bound for every element of `want`.
std::vector<double> ContractTolerances(const Tensor& want, absl::Span<const double> magnitudes,
                                       int64_t length, double c = 1);
// Returns sum|a*b| for every element of a contraction's result, in row-major order.
absl::StatusOr<std::vector<double>> ContractMagnitudes(const ContractSpec& spec, const Tensor& lhs,
                                                       const Tensor& rhs);

// Returns OK if dtypes and shapes are equal and every element of `got` is within `absolute +
// relative * |want|`. NaN equals NaN, an infinity equals only itself, -0 equals +0; integers and
// bools must be equal. The error names the first and the worst element that differ.
absl::Status CompareTensors(const Tensor& got, const Tensor& want, double relative,
                            double absolute);
// Same, with a tolerance for each element.
absl::Status CompareTensors(const Tensor& got, const Tensor& want,
                            absl::Span<const double> tolerances);
// Same, with the tolerance in units in the last place of each wanted element.
absl::Status CompareTensorsUlp(const Tensor& got, const Tensor& want, double ulp);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_SAMPLE_COMPARE_H_
