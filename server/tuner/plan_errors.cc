#include "server/tuner/plan_errors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/tensor.h"

namespace athanor {
namespace {

// DESIGN §7.
constexpr double kTimesBaseline = 2;
// The quotient of the root mean squares of two sets of n normal errors is off by 1/sqrt(n) of
// itself: so many times that is never chance.
constexpr double kDeviations = 4;
// Least elements of a row whose root mean square says how large its values are.
constexpr int64_t kLeastRow = 16;
// The floors, in units of the noise: the error of a rounding is at most u, one behind the other two
// make an ulp; evenly spread over the binades and within the ulp, its root mean square is about 0.4
// u, that of K in a row with growing partial sums 0.3 sqrt(K) u; the median is two thirds of it.
constexpr std::array<double, kNorms> kFloors = {2, 0.3, 0.2};

std::vector<double> Decoded(absl::string_view bytes, DType dtype) {
  const size_t size = DTypeBytes(dtype);
  std::vector<double> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * size, size);
    if (dtype == DType::kF64) {
      std::memcpy(&values[i], &bits, sizeof(double));
    } else if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, &bits, sizeof(float));
      values[i] = value;
    } else {
      values[i] = DecodeFloat(dtype, bits);
    }
  }
  return values;
}

// As a value of `dtype` would be: infinite where it overflows.
double OverflowIn(DType dtype, double value) {
  if (!std::isfinite(value) || DTypeBytes(dtype) == 1 || dtype == DType::kF64) return value;
  if (std::fabs(value) < 65504) return value;
  const double rounded = DecodeFloat(dtype, EncodeFloat(dtype, value));
  return std::isfinite(rounded) ? value : rounded;
}

// Both NaN, both the same infinity, or both finite.
bool Alike(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return true;
}

double RootMeanSquare(const double* values, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(values[i]));
  }
  if (largest == 0) return 0;
  double sum = 0;
  size_t finite = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) continue;
    sum += (values[i] / largest) * (values[i] / largest);
    ++finite;
  }
  return largest * std::sqrt(sum / static_cast<double>(finite));
}

// The last axes that hold enough elements together; 0: there are none.
size_t RowOf(const ComparedTensor& tensor) {
  if (!tensor.positions.empty()) return 0;
  int64_t row = 1;
  for (size_t axis = tensor.shape.size(); axis-- > 0 && row < kLeastRow;) row *= tensor.shape[axis];
  return row < kLeastRow ? 0 : static_cast<size_t>(row);
}

std::string Place(const ComparedTensor& tensor, size_t i) {
  int64_t rest = tensor.positions.empty() ? static_cast<int64_t>(i) : tensor.positions[i];
  std::vector<int64_t> at(tensor.shape.size());
  for (size_t axis = at.size(); axis-- > 0;) {
    at[axis] = rest % tensor.shape[axis];
    rest /= tensor.shape[axis];
  }
  return absl::StrCat("element [", absl::StrJoin(at, ","), "]");
}

double SmallestNormal(DType dtype) {
  return dtype == DType::kF16   ? std::ldexp(1.0, -14)
         : dtype == DType::kF64 ? std::numeric_limits<double>::min()
                                : std::numeric_limits<float>::min();
}

// Errors of both plans, gathered over the tensors of a group.
struct Errors {
  std::vector<float> candidate, baseline;
  double worst = -1;  // of the candidate
};

std::array<double, kNorms> NormsOf(std::vector<float> errors) {
  if (errors.empty()) return {};
  double largest = 0, sum = 0;
  for (float e : errors) {
    largest = std::max<double>(largest, e);
    sum += static_cast<double>(e) * e;
  }
  const auto middle = errors.begin() + static_cast<int64_t>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  return {largest, std::sqrt(sum / static_cast<double>(errors.size())), *middle};
}

}  // namespace

absl::string_view NormName(Norm norm) {
  return norm == kLargest ? "largest" : norm == kRootMeanSquare ? "root mean square" : "median";
}

void OutputErrors::AddBytes(absl::Span<const ComparedTensor> tensors, Group* group) const {
  const size_t size = DTypeBytes(dtype_);
  const auto same = [&](absl::string_view a, absl::string_view b, size_t i) {
    return std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0;
  };
  const auto text = [&](absl::string_view bytes, size_t i) {
    const Scalar s = LoadScalar(Tensor{dtype_, {}, std::string(bytes.substr(i * size, size))}, 0);
    return IsSigned(dtype_) ? absl::StrCat(s.i) : absl::StrCat(s.u);
  };
  for (const ComparedTensor& tensor : tensors) {
    const size_t count = tensor.candidate.size() / size;
    group->elements += static_cast<int64_t>(count);
    for (size_t i = 0; i < count; ++i) {
      const bool right = same(tensor.baseline, tensor.exact, i);
      if (!right) ++group->baseline_unlike;
      if (same(tensor.candidate, tensor.exact, i)) continue;
      ++group->candidate_unlike;
      if (!right || !group->unlike_element.empty()) continue;
      group->unlike_element = absl::StrCat(Place(tensor, i), ": got ", text(tensor.candidate, i),
                                           " where the baseline has ", text(tensor.baseline, i),
                                           " and f64 ", text(tensor.exact, i));
    }
  }
}

void OutputErrors::AddFloats(absl::Span<const ComparedTensor> tensors, Group* group) const {
  std::vector<std::vector<double>> exact;
  std::vector<double> all;  // of a group of small tensors
  for (const ComparedTensor& tensor : tensors) {
    exact.push_back(Decoded(tensor.exact, tensor.exact_dtype));
    for (double& t : exact.back()) t = OverflowIn(dtype_, t);
    all.insert(all.end(), exact.back().begin(), exact.back().end());
  }
  const double whole = RootMeanSquare(all.data(), all.size());
  Errors errors;
  for (size_t n = 0; n < tensors.size(); ++n) {
    const std::vector<double>& t = exact[n];
    const std::vector<double> c = Decoded(tensors[n].candidate, dtype_);
    const std::vector<double> b = Decoded(tensors[n].baseline, dtype_);
    const size_t row = RowOf(tensors[n]);
    group->elements += static_cast<int64_t>(t.size());
    double size = whole;
    for (size_t i = 0; i < t.size(); ++i) {
      if (row > 0 && i % row == 0) size = RootMeanSquare(t.data() + i, row);
      const auto values = [&] {
        return absl::StrCat(Place(tensors[n], i), ": got ", c[i], " where the baseline has ", b[i],
                            " and f64 ", t[i]);
      };
      const bool right = Alike(b[i], t[i]);
      if (!right) ++group->baseline_unlike;
      if (!Alike(c[i], t[i])) {
        ++group->candidate_unlike;
        if (right && group->unlike_element.empty()) group->unlike_element = values();
      }
      if (!std::isfinite(t[i])) continue;
      // All zeros in f64 and not here: a small part of the other rows, or of 1.
      const double scale = std::fabs(t[i]) +
                           (size > 0    ? size
                            : whole > 0 ? whole
                                        : 1.0) +
                           SmallestNormal(dtype_);
      const auto error = [&](double got) {
        return static_cast<float>(std::fabs(got - t[i]) / scale);
      };
      if (std::isfinite(b[i])) errors.baseline.push_back(error(b[i]));
      if (!std::isfinite(c[i])) continue;
      errors.candidate.push_back(error(c[i]));
      if (errors.candidate.back() <= errors.worst) continue;
      errors.worst = errors.candidate.back();
      group->worst_element = values();
    }
  }
  group->candidate = NormsOf(std::move(errors.candidate));
  group->baseline = NormsOf(std::move(errors.baseline));
}

void OutputErrors::Add(std::string about, absl::Span<const ComparedTensor> tensors, double noise,
                       DrawnValues values) {
  Group group{std::move(about), values, noise};
  if (IsFloat(dtype_)) {
    AddFloats(tensors, &group);
  } else {
    AddBytes(tensors, &group);
  }
  groups_.push_back(std::move(group));
}

double OutputErrors::Tolerance(const Group& group, Norm norm) const {
  double baseline = group.baseline[norm];
  for (const Group& other : groups_) {
    if (other.values == DrawnValues::kUsual) baseline = std::max(baseline, other.baseline[norm]);
  }
  const double chance = 1 + kDeviations / std::sqrt(static_cast<double>(group.elements));
  return std::max(kTimesBaseline * chance * baseline, trust_ * kFloors[norm] * group.noise);
}

double OutputErrors::UnlikeAllowed(const Group& group) const {
  int64_t unlike = 0, elements = 0;
  for (const Group& other : groups_) {
    if (other.values != DrawnValues::kUsual) continue;
    unlike += other.baseline_unlike;
    elements += other.elements;
  }
  const double rate =
      elements > 0 ? static_cast<double>(unlike) / static_cast<double>(elements) : 0;
  return kTimesBaseline * std::max(static_cast<double>(group.baseline_unlike),
                                   rate * static_cast<double>(group.elements));
}

absl::Status OutputErrors::Judge() const {
  for (const Group& group : groups_) {
    const std::string where = absl::StrCat("output \"", name_, "\" at ", group.about);
    if (static_cast<double>(group.candidate_unlike) > UnlikeAllowed(group)) {
      return absl::DataLossError(
          absl::StrCat(where, ": ", group.candidate_unlike, " of ", group.elements,
                       " elements are not as in f64, of the baseline ", group.baseline_unlike,
                       group.unlike_element.empty() ? "" : "; ", group.unlike_element));
    }
    if (group.values == DrawnValues::kEnds) continue;
    for (Norm norm : {kLargest, kRootMeanSquare, kMedian}) {
      const double tolerance = Tolerance(group, norm);
      if (group.candidate[norm] <= tolerance) continue;
      return absl::DataLossError(
          absl::StrCat(where, ": the ", NormName(norm), " error is ", group.candidate[norm],
                       " of the values, the baseline's ", group.baseline[norm], ", allowed ",
                       tolerance, "; ", group.worst_element));
    }
  }
  return absl::OkStatus();
}

OutputErrors::Summary OutputErrors::Summarize() const {
  Summary s;
  for (const Group& group : groups_) {
    s.elements += group.elements;
    s.unlike += group.baseline_unlike;
    if (group.values == DrawnValues::kEnds) continue;
    for (Norm norm : {kLargest, kRootMeanSquare, kMedian}) {
      s.candidate[norm] = std::max(s.candidate[norm], group.candidate[norm]);
      s.baseline[norm] = std::max(s.baseline[norm], group.baseline[norm]);
      const double tolerance = Tolerance(group, norm);
      if (tolerance > 0) s.worst = std::max(s.worst, group.candidate[norm] / tolerance);
    }
  }
  return s;
}

}  // namespace athanor
