// Helpers of the reference kernels: row-major index arithmetic, and tensors as arrays of a wider
// floating type. For ops/ and sample/.
//
//   WithReal(x.dtype, [&](auto zero) {
//     using Real = decltype(zero);                    // double, or long double for f64
//     std::vector<Real> values = LoadReals<Real>(x);
//     ...
//     StoreReals<Real>(values, result);               // rounded once
//   });
#ifndef ATHANOR_COMPILER_IR_OPS_REFERENCE_UTIL_H_
#define ATHANOR_COMPILER_IR_OPS_REFERENCE_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "compiler/ir/value/tensor.h"

namespace athanor {

template <typename Function>
auto WithReal(DType dtype, Function function) {
  if (dtype == DType::kF64) return function(static_cast<long double>(0));
  return function(0.0);
}

template <typename Real>
std::vector<Real> LoadReals(const Tensor& tensor) {
  std::vector<Real> values(tensor.elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = LoadScalar(tensor, i).f;
  return values;
}

template <typename Real>
void StoreReal(Tensor* tensor, int64_t index, Real value) {
  StoreScalar(*tensor, index, Scalar::Float(tensor->dtype, static_cast<double>(value)));
}

template <typename Real>
void StoreReals(const std::vector<Real>& values, Tensor* tensor) {
  for (size_t i = 0; i < values.size(); ++i) StoreReal(tensor, i, values[i]);
}

// Returns integers and bools as sign-extended 64-bit patterns: sums and products of these wrap as
// those of the narrow types do.
inline std::vector<uint64_t> LoadBitPatterns(const Tensor& tensor) {
  std::vector<uint64_t> values(tensor.elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = LoadScalar(tensor, i).u;
  return values;
}

inline void StoreBitPatterns(const std::vector<uint64_t>& values, Tensor* tensor) {
  for (size_t i = 0; i < values.size(); ++i) {
    StoreScalar(*tensor, i, Scalar::Unsigned(tensor->dtype, values[i]));
  }
}

// Min and Max of floats: a NaN on either side is the result, and -0 is below +0.
template <typename Real>
Real MinOfReals(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <typename Real>
Real MaxOfReals(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <typename Real>
void SoftmaxRow(Real* row, int64_t length, int64_t stride) {
  Real maximum = -std::numeric_limits<Real>::infinity();
  for (int64_t i = 0; i < length; ++i) maximum = std::max(maximum, row[i * stride]);
  Real sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    row[i * stride] = std::exp(row[i * stride] - maximum);
    sum += row[i * stride];
  }
  for (int64_t i = 0; i < length; ++i) row[i * stride] /= sum;
}

// Reads an index of any integer dtype. A u64 beyond int64 becomes negative, which no tensor
// accepts.
inline int64_t LoadIndex(const Tensor& tensor, int64_t position) {
  return static_cast<int64_t>(LoadScalar(tensor, position).u);
}

inline int64_t Product(absl::Span<const int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

inline std::vector<int64_t> Strides(absl::Span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * shape[i + 1];
  }
  return strides;
}

// Calls function(position, coordinates) for the first element of each row of `shape`, in row-major
// order. A row is what lies along the last axis; a scalar is one.
template <typename Function>
void ForEachRow(absl::Span<const int64_t> shape, Function function) {
  std::vector<int64_t> coordinates(shape.size(), 0);
  const int64_t length = shape.empty() ? 1 : shape.back(), elements = Product(shape);
  for (int64_t position = 0; position < elements; position += length) {
    function(position, coordinates);
    for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) {
      if (++coordinates[i] < shape[i]) break;
      coordinates[i] = 0;
    }
  }
}

// Does the same for each element of the row that begins at `first`, whose coordinates are `row`;
// `at` is memory for coordinates.
template <typename Function>
void ForEachInRow(absl::Span<const int64_t> shape, int64_t first, const std::vector<int64_t>& row,
                  std::vector<int64_t>* at, Function function) {
  if (shape.empty()) return function(first, row);
  *at = row;
  for (int64_t& i = at->back(); i < shape.back(); ++i) function(first + i, *at);
}

// Does the same for each element.
template <typename Function>
void ForEachElement(absl::Span<const int64_t> shape, Function function) {
  std::vector<int64_t> at;
  ForEachRow(shape, [&](int64_t first, const std::vector<int64_t>& row) {
    ForEachInRow(shape, first, row, &at, function);
  });
}

// Calls function(position, offset) for each element of `shape` in row-major order; the offset is
// the sum of its coordinates times `strides`.
template <typename Function>
void ForEachOffset(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides,
                   Function function) {
  ForEachRow(shape, [&](int64_t position, const std::vector<int64_t>& at) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * strides[axis];
    if (shape.empty()) return function(position, offset);
    for (int64_t i = 0; i < shape.back(); ++i) function(position + i, offset + i * strides.back());
  });
}

inline std::vector<int64_t> CoordinatesOf(absl::Span<const int64_t> shape, int64_t position) {
  std::vector<int64_t> coordinates(shape.size(), 0);
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    coordinates[i] = position % shape[i];
    position /= shape[i];
  }
  return coordinates;
}

inline std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_REFERENCE_UTIL_H_
