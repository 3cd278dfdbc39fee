// Handlers: Shape, Size, constants, Range and other ops that compute no data.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

absl::Status SetSizes(HandlerContext& c, std::vector<Expr> sizes) {
  const auto count = static_cast<int64_t>(sizes.size());
  c.Set(0, c.b().Sizes(Elem::kInt64, std::move(sizes), {count}));
  return absl::OkStatus();
}

absl::Status Shape1(HandlerContext& c) { return SetSizes(c, c.In(0).shape); }

absl::Status Shape15(HandlerContext& c) {
  const Shape& shape = c.In(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const auto position = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = position(c.Int("start"));
  const int64_t end = std::max(start, c.Given("end") ? position(c.Int("end")) : rank);
  return SetSizes(c, {shape.begin() + start, shape.begin() + end});
}

absl::Status Size1(HandlerContext& c) {
  c.Set(0, c.b().Sizes(Elem::kInt64, {ProductOf(c.In(0).shape)}, {}));
  return absl::OkStatus();
}

Value IntegerVector(OpBuilder& b, const std::vector<int64_t>& values) {
  return b.Literal(Elem::kInt64,
                   Tensor::Of<int64_t>(DType::kI64, {static_cast<int64_t>(values.size())}, values));
}

Value FloatVector(OpBuilder& b, const std::vector<double>& values) {
  Tensor t = Tensor::Zeros(DType::kF32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) t.data<float>()[i] = static_cast<float>(values[i]);
  return b.Literal(Elem::kFloat, std::move(t));
}

absl::Status Constant1(HandlerContext& c) {
  if (c.node().attribute_size() != 1) {
    return Invalid("it has ", c.node().attribute_size(),
                   " attributes; it must have one, its contents");
  }
  const std::string& name = c.node().attribute(0).name();
  if (name == "value") {
    ASSIGN_OR_RETURN(Value value, c.TensorAttr("value"));
    c.Set(0, std::move(value));
  } else if (name == "value_int") {
    c.Set(0, c.b().Integer(Elem::kInt64, c.Int(name)));
  } else if (name == "value_ints") {
    c.Set(0, IntegerVector(c.b(), c.Ints(name)));
  } else if (name == "value_float") {
    c.Set(0, c.b().Scalar(Elem::kFloat, c.Float(name)));
  } else if (name == "value_floats") {
    c.Set(0, FloatVector(c.b(), c.Floats(name)));
  } else if (name == "sparse_value") {
    return Unimplemented(
        "its contents are sparse, which is not supported; store them dense, in "
        "attribute \"value\"");
  } else {
    return Unimplemented(
        "its contents are strings, which are not supported, only numbers and bools");
  }
  return absl::OkStatus();
}

absl::Status ConstantOfShape9(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::vector<Expr> shape, c.Sizes(0, "input"));
  RETURN_IF_ERROR(CheckSizes("input", shape, c.b().bounds()));
  if (!c.Given("value")) {
    c.Set(0, Splat(c.b(), c.b().Scalar(Elem::kFloat, 0), shape));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Value value, c.TensorAttr("value"));
  if (value.known == nullptr || !value.known->concrete() || value.known->literal->elements() != 1) {
    return Invalid("attribute \"value\" has shape ", ShapeToString(value.shape),
                   "; it must have one element");
  }
  const Tensor one = {value.dtype(), {}, value.known->literal->bytes};
  c.Set(0, Splat(c.b(), c.b().Literal(value.elem, one), shape));
  return absl::OkStatus();
}

// Returns the result's type: attribute `dtype`, or the type of operand 0.
absl::StatusOr<Elem> ElemAttr(HandlerContext& c) {
  if (!c.Given("dtype")) return c.In(0).elem;
  const std::optional<Elem> elem = ElemOf(c.Int("dtype"));
  if (elem.has_value() && Row(*elem).carry != Carry::kNone) return *elem;
  return Invalid("attribute \"dtype\" is ", c.Int("dtype"), ", which is not a supported type");
}

absl::Status EyeLike9(HandlerContext& c) {
  const Shape& shape = c.In(0).shape;
  if (shape.size() != 2) {
    return Invalid("its input has shape ", ShapeToString(shape), "; it must be a matrix");
  }
  ASSIGN_OR_RETURN(const Elem elem, ElemAttr(c));
  OpBuilder& b = c.b();
  const Value row = b.Iota(Elem::kInt64, shape, 0), column = b.Iota(Elem::kInt64, shape, 1);
  const Value on = Equal(b, Add(b, row, b.Integer(Elem::kInt64, c.Int("k"))), column);
  c.Set(0, Cast(b, on, elem));
  return absl::OkStatus();
}

// A number or size as a quotient of integers; floats with few binary digits too.
struct Ratio {
  Expr over;
  int64_t under = 1;
};
std::optional<Ratio> RatioOf(const Value& x) {
  if (x.known == nullptr) return std::nullopt;
  if (x.known->sizes.size() == 1) return Ratio{x.known->sizes[0], x.known->divisor};
  if (!x.known->concrete() || x.known->literal->elements() != 1) return std::nullopt;
  const ::athanor::Scalar s = LoadScalar(*x.known->literal, 0);
  if (!IsFloat(s.dtype)) return std::nullopt;
  for (int64_t under = 1; under <= 4096; under *= 2) {
    const double over = s.f * static_cast<double>(under);
    if (over == std::floor(over) && std::abs(over) <= 0x1p30) {
      return Ratio{static_cast<int64_t>(over), under};
    }
  }
  return std::nullopt;
}

// Returns max(0, ceil((limit - start) / delta)), exactly. REQUIRES: `delta` has a proved sign.
absl::StatusOr<Expr> StepsOf(const Ratio& start, const Ratio& limit, const Ratio& delta,
                             const Bounds& bounds) {
  const Expr span = limit.over * start.under - start.over * limit.under;
  const Expr a = span * delta.under, d = delta.over * (start.under * limit.under);
  if (bounds.NonNegative(d - 1)) return bounds.Simplify(MaxOf(CeilDiv(a, d), 0));
  if (bounds.NonNegative(-1 - d)) return bounds.Simplify(MaxOf(CeilDiv(-1 * a, -1 * d), 0));
  if (d.IsConstant(0)) return Invalid("its delta is 0");
  return Unimplemented("its delta, ", delta.over.ToString(),
                       ", may be of either sign; tighten the dims' bounds");
}

constexpr std::string_view kRangeNames[] = {"start", "limit", "delta"};

// Counts as numpy does: every step is rounded to the type, f16 and bf16 in f32.
absl::StatusOr<Expr> FloatSteps(HandlerContext& c) {
  double v[3];
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(std::vector<double> numbers, c.Numbers(i, kRangeNames[i]));
    if (numbers.size() != 1) return Invalid("its ", kRangeNames[i], " must have one element");
    v[i] = numbers.front();
  }
  const bool is_double = c.In(0).dtype() == DType::kF64;
  const auto rounded = [&](double x) { return is_double ? x : static_cast<float>(x); };
  const double steps = std::ceil(rounded(rounded(v[1] - v[0]) / v[2]));
  if (v[2] == 0 || !(std::abs(steps) < 0x1p40)) {
    return Invalid("it counts from ", v[0], " to ", v[1], " by ", v[2],
                   ", which takes too many steps or never ends");
  }
  return Expr(std::max<int64_t>(0, static_cast<int64_t>(steps)));
}

absl::Status Range11(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Elem elem = c.In(0).elem;
  const bool is_float = IsFloat(c.In(0).dtype());
  std::vector<absl::Status> known;
  for (int i = 0; i < 3; ++i) {
    known.push_back(is_float ? c.Numbers(i, kRangeNames[i]).status()
                             : c.OneSize(i, kRangeNames[i]).status());
  }
  absl::StatusOr<Expr> count = Expr(0);
  const std::optional<Ratio> start = RatioOf(c.In(0)), limit = RatioOf(c.In(1)),
                             delta = RatioOf(c.In(2));
  if (start && limit && delta) {
    count = StepsOf(*start, *limit, *delta, b.bounds());
  } else if (absl::Status s = Together(known); !s.ok()) {
    return s;
  } else if (is_float) {
    count = FloatSteps(c);
  } else {
    count = Invalid("its start, limit and delta must have one element each");
  }
  if (!count.ok()) return count.status();
  ASSIGN_OR_RETURN(const Value first, OneElement(c, 0, "start"));
  ASSIGN_OR_RETURN(const Value step, OneElement(c, 2, "delta"));
  const Value from = Up(b, first);
  const Value position = b.Iota(from.elem, {*count}, 0);
  c.Set(0, Cast(b, Add(b, Mul(b, position, Up(b, step)), from), elem));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "Shape", 1, Shape1},
    {"", "Shape", 15, Shape15},
    {"", "Size", 1, Size1},
    {"", "Constant", 1, Constant1},
    {"", "ConstantOfShape", 9, ConstantOfShape9},
    {"", "EyeLike", 9, EyeLike9},
    {"", "Range", 11, Range11},
};

}  // namespace

absl::Span<const HandlerRow> ShapeRows() { return kRows; }

}  // namespace athanor::onnx
