// A tensor's bytes on the host: literals of graphs, and the values of the reference evaluator.
//
//   Tensor t = Tensor::Zeros(DType::kF32, {2, 3});
//   t.data<float>()[4] = 1;        // dense, row-major, little-endian
#ifndef ATHANOR_COMPILER_IR_VALUE_TENSOR_H_
#define ATHANOR_COMPILER_IR_VALUE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/value/dtype.h"

namespace athanor {

struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  static Tensor Zeros(DType dtype, std::vector<int64_t> shape) {
    Tensor t{dtype, std::move(shape), {}};
    t.bytes.resize(static_cast<size_t>(t.elements()) * DTypeBytes(dtype));
    return t;
  }
  template <typename T>
  static Tensor Of(DType dtype, std::vector<int64_t> shape, absl::Span<const T> values) {
    return {dtype, std::move(shape),
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  bool operator==(const Tensor&) const = default;
};

// An element of any computing dtype, held without loss: floats (f16 to f64) in `f`, signed integers
// in `i`, unsigned ones and bool in `u`.
struct Scalar {
  DType dtype = DType::kF32;
  union {
    double f;
    int64_t i;
    uint64_t u;
  };
  Scalar() : f(0) {}
  static Scalar Float(DType t, double v) {
    Scalar s;
    s.dtype = t;
    s.f = v;
    return s;
  }
  static Scalar Signed(DType t, int64_t v) {
    Scalar s;
    s.dtype = t;
    s.i = v;
    return s;
  }
  static Scalar Unsigned(DType t, uint64_t v) {
    Scalar s;
    s.dtype = t;
    s.u = v;
    return s;
  }
};

// LoadScalar and StoreScalar of any dtype.
Scalar LoadScalarOfAny(const Tensor& tensor, int64_t index);
void StoreScalarOfAny(Tensor& tensor, int64_t index, const Scalar& value);

// Reads or writes element `index` (row-major). Writing rounds floats to nearest even and wraps
// integers. REQUIRES: `value.dtype` equals the tensor's dtype. Inline for f32: most elements of
// references are.
inline Scalar LoadScalar(const Tensor& tensor, int64_t index) {
  if (tensor.dtype != DType::kF32) return LoadScalarOfAny(tensor, index);
  return Scalar::Float(DType::kF32, tensor.data<float>()[index]);
}
inline void StoreScalar(Tensor& tensor, int64_t index, const Scalar& value) {
  if (tensor.dtype != DType::kF32) return StoreScalarOfAny(tensor, index, value);
  tensor.data<float>()[index] = static_cast<float>(value.f);
}

// Returns the identity of Max for the dtype: -inf, the least integer, false.
Scalar LowestScalar(DType dtype);

// Convert between storage formats and double: exact if representable, otherwise rounded to nearest
// even. f8e4m3 does not saturate: it has no infinity, and overflow gives NaN. f8e8m0 holds powers
// of two.
double DecodeFloat(DType dtype, uint64_t bits);
uint64_t EncodeFloat(DType dtype, double value);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_VALUE_TENSOR_H_
