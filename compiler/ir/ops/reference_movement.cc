// Leaves and movement. Movement copies bytes, so NaN payloads and f8 values pass unchanged.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/ir/expr/coordinate.h"
#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {
namespace {

// A round of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011): two 32x32 multiplications, their halves crossed and mixed with the key.
using Block = std::array<uint32_t, 4>;
Block PhiloxRound(const Block& counter, uint32_t key0, uint32_t key1) {
  const uint64_t product0 = uint64_t{0xd2511f53} * counter[0];
  const uint64_t product1 = uint64_t{0xcd9e8d57} * counter[2];
  return {
      static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
      static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
}

Block Philox(uint64_t index, uint64_t seed) {
  Block block = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0};
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    block = PhiloxRound(block, key0, key1);
    key0 += 0x9e3779b9;  // the golden ratio
    key1 += 0xbb67ae85;  // sqrt(3) - 1
  }
  return block;
}

// View of Gather and Scatter around their axis: the data as [outer, extent, inner], the gathered or
// updating tensor as [outer, indices, inner].
struct AxisView {
  AxisView(const Tensor& data, int64_t axis)
      : outer(Product(absl::MakeSpan(data.shape).subspan(0, axis))),
        extent(data.shape[axis]),
        inner(Product(absl::MakeSpan(data.shape).subspan(axis + 1))) {}
  int64_t outer, extent, inner;
};

absl::StatusOr<int64_t> CheckedIndex(const Tensor& indices, int64_t position, int64_t extent,
                                     int64_t axis) {
  const int64_t index = LoadIndex(indices, position);
  if (index >= 0 && index < extent) return index;
  return absl::OutOfRangeError(absl::StrFormat(
      "index %s at position %s of the indices is outside axis %d of the data, which has %d "
      "elements",
      LoadScalar(indices, position).dtype == DType::kU64
          ? absl::StrCat(static_cast<uint64_t>(index))
          : absl::StrCat(index),
      ShapeText(CoordinatesOf(indices.shape, position)), axis, extent));
}

void CopyElements(const Tensor& from, int64_t from_element, int64_t count, Tensor* to,
                  int64_t to_element) {
  const size_t bytes = DTypeBytes(to->dtype);
  std::copy_n(from.bytes.begin() + from_element * bytes, count * bytes,
              to->bytes.begin() + to_element * bytes);
}

enum class Combine { kAdd, kMul, kMax, kMin };

template <typename Value>
Value Combined(Combine combine, Value old_value, Value update) {
  if (combine == Combine::kAdd) return old_value + update;
  if (combine == Combine::kMul) return old_value * update;
  if constexpr (std::is_floating_point_v<Value>) {
    return combine == Combine::kMax ? MaxOfReals(old_value, update) : MinOfReals(old_value, update);
  }
  return combine == Combine::kMax ? std::max(old_value, update) : std::min(old_value, update);
}

// Calls element(data_element, update_element) for every updated element, in row-major order of the
// updates.
template <typename Element>
absl::Status ForEachUpdate(absl::Span<const Tensor* const> inputs, int64_t axis, Element element) {
  const AxisView view(*inputs[0], axis);
  const Tensor& indices = *inputs[1];
  const int64_t count = indices.elements();
  for (int64_t outer = 0; outer < view.outer; ++outer) {
    for (int64_t i = 0; i < count; ++i) {
      absl::StatusOr<int64_t> index = CheckedIndex(indices, i, view.extent, axis);
      if (!index.ok()) return index.status();
      for (int64_t inner = 0; inner < view.inner; ++inner) {
        element((outer * view.extent + *index) * view.inner + inner,
                (outer * count + i) * view.inner + inner);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ScatterCombined(absl::Span<const Tensor* const> inputs, int64_t axis, Combine combine,
                             Tensor* result) {
  if (IsFloat(result->dtype)) {
    return WithReal(result->dtype, [&](auto zero) {
      using Real = decltype(zero);
      std::vector<Real> values = LoadReals<Real>(*inputs[0]);
      const std::vector<Real> updates = LoadReals<Real>(*inputs[2]);
      absl::Status status = ForEachUpdate(inputs, axis, [&](int64_t to, int64_t from) {
        values[to] = Combined(combine, values[to], updates[from]);
      });
      StoreReals(values, result);
      return status;
    });
  }
  std::vector<uint64_t> values = LoadBitPatterns(*inputs[0]);
  const std::vector<uint64_t> updates = LoadBitPatterns(*inputs[2]);
  // Sums and products of bit patterns wrap as the semantics require.
  const bool is_signed =
      IsSigned(result->dtype) && (combine == Combine::kMax || combine == Combine::kMin);
  absl::Status status = ForEachUpdate(inputs, axis, [&](int64_t to, int64_t from) {
    values[to] = is_signed
                     ? static_cast<uint64_t>(Combined(combine, static_cast<int64_t>(values[to]),
                                                      static_cast<int64_t>(updates[from])))
                     : Combined(combine, values[to], updates[from]);
  });
  StoreBitPatterns(values, result);
  return status;
}

}  // namespace

uint32_t RandomWord(uint64_t seed, int64_t index) {
  return Philox(static_cast<uint64_t>(index) / 4, seed)[index % 4];
}

#define ATHANOR_REFERENCE(name)                                                         \
  absl::Status Reference##name([[maybe_unused]] absl::Span<const Tensor* const> inputs, \
                               [[maybe_unused]] const Attrs& attrs,                     \
                               [[maybe_unused]] const Expr::Env& dims, Tensor* result)

ATHANOR_REFERENCE(Constant) {
  result->bytes = GetAttr<Tensor>(attrs, "value").bytes;
  return absl::OkStatus();
}

ATHANOR_REFERENCE(Iota) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  Tensor coordinate = Tensor::Zeros(DType::kI64, result->shape);
  ForEachElement(result->shape, [&](int64_t position, const std::vector<int64_t>& at) {
    coordinate.data<int64_t>()[position] = at[axis];
  });
  return ReferenceCast({&coordinate}, {}, dims, result);
}

ATHANOR_REFERENCE(RandomBits) {
  const uint64_t seed = LoadScalar(*inputs[0], 0).u;
  for (int64_t i = 0; i < result->elements(); ++i) {
    StoreScalar(*result, i, Scalar::Unsigned(result->dtype, RandomWord(seed, i)));
  }
  return absl::OkStatus();
}

ATHANOR_REFERENCE(IndexMap) {
  const Tensor& operand = *inputs[0];
  const auto& map = GetAttr<IndexMap>(attrs, "map");
  const auto fill = attrs.find("fill");
  const int rank = static_cast<int>(result->shape.size());
  std::vector<Coordinate> coordinates;
  for (const Expr& e : map.coordinates) {
    absl::StatusOr<Coordinate> coordinate = Coordinate::Compile(e, dims, rank);
    if (!coordinate.ok()) return coordinate.status();
    coordinates.push_back(*std::move(coordinate));
  }
  const std::vector<int64_t> strides = Strides(operand.shape);
  absl::Status status;
  ForEachElement(result->shape, [&](int64_t position, const std::vector<int64_t>& at) {
    int64_t source = 0;
    for (size_t axis = 0; axis < coordinates.size(); ++axis) {
      const std::optional<int64_t> index = coordinates[axis].Evaluate(at);
      if (!index || *index < 0 || *index >= operand.shape[axis]) {
        if (fill != attrs.end()) {
          CopyElements(std::get<Tensor>(fill->second), 0, 1, result, position);
        } else if (status.ok()) {
          status = absl::OutOfRangeError(absl::StrFormat(
              "index map gives %s for axis %d of an operand of shape %s at %s, and has no fill",
              index ? absl::StrCat(*index) : "no value", axis, ShapeText(operand.shape),
              ShapeText(at)));
        }
        return;
      }
      source += *index * strides[axis];
    }
    CopyElements(operand, source, 1, result, position);
  });
  return status;
}

ATHANOR_REFERENCE(Gather) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  const AxisView view(*inputs[0], axis);
  const int64_t count = inputs[1]->elements();
  for (int64_t i = 0; i < count; ++i) {
    absl::StatusOr<int64_t> index = CheckedIndex(*inputs[1], i, view.extent, axis);
    if (!index.ok()) return index.status();
    for (int64_t outer = 0; outer < view.outer; ++outer) {
      CopyElements(*inputs[0], (outer * view.extent + *index) * view.inner, view.inner, result,
                   (outer * count + i) * view.inner);
    }
  }
  return absl::OkStatus();
}

ATHANOR_REFERENCE(Scatter) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  if (mode == "add") return ScatterCombined(inputs, axis, Combine::kAdd, result);
  if (mode == "mul") return ScatterCombined(inputs, axis, Combine::kMul, result);
  if (mode == "max") return ScatterCombined(inputs, axis, Combine::kMax, result);
  if (mode == "min") return ScatterCombined(inputs, axis, Combine::kMin, result);
  result->bytes = inputs[0]->bytes;
  return ForEachUpdate(inputs, axis, [&](int64_t to, int64_t from) {
    CopyElements(*inputs[2], from, 1, result, to);
  });
}

#undef ATHANOR_REFERENCE

}  // namespace athanor
