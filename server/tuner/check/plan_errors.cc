#include "server/tuner/check/plan_errors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/tensor.h"

namespace athanor {
namespace {

// The limit of DESIGN §7.
constexpr double kTimesBaseline = 2;
// The ratio of the root mean squares of two sets of n normal errors typically deviates from 1 by
// 1/sqrt(n). A deviation this many times larger is never chance.
constexpr double kDeviations = 4;
// Least elements of a row whose root mean square indicates how large its values are.
constexpr int64_t kLeastRow = 16;
// The floors, in units of the noise. The error of one rounding is at most u, and one after two
// others is at most an ulp. If values are spread evenly over the binades and within the ulp, the
// root mean square is about 0.4 u, and that of K roundings in a row with growing partial sums 0.3
// sqrt(K) u; the median is two thirds of it.
constexpr std::array<double, kNorms> kFloors = {2, 0.3, 0.2};

double ValueAt(absl::string_view bytes, DType dtype, size_t i) {
  const size_t size = DTypeBytes(dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + i * size, size);
  if (dtype == DType::kF64) return std::bit_cast<double>(bits);
  if (dtype == DType::kF32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return DecodeFloat(dtype, bits);
}

// Returns infinity if `value` overflows in `dtype`, otherwise `value` itself.
double OverflowIn(DType dtype, double value) {
  if (!std::isfinite(value) || DTypeBytes(dtype) == 1 || dtype == DType::kF64) return value;
  if (std::fabs(value) < 65504) return value;
  const double rounded = DecodeFloat(dtype, EncodeFloat(dtype, value));
  return std::isfinite(rounded) ? value : rounded;
}

// Reports whether both are NaN, both the same infinity, or both finite.
bool Alike(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return true;
}

// Returns the root mean square of the finite values among `at(begin)` to `at(end - 1)`.
template <typename At>
double RootMeanSquare(const At& at, size_t begin, size_t end) {
  double largest = 0;
  for (size_t i = begin; i < end; ++i) {
    if (const double value = at(i); std::isfinite(value)) {
      largest = std::max(largest, std::fabs(value));
    }
  }
  if (largest == 0) return 0;
  double sum = 0;
  size_t finite = 0;
  for (size_t i = begin; i < end; ++i) {
    const double value = at(i);
    if (!std::isfinite(value)) continue;
    sum += (value / largest) * (value / largest);
    ++finite;
  }
  return largest * std::sqrt(sum / static_cast<double>(finite));
}

// Returns the size of a row: the last axes that together hold enough elements; 0: there are none.
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

// Computes norms of errors that arrive one by one, twice, without storing them; the median is
// exact. Floats of one sign are ordered like their bits: the first pass counts the median's upper
// half of bits, the second its lower half.
class ErrorNorms {
 public:
  void Add(float error) {
    largest_ = std::max<double>(largest_, error);
    sum_ += static_cast<double>(error) * error;
    ++count_;
    ++upper_[Bits(error) >> 16];
  }
  void Turn() { middle_ = Find(upper_, &rest_); }
  void AddAgain(float error) {
    if (Bits(error) >> 16 == middle_) ++lower_[Bits(error) & 0xffff];
  }
  std::array<double, kNorms> Found() const {
    if (count_ == 0) return {};
    int64_t rest = rest_;
    const uint32_t median = middle_ << 16 | Find(lower_, &rest);
    return {largest_, std::sqrt(sum_ / static_cast<double>(count_)), std::bit_cast<float>(median)};
  }

 private:
  using Counts = std::vector<int64_t>;
  static uint32_t Bits(float error) { return std::bit_cast<uint32_t>(error); }
  // Returns the bucket of the middle error. `*rest`: the number of errors before it, then the rank
  // within the bucket.
  uint32_t Find(const Counts& counts, int64_t* rest) const {
    if (*rest < 0) *rest = count_ / 2;
    uint32_t at = 0;
    while (at < counts.size() - 1 && *rest >= counts[at]) *rest -= counts[at++];
    return at;
  }

  double largest_ = 0, sum_ = 0;
  int64_t count_ = 0, rest_ = -1;
  uint32_t middle_ = 0;
  Counts upper_ = Counts(1 << 16), lower_ = Counts(1 << 16);
};

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

// Works element by element, so that it needs no extra memory for large outputs.
void OutputErrors::AddFloats(absl::Span<const ComparedTensor> tensors, Group* group) const {
  const auto exact = [&](const ComparedTensor& tensor, size_t i) {
    return OverflowIn(dtype_, ValueAt(tensor.exact, tensor.exact_dtype, i));
  };
  std::vector<size_t> begins = {0};  // first element of each tensor, counted over all
  for (const ComparedTensor& tensor : tensors) {
    begins.push_back(begins.back() + tensor.exact.size() / DTypeBytes(tensor.exact_dtype));
  }
  group->elements += static_cast<int64_t>(begins.back());
  size_t of = 0;  // the tensor that was used last
  const auto any = [&](size_t i) {
    while (i < begins[of]) --of;
    while (i >= begins[of + 1]) ++of;
    return exact(tensors[of], i - begins[of]);
  };
  const double whole = RootMeanSquare(any, 0, begins.back());
  ErrorNorms candidate, baseline;
  for (const bool again : {false, true}) {
    double worst = -1;  // worst error of the candidate
    for (size_t n = 0; n < tensors.size(); ++n) {
      const ComparedTensor& tensor = tensors[n];
      const size_t row = RowOf(tensor), count = begins[n + 1] - begins[n];
      double size = whole;
      for (size_t i = 0; i < count; ++i) {
        if (row > 0 && i % row == 0) {
          size = RootMeanSquare([&](size_t e) { return exact(tensor, e); }, i, i + row);
        }
        const double t = exact(tensor, i), c = ValueAt(tensor.candidate, dtype_, i),
                     b = ValueAt(tensor.baseline, dtype_, i);
        // If a row is all zeros in f64, uses the other rows' scale, or 1.
        const double scale = std::fabs(t) +
                             (size > 0    ? size
                              : whole > 0 ? whole
                                          : 1.0) +
                             SmallestNormal(dtype_);
        const auto error = [&](double got) {
          return static_cast<float>(std::fabs(got - t) / scale);
        };
        if (again) {
          if (!std::isfinite(t)) continue;
          if (std::isfinite(b)) baseline.AddAgain(error(b));
          if (std::isfinite(c)) candidate.AddAgain(error(c));
          continue;
        }
        const auto values = [&] {
          return absl::StrCat(Place(tensor, i), ": got ", c, " where the baseline has ", b,
                              " and f64 ", t);
        };
        const bool right = Alike(b, t);
        if (!right) ++group->baseline_unlike;
        if (!Alike(c, t)) {
          ++group->candidate_unlike;
          if (right && group->unlike_element.empty()) group->unlike_element = values();
        }
        if (!std::isfinite(t)) continue;
        if (std::isfinite(b)) baseline.Add(error(b));
        if (!std::isfinite(c)) continue;
        candidate.Add(error(c));
        if (error(c) <= worst) continue;
        worst = error(c);
        group->worst_element = values();
      }
    }
    if (again) continue;
    candidate.Turn();
    baseline.Turn();
  }
  group->candidate = candidate.Found();
  group->baseline = baseline.Found();
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
