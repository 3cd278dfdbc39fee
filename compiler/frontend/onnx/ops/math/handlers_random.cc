// Handlers: random numbers. They depend only on a seed, of the node or of the upload, so that every
// request draws the same numbers. A node without a seed is refused, since it asks for new numbers
// each time.
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr float kStep = 0x1p-24F;  // step of uniform numbers in f32

// Hashes with FNV-1a, so that nodes without a seed of their own draw different numbers.
uint64_t Mixed(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  return seed ^ hash;
}

absl::StatusOr<Value> SeedOf(HandlerContext& c) {
  uint64_t seed = 0;
  if (c.Given("seed")) {
    seed = std::bit_cast<uint64_t>(c.Float("seed"));
  } else if (c.random_seed()) {
    seed = Mixed(*c.random_seed(), c.node().output(0));
  } else {
    return Unimplemented(
        "it has no seed, so its numbers would differ each time, which is not supported; give it a "
        "seed, or the upload one (random_seed)");
  }
  return c.b().Literal(Elem::kUInt64, Tensor::Of<uint64_t>(DType::kU64, {}, {seed}));
}

absl::StatusOr<Value> Bits(HandlerContext& c, Shape shape) {
  ASSIGN_OR_RETURN(const Value seed, SeedOf(c));
  return c.b().Raw(Op::kRandomBits, {seed}, {{"shape", std::move(shape)}}, Elem::kUInt32);
}
// Returns k * 2^-24 for k in [first, first + 2^24), exact in f32.
Value Uniform(OpBuilder& b, const Value& bits, int first = 0) {
  const Value top = Binary(b, Op::kShift, bits, b.Integer(Elem::kUInt32, 8),
                           {{"direction", std::string("right")}});
  const Value count = Add(b, top, b.Integer(Elem::kUInt32, first));
  return Mul(b, Cast(b, count, Elem::kFloat), b.Scalar(Elem::kFloat, kStep));
}

// Returns the requested type, else `otherwise`.
absl::StatusOr<Elem> TypeOf(HandlerContext& c, Elem otherwise) {
  if (!c.Given("dtype")) return otherwise;
  return ElemAttr(c, "dtype");
}
absl::StatusOr<Elem> FloatTypeOf(HandlerContext& c, Elem otherwise) {
  const absl::StatusOr<Elem> elem = TypeOf(c, otherwise);
  if (!elem.ok() || (IsFloat(CarrierOf(*elem)) && Computes(CarrierOf(*elem)))) return elem;
  return Invalid("dtype is ", ElemName(*elem), "; it must be a float type");
}

// Returns from + x * factor for x of f32, in f64 if `elem` is f64.
Value Scaled(HandlerContext& c, const Value& x, double from, double factor, Elem elem) {
  OpBuilder& b = c.b();
  const Value wide = elem == Elem::kDouble ? Cast(b, x, elem) : x;
  const Elem in = elem == Elem::kDouble ? Elem::kDouble : Elem::kFloat;
  const auto number = [&](double value) {
    return in == Elem::kDouble ? b.Scalar(in, value)
                               : b.Scalar(in, static_cast<double>(static_cast<float>(value)));
  };
  return Cast(b, Add(b, number(from), Mul(b, wide, number(factor))), elem);
}

absl::Status SetUniform(HandlerContext& c, Shape shape, Elem otherwise) {
  ASSIGN_OR_RETURN(const Elem elem, FloatTypeOf(c, otherwise));
  ASSIGN_OR_RETURN(const Value bits, Bits(c, std::move(shape)));
  const double low = c.Float("low");
  c.Set(0, Scaled(c, Uniform(c.b(), bits), low, c.Float("high") - low, elem));
  return absl::OkStatus();
}

// Box-Muller transform: sqrt(-2 ln u) cos(2 pi v) for u in (0, 1], v in [0, 1).
absl::Status SetNormal(HandlerContext& c, const Shape& shape, Elem otherwise) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const Elem elem, FloatTypeOf(c, otherwise));
  Shape pair = shape;
  pair.insert(pair.begin(), 2);
  ASSIGN_OR_RETURN(const Value bits, Bits(c, std::move(pair)));
  const std::vector<int> first = {0};
  const Value u = Uniform(b, Squeeze(b, Slice(b, bits, 0, 0, 1), first), 1);
  const Value v = Uniform(b, Squeeze(b, Slice(b, bits, 0, 1, 1), first));
  const Value radius =
      Unary(b, Op::kSqrt, Mul(b, b.Scalar(Elem::kFloat, -2), Unary(b, Op::kLog, u)));
  const Value turn = b.Scalar(Elem::kFloat, static_cast<double>(6.2831853071795864F));
  const Value normal = Mul(b, radius, Unary(b, Op::kCos, Mul(b, turn, v)));
  c.Set(0, Scaled(c, normal, c.Float("mean"), c.Float("scale"), elem));
  return absl::OkStatus();
}

absl::StatusOr<Shape> ShapeAttr(HandlerContext& c) {
  Shape shape;
  for (int64_t size : c.Ints("shape")) {
    if (size < 0) return Invalid("shape has the negative size ", size);
    shape.push_back(size);
  }
  return shape;
}

absl::Status RandomUniform(HandlerContext& c) {
  const absl::StatusOr<Shape> shape = ShapeAttr(c);
  return shape.ok() ? SetUniform(c, *shape, Elem::kFloat) : shape.status();
}
absl::Status RandomNormal(HandlerContext& c) {
  const absl::StatusOr<Shape> shape = ShapeAttr(c);
  return shape.ok() ? SetNormal(c, *shape, Elem::kFloat) : shape.status();
}
absl::Status RandomUniformLike(HandlerContext& c) {
  return SetUniform(c, c.In(0).shape, c.In(0).elem);
}
absl::Status RandomNormalLike(HandlerContext& c) {
  return SetNormal(c, c.In(0).shape, c.In(0).elem);
}

absl::Status Bernoulli(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& p = c.In(0);
  ASSIGN_OR_RETURN(const Elem elem, TypeOf(c, p.elem));
  ASSIGN_OR_RETURN(const Value bits, Bits(c, p.shape));
  const Value chance = Up(b, p);
  c.Set(0, Cast(b, Less(b, Cast(b, Uniform(b, bits), chance.elem), chance), elem));
  return absl::OkStatus();
}

// Adds -log(-log(u)) to each log-probability and takes the class with the largest sum (the
// Gumbel-max trick). This draws classes by their probabilities, without normalisation.
absl::Status Multinomial(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  if (x.rank() != 2) {
    return Invalid("input has shape ", ShapeToString(x.shape), "; it must be [batch, classes]");
  }
  ASSIGN_OR_RETURN(const Elem elem, ElemAttr(c, "dtype"));
  const int64_t samples = c.Int("sample_size");
  if (samples < 0) return Invalid("sample_size=", samples, " must not be negative");
  ASSIGN_OR_RETURN(const Value bits, Bits(c, {x.shape[0], samples, x.shape[1]}));
  // Shifted by half a step in f64, so that u is neither 0 nor 1.
  const Value u =
      Add(b, Cast(b, Uniform(b, bits), Elem::kDouble), b.Scalar(Elem::kDouble, kStep / 2));
  const Value drawn = Neg(b, Unary(b, Op::kLog, Neg(b, Unary(b, Op::kLog, u))));
  const Value scores = Unsqueeze(b, Cast(b, x, Elem::kDouble), std::vector<int>{1});
  c.Set(0, Cast(b, ArgExtreme(b, Add(b, scores, drawn), 2, true, false, false), elem));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "Bernoulli", 1, Bernoulli},         {"", "Multinomial", 1, Multinomial},
    {"", "RandomNormal", 1, RandomNormal},   {"", "RandomNormalLike", 1, RandomNormalLike},
    {"", "RandomUniform", 1, RandomUniform}, {"", "RandomUniformLike", 1, RandomUniformLike},
};

}  // namespace

absl::Span<const HandlerRow> RandomRows() { return kRows; }

}  // namespace athanor::onnx
