#include "compiler/ir/sample/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/ir/ops/reference_util.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Precision {
  int digits;        // bits of the significand, including the hidden bit
  int min_exponent;  // exponent of the smallest normal value, as in 2^min_exponent
};

Precision PrecisionOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {11, -14};
    case DType::kBF16:
      return {8, -126};
    case DType::kF32:
      return {24, -126};
    case DType::kF64:
      return {53, -1022};
    case DType::kF8E4M3:
      return {4, -6};
    case DType::kF8E5M2:
      return {3, -14};
    case DType::kF8E8M0:
      return {1, -127};
    default:
      return {64, 0};  // integers: exact
  }
}

// Returns the distance of two values; of integers as precisely as a double can, but never 0 if they
// differ.
double Difference(const Scalar& got, const Scalar& want) {
  if (!IsFloat(want.dtype)) {
    if (got.u == want.u) return 0;
    const bool is_signed = IsSigned(want.dtype);
    const double a = is_signed ? static_cast<double>(got.i) : static_cast<double>(got.u);
    const double b = is_signed ? static_cast<double>(want.i) : static_cast<double>(want.u);
    return std::max(1.0, std::fabs(a - b));
  }
  if (std::isnan(got.f) && std::isnan(want.f)) return 0;
  if (got.f == want.f) return 0;
  const double difference = std::fabs(got.f - want.f);
  return std::isfinite(difference) || (std::isfinite(got.f) && std::isfinite(want.f)) ? difference
                                                                                      : kInfinity;
}

std::string Text(const Scalar& value) {
  if (IsFloat(value.dtype)) {
    return absl::StrFormat("%.*g", value.dtype == DType::kF64 ? 17 : 9, value.f);
  }
  return IsSigned(value.dtype) ? absl::StrCat(value.i) : absl::StrCat(value.u);
}

std::string TypeText(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype)), ShapeText(tensor.shape));
}

std::string ElementText(const Tensor& got, const Tensor& want, int64_t i, double tolerance) {
  const Scalar a = LoadScalar(got, i);
  const Scalar b = LoadScalar(want, i);
  return absl::StrFormat("%s: got %s, want %s, off by %.4g, allowed %.4g",
                         ShapeText(CoordinatesOf(want.shape, i)), Text(a), Text(b),
                         Difference(a, b), IsFloat(want.dtype) ? tolerance : 0.0);
}

absl::Status CheckComparable(const Tensor& got, const Tensor& want) {
  if (got.dtype != want.dtype || got.shape != want.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", TypeText(got), ", want ", TypeText(want)));
  }
  for (const Tensor* tensor : {&got, &want}) {
    const size_t bytes = static_cast<size_t>(tensor->elements()) * DTypeBytes(tensor->dtype);
    if (tensor->bytes.size() == bytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(tensor == &got ? "got " : "wanted ",
                                                   TypeText(*tensor), " has ", tensor->bytes.size(),
                                                   " bytes, its shape needs ", bytes));
  }
  return absl::OkStatus();
}

template <typename Tolerance>
absl::Status Compare(const Tensor& got, const Tensor& want, Tolerance tolerance) {
  RETURN_IF_ERROR(CheckComparable(got, want));
  const bool is_float = IsFloat(want.dtype);
  int64_t differing = 0, first = -1, worst = -1;
  double worst_excess = -1;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const Scalar wanted = LoadScalar(want, i);
    const double difference = Difference(LoadScalar(got, i), wanted);
    const double allowed = is_float ? tolerance(i, wanted.f) : 0;
    if (difference == 0 || (difference <= allowed && difference != kInfinity)) continue;
    ++differing;
    if (first < 0) first = i;
    // The worst element exceeds its tolerance by the largest factor; for a tolerance of 0, by the
    // largest difference.
    const double excess =
        allowed > 0 && difference != kInfinity ? difference / allowed : difference;
    if (excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (differing == 0) return absl::OkStatus();
  const auto allowed = [&](int64_t i) { return tolerance(i, LoadScalar(want, i).f); };
  return absl::InvalidArgumentError(absl::StrCat(
      TypeText(want), ": ", differing, " of ", want.elements(),
      differing == 1 ? " elements differs" : " elements differ", "; first ",
      ElementText(got, want, first, allowed(first)),
      worst == first ? ""
                     : absl::StrCat("; worst ", ElementText(got, want, worst, allowed(worst)))));
}

}  // namespace

double UnitRoundoff(DType dtype) { return std::ldexp(1.0, -PrecisionOf(dtype).digits); }

double UnitInLastPlace(DType dtype, double value) {
  const Precision precision = PrecisionOf(dtype);
  if (!std::isfinite(value)) return kInfinity;
  // Below the normal numbers the field is 0, which is below any least exponent.
  const int field = static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff);
  const int exponent = std::max(field - 1023, precision.min_exponent) - precision.digits + 1;
  if (exponent < -1022) return std::ldexp(1.0, exponent);
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

double UlpDistance(DType dtype, double got, double want) {
  const double difference = Difference(Scalar::Float(dtype, got), Scalar::Float(dtype, want));
  if (difference == 0 || difference == kInfinity) return difference;
  return difference / UnitInLastPlace(dtype, want);
}

double Gamma(int64_t length, double unit_roundoff) {
  const double product = static_cast<double>(length) * unit_roundoff;
  return product < 1 ? product / (1 - product) : kInfinity;
}

double ContractTolerance(DType dtype, int64_t length, double magnitude, double reference,
                         double c) {
  if (!std::isfinite(magnitude) || !std::isfinite(reference)) return 0;
  return c * Gamma(length, UnitRoundoff(AccumulatorOf(dtype))) * magnitude +
         UnitInLastPlace(dtype, reference);
}

std::vector<double> ContractTolerances(const Tensor& want, absl::Span<const double> magnitudes,
                                       int64_t length, double c) {
  std::vector<double> tolerances(magnitudes.size(), 0);
  for (size_t i = 0; i < magnitudes.size() && IsFloat(want.dtype); ++i) {
    tolerances[i] = ContractTolerance(want.dtype, length, magnitudes[i], LoadScalar(want, i).f, c);
  }
  return tolerances;
}

absl::StatusOr<std::vector<double>> ContractMagnitudes(const ContractSpec& spec, const Tensor& lhs,
                                                       const Tensor& rhs) {
  const auto magnitude_of = [](const Tensor& tensor) {
    Tensor magnitude = Tensor::Zeros(DType::kF64, tensor.shape);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const Scalar s = LoadScalar(tensor, i);
      magnitude.data<double>()[i] = std::fabs(IsFloat(s.dtype)    ? s.f
                                              : IsSigned(s.dtype) ? static_cast<double>(s.i)
                                                                  : static_cast<double>(s.u));
    }
    return magnitude;
  };
  const Tensor a = magnitude_of(lhs);
  const Tensor b = magnitude_of(rhs);
  std::vector<int64_t> shape;
  for (char letter : spec.result) {
    const size_t in_lhs = spec.lhs.find(letter);
    shape.push_back(in_lhs != std::string::npos ? a.shape[in_lhs] : b.shape[spec.rhs.find(letter)]);
  }
  Tensor sums = Tensor::Zeros(DType::kF64, shape);
  absl::Status status =
      OpInfo(Op::kContract).reference({&a, &b}, {{"spec", spec.ToString()}}, {}, &sums);
  if (!status.ok()) return status;
  return std::vector<double>(sums.data<double>(), sums.data<double>() + sums.elements());
}

absl::Status CompareTensors(const Tensor& got, const Tensor& want, double relative,
                            double absolute) {
  return Compare(got, want, [=](int64_t, double wanted) {
    return std::isfinite(wanted) ? absolute + relative * std::fabs(wanted) : 0;
  });
}

absl::Status CompareTensors(const Tensor& got, const Tensor& want,
                            absl::Span<const double> tolerances) {
  if (static_cast<int64_t>(tolerances.size()) != want.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", tolerances.size(), " tolerances for ", TypeText(want)));
  }
  return Compare(got, want, [=](int64_t i, double) { return tolerances[i]; });
}

absl::Status CompareTensorsUlp(const Tensor& got, const Tensor& want, double ulp) {
  return Compare(got, want, [&](int64_t, double wanted) {
    return std::isfinite(wanted) ? ulp * UnitInLastPlace(want.dtype, wanted) : 0;
  });
}

}  // namespace athanor
