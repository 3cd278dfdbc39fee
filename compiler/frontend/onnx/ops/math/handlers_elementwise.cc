// Handlers: elementwise functions of one operand, activations.
#include <limits>
#include <string>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

template <Op kOp>
absl::Status Row1(HandlerContext& c) {
  c.Set(0, Unary(c.b(), kOp, c.In(0)));
  return absl::OkStatus();
}

// Computes f16 and bf16 in f32 and rounds once.
template <auto kFunction>
absl::Status Wide(HandlerContext& c) {
  const Value& x = c.In(0);
  c.Set(0, Cast(c.b(), kFunction(c, Up(c.b(), x)), x.elem));
  return absl::OkStatus();
}
template <auto kFunction>
absl::Status Plain(HandlerContext& c) {
  c.Set(0, kFunction(c, c.In(0)));
  return absl::OkStatus();
}

Value AbsOf(HandlerContext& c, const Value& x) { return Abs(c.b(), x); }
Value NegOf(HandlerContext& c, const Value& x) { return Neg(c.b(), x); }
Value IsNanOf(HandlerContext& c, const Value& x) { return IsNaN(c.b(), x); }
Value CeilOf(HandlerContext& c, const Value& x) {
  return Neg(c.b(), Unary(c.b(), Op::kFloor, Neg(c.b(), x)));
}
Value SignOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  const Value zero = NumberLike(c, x, 0);
  const Value above = Select(b, Less(b, zero, x), NumberLike(c, x, 1), x);  // x: zeros, NaN
  if (IsUnsigned(x.dtype())) return above;
  return Select(b, Less(b, x, zero), NumberLike(c, x, -1), above);
}

absl::Status Erf(HandlerContext& c) {
  const Value& x = c.In(0);
  const bool floats = IsFloat(x.dtype());  // opset 9 takes integers, whose results are truncated
  c.Set(0, Cast(c.b(), Unary(c.b(), Op::kErf, floats ? x : Cast(c.b(), x, Elem::kDouble)), x.elem));
  return absl::OkStatus();
}

absl::Status Gelu(HandlerContext& c) {
  ASSIGN_OR_RETURN(const auto form, c.OneOf("approximate", {"none", "tanh"}));
  c.Set(0, Unary(c.b(), Op::kGelu, c.In(0), {{"approximate", form}}));
  return absl::OkStatus();
}

Value EluOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  const Value below = Mul(b, FloatAttr(c, x, "alpha"), Unary(b, Op::kExpm1, x));
  return Select(b, Less(b, NumberLike(c, x, 0), x), x, below);
}
Value SeluOf(HandlerContext& c, const Value& x) {
  return Mul(c.b(), FloatAttr(c, x, "gamma"), EluOf(c, x));
}
Value CeluOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  const Value alpha = FloatAttr(c, x, "alpha");
  const Value below = Mul(b, alpha, Unary(b, Op::kExpm1, Div(b, x, alpha)));
  return Select(b, Less(b, NumberLike(c, x, 0), x), x, below);
}
Value HardSigmoidOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  const Value line = Add(b, Mul(b, FloatAttr(c, x, "alpha"), x), FloatAttr(c, x, "beta"));
  return Clamp(b, line, NumberLike(c, x, 0), NumberLike(c, x, 1));
}
// HardSwish is defined by HardSigmoid with an attribute alpha of one sixth in f32.
Value HardSwishOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  const Value line = Add(b, Mul(b, NumberLike(c, x, 1.0F / 6), x), NumberLike(c, x, 0.5));
  return Mul(b, x, Clamp(b, line, NumberLike(c, x, 0), NumberLike(c, x, 1)));
}
Value LeakyReluOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  return Select(b, Less(b, x, NumberLike(c, x, 0)), Mul(b, FloatAttr(c, x, "alpha"), x), x);
}
Value ThresholdedReluOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  return Select(b, Less(b, FloatAttr(c, x, "alpha"), x), x, NumberLike(c, x, 0));
}
// Computes log(1 + exp(x)) without overflow.
Value SoftplusOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  const Value rest = Unary(b, Op::kLog1p, Unary(b, Op::kExp, Neg(b, Abs(b, x))));
  return Add(b, Max(b, x, NumberLike(c, x, 0)), rest);
}
Value SoftsignOf(HandlerContext& c, const Value& x) {
  return Div(c.b(), x, Add(c.b(), NumberLike(c, x, 1), Abs(c.b(), x)));
}
Value MishOf(HandlerContext& c, const Value& x) {
  return Mul(c.b(), x, Unary(c.b(), Op::kTanh, SoftplusOf(c, x)));
}

Value SwishOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  if (c.Float("alpha") == 1) return Unary(b, Op::kSilu, x);
  return Mul(b, x, Unary(b, Op::kSigmoid, Mul(b, FloatAttr(c, x, "alpha"), x)));
}
absl::Status SwiGlu(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &gate = c.In(0), &value = c.In(1);
  const auto shape = SameShape(c, {gate, value});
  if (!shape.ok()) return shape;
  c.Set(0, Cast(b, Mul(b, SwishOf(c, Up(b, gate)), Up(b, value)), gate.elem));
  return absl::OkStatus();
}

// Multiplies x by slope where x is negative.
absl::Status SetPRelu(HandlerContext& c, const Value& slope) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  if (!b.status().ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Shape shape, BroadcastShape(b, {x.shape, slope.shape}));
  if (shape != x.shape) {
    return Invalid("slope has shape ", ShapeToString(c.In(1).shape),
                   ", which does not broadcast to X's ", ShapeToString(x.shape));
  }
  if (IsUnsigned(x.dtype())) {
    c.Set(0, x);
    return absl::OkStatus();
  }
  const Value wide = Up(b, x);
  const Value below = Mul(b, Up(b, slope), wide);
  c.Set(0, Cast(b, Select(b, Less(b, wide, NumberLike(c, wide, 0)), below, wide), x.elem));
  return absl::OkStatus();
}
absl::Status PRelu(HandlerContext& c) { return SetPRelu(c, c.In(1)); }
// Before opset 7, there is one slope, or one for each channel (axis 1).
absl::Status PReluPerChannel(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &slope = c.In(1);
  if (slope.rank() > 1) {
    return Invalid("slope has shape ", ShapeToString(slope.shape),
                   "; before opset 7 it is one number or one for each channel");
  }
  const bool one = slope.rank() == 0 || b.bounds().ProvablyEqual(slope.shape[0], 1);
  if (one || x.rank() < 2) return SetPRelu(c, slope);
  std::vector<int> after;
  for (int i = 2; i < x.rank(); ++i) after.push_back(i - 1);
  return SetPRelu(c, Unsqueeze(b, slope, after));
}

// Computes x + bias below -lambd, x - bias above lambd, else 0. Integers are computed in f64 and
// truncated.
absl::Status Shrink(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  const double bias = c.Float("bias"), lambd = c.Float("lambd");
  Value wide = Up(b, x);
  if (!IsFloat(x.dtype())) {
    if (DTypeBytes(x.dtype()) == 8) {
      return Unimplemented(
          "its operand is ", ElemName(x.elem),
          "; a sum with a float bias would lose values beyond 2^53; Cast it to double");
    }
    wide = Cast(b, x, Elem::kDouble);
  }
  const Value zero = NumberLike(c, wide, 0);
  const Value above = Select(b, Less(b, NumberLike(c, wide, lambd), wide),
                             Sub(b, wide, NumberLike(c, wide, bias)), zero);
  const Value all = Select(b, Less(b, wide, NumberLike(c, wide, -lambd)),
                           Add(b, wide, NumberLike(c, wide, bias)), above);
  c.Set(0, Cast(b, all, x.elem));
  return absl::OkStatus();
}

// Until opset 10 the bounds are attributes; the defaults are the largest finite numbers.
absl::Status ClipAttributes(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value x = Up(b, c.In(0));
  const Value clipped = Clamp(b, x, FloatAttr(c, x, "min"), FloatAttr(c, x, "max"));
  c.Set(0, Cast(b, clipped, c.In(0).elem));
  return absl::OkStatus();
}
absl::Status Clip(HandlerContext& c) {
  OpBuilder& b = c.b();
  Value x = c.In(0);
  for (int i : {1, 2}) {
    if (!c.Has(i)) continue;
    ASSIGN_OR_RETURN(const Value bound, ScalarOperand(c, i, i == 1 ? "min" : "max"));
    x = i == 1 ? Max(b, x, bound) : Min(b, x, bound);
  }
  c.Set(0, x);
  return absl::OkStatus();
}

absl::Status IsInf(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  // Among the types of 8 bits, only float8e5m2 has infinities.
  const bool has = Computes(x.dtype()) ? IsFloat(x.dtype()) : x.elem == Elem::kFloat8E5M2;
  Value found = Splat(b, b.Integer(Elem::kBool, 0), x.shape);
  if (has) {
    const Value number = Cast(b, x, Computes(x.dtype()) ? x.elem : Elem::kFloat);
    const double infinity = std::numeric_limits<double>::infinity();
    if (c.Int("detect_positive") != 0) {
      found = Or(b, found, Equal(b, number, NumberLike(c, number, infinity)));
    }
    if (c.Int("detect_negative") != 0) {
      found = Or(b, found, Equal(b, number, NumberLike(c, number, -infinity)));
    }
  }
  c.Set(0, found);
  return absl::OkStatus();
}

absl::Status Identity(HandlerContext& c) {
  c.Set(0, c.In(0));
  return absl::OkStatus();
}

// Inference only: returns the operand unchanged, and a mask that keeps every element.
absl::Status KeepAll(HandlerContext& c, Elem mask) {
  c.Set(0, c.In(0));
  if (c.Wants(1)) c.Set(1, Splat(c.b(), c.b().Scalar(mask, 1), c.In(0).shape));
  return absl::OkStatus();
}
constexpr std::string_view kTraining =
    "it draws at random as in training, which is not supported; export the model for inference";

absl::Status DropoutIsTest(HandlerContext& c) {
  if (c.Int("is_test") == 0 && c.Float("ratio") != 0) return Unimplemented(kTraining);
  return KeepAll(c, c.In(0).elem);
}
absl::Status DropoutMaskAlike(HandlerContext& c) { return KeepAll(c, c.In(0).elem); }
absl::Status DropoutBoolMask(HandlerContext& c) { return KeepAll(c, Elem::kBool); }
absl::Status Dropout(HandlerContext& c) {
  if (c.Has(2)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> training, c.Integers(2, "training_mode"));
    if (!training.empty() && training.front() != 0) {
      double ratio = 0.5;
      if (c.Has(1)) {
        ASSIGN_OR_RETURN(const std::vector<double> given, c.Numbers(1, "ratio"));
        if (!given.empty()) ratio = given.front();
      }
      if (ratio != 0) return Unimplemented(kTraining);
    }
  }
  return KeepAll(c, Elem::kBool);
}

constexpr HandlerRow kRows[] = {
    {"", "Abs", 1, Plain<AbsOf>},
    {"", "Acos", 1, Row1<Op::kAcos>},
    {"", "Acosh", 1, Row1<Op::kAcosh>},
    {"", "Asin", 1, Row1<Op::kAsin>},
    {"", "Asinh", 1, Row1<Op::kAsinh>},
    {"", "Atan", 1, Row1<Op::kAtan>},
    {"", "Atanh", 1, Row1<Op::kAtanh>},
    {"", "BitwiseNot", 1, Row1<Op::kNot>},
    {"", "Ceil", 1, Plain<CeilOf>},
    {"", "Celu", 1, Wide<CeluOf>},
    {"", "Clip", 6, ClipAttributes},
    {"", "Clip", 11, Clip},
    {"", "Cos", 1, Row1<Op::kCos>},
    {"", "Cosh", 1, Row1<Op::kCosh>},
    {"", "Dropout", 1, DropoutIsTest},
    {"", "Dropout", 7, DropoutMaskAlike},
    {"", "Dropout", 10, DropoutBoolMask},
    {"", "Dropout", 12, Dropout},
    {"", "Elu", 1, Wide<EluOf>},
    {"", "Erf", 1, Erf},
    {"", "Exp", 1, Row1<Op::kExp>},
    {"", "Floor", 1, Row1<Op::kFloor>},
    {"", "Gelu", 1, Gelu},
    {"", "HardSigmoid", 1, Wide<HardSigmoidOf>},
    {"", "HardSwish", 1, Wide<HardSwishOf>},
    {"", "Identity", 1, Identity},
    {"", "IsInf", 1, IsInf},
    {"", "IsNaN", 1, Plain<IsNanOf>},
    {"", "LeakyRelu", 1, Wide<LeakyReluOf>},
    {"", "Log", 1, Row1<Op::kLog>},
    {"", "Mish", 1, Wide<MishOf>},
    {"", "Neg", 1, Plain<NegOf>},
    {"", "Not", 1, Row1<Op::kNot>},
    {"", "PRelu", 1, PReluPerChannel},
    {"", "PRelu", 7, PRelu},
    {"", "Reciprocal", 1, Row1<Op::kRecip>},
    {"", "Relu", 1, Row1<Op::kRelu>},
    {"", "Round", 1, Row1<Op::kRound>},
    {"", "Selu", 1, Wide<SeluOf>},
    {"", "Shrink", 1, Shrink},
    {"", "Sigmoid", 1, Row1<Op::kSigmoid>},
    {"", "Sign", 1, Plain<SignOf>},
    {"", "Sin", 1, Row1<Op::kSin>},
    {"", "Sinh", 1, Row1<Op::kSinh>},
    {"", "Softplus", 1, Wide<SoftplusOf>},
    {"", "Softsign", 1, Wide<SoftsignOf>},
    {"", "Sqrt", 1, Row1<Op::kSqrt>},
    {"", "SwiGLU", 1, SwiGlu},
    {"", "Swish", 1, Wide<SwishOf>},
    {"", "Tan", 1, Row1<Op::kTan>},
    {"", "Tanh", 1, Row1<Op::kTanh>},
    {"", "ThresholdedRelu", 1, Wide<ThresholdedReluOf>},
};

}  // namespace

absl::Span<const HandlerRow> ElementwiseUnaryRows() { return kRows; }

}  // namespace athanor::onnx
