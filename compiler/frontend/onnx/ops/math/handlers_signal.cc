// Handlers: Fourier transforms, windows, mel scales.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr int64_t kMaxMelElements = 1 << 22;

Value Number(OpBuilder& b, double value) { return b.Scalar(Elem::kDouble, value); }

// Cosines and sines of 2 pi n k / length, [rows, columns] in f64. The angle is reduced in integers,
// so that they are exact for signals of any length.
struct Turns {
  Value cosine, sine;
};
Turns TurnsOf(OpBuilder& b, const Expr& rows, const Expr& columns, const Expr& length) {
  const Value n = b.Iota(Elem::kInt64, {rows, 1}, 0), k = b.Iota(Elem::kInt64, {1, columns}, 1);
  const Value step = Binary(b, Op::kMod, Mul(b, n, k), Size(b, Elem::kInt64, length, {}));
  const Value turn = Div(b, Cast(b, step, Elem::kDouble), Size(b, Elem::kDouble, length, {}));
  const Value angle = Mul(b, turn, Number(b, 2 * std::numbers::pi));
  return {Unary(b, Op::kCos, angle), Unary(b, Op::kSin, angle)};
}

// Real and imaginary parts, in f64; a real signal has no imaginary part.
struct Complex {
  Value real;
  std::optional<Value> imaginary;
};
absl::StatusOr<Complex> PartsOf(HandlerContext& c, const Value& x) {
  OpBuilder& b = c.b();
  const auto parts = x.shape.empty() ? std::nullopt : x.shape.back().constant();
  if (parts != 1 && parts != 2) {
    return Invalid("its input has shape ", ShapeToString(x.shape),
                   "; the last axis must be 1, real, or 2, complex");
  }
  const Value wide = Cast(b, x, Elem::kDouble);
  const int last = x.rank() - 1;
  const auto part = [&](int64_t i) { return Squeeze(b, Slice(b, wide, last, i, 1), {last}); };
  Complex complex = {part(0), {}};
  if (parts == 2) complex.imaginary = part(1);
  return complex;
}

// Cuts `axis` of x to `size`, or pads it with zeros.
Value Fit(OpBuilder& b, const Value& x, int axis, const Expr& size) {
  if (b.bounds().ProvablyEqual(x.shape[axis], size)) return x;
  Shape shape = x.shape;
  shape[axis] = size;
  return MapOr(b, x, std::move(shape), AllAxes(x.rank()), Number(b, 0));
}

// Sums x times a table [axis, result] over `axis`; the table's second axis takes its place.
Value Along(OpBuilder& b, const Value& x, int axis, const Value& table) {
  std::string from;
  for (int i = 0; i < x.rank(); ++i) from.push_back(static_cast<char>('a' + i));
  std::string to = from;
  to[axis] = 'z';
  return Contract(b, Cat(from, ",", from.substr(axis, 1), "z->", to), x, table);
}

Value Stacked(OpBuilder& b, const Value& real, const Value& imaginary) {
  const int last = real.rank();
  return Concat(b, {Unsqueeze(b, real, {last}), Unsqueeze(b, imaginary, {last})}, last);
}

Complex Transform(OpBuilder& b, const Complex& x, int axis, const Turns& turns, bool inverse) {
  const auto along = [&](const Value& part, const Value& table) {
    return Along(b, part, axis, table);
  };
  const Value sine = inverse ? turns.sine : Neg(b, turns.sine);
  Complex y = {along(x.real, turns.cosine), along(x.real, sine)};
  if (x.imaginary.has_value()) {
    y.real = Sub(b, y.real, along(*x.imaginary, sine));
    y.imaginary = Add(b, *y.imaginary, along(*x.imaginary, turns.cosine));
  }
  return y;
}

// Computes a real signal from half a spectrum: every frequency counts twice, except 0 and the
// highest one of an even length.
Value RealInverse(OpBuilder& b, const Complex& x, int axis, const Expr& length) {
  const Expr bins = FloorDiv(length, 2) + 1;
  const Turns turns = TurnsOf(b, bins, length, length);
  const Value k = b.Iota(Elem::kInt64, {bins, 1}, 0);
  const Value alone = Or(b, Equal(b, k, b.Integer(Elem::kInt64, 0)),
                         Equal(b, Add(b, k, k), Size(b, Elem::kInt64, length, {})));
  const Value weight = Select(b, alone, Number(b, 1), Number(b, 2));
  const Value real = Along(b, Fit(b, x.real, axis, bins), axis, Mul(b, turns.cosine, weight));
  if (!x.imaginary.has_value()) return real;
  return Sub(b, real, Along(b, Fit(b, *x.imaginary, axis, bins), axis, Mul(b, turns.sine, weight)));
}

absl::Status Dft(HandlerContext& c, int64_t given_axis) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(const int axis, c.Axis(given_axis, x.rank()));
  if (axis == x.rank() - 1) {
    return Invalid("its axis is the last, which holds the parts of complex numbers");
  }
  if (x.rank() > 15) return Unimplemented("its input has rank ", x.rank(), "; at most 15");
  const bool inverse = c.Int("inverse") != 0, onesided = c.Int("onesided") != 0;
  ASSIGN_OR_RETURN(Complex parts, PartsOf(c, x));
  absl::StatusOr<Expr> length = x.shape[axis];
  if (inverse && onesided) length = 2 * (x.shape[axis] - 1);
  if (c.Has(1)) length = c.OneSize(1, "dft_length");
  if (!length.ok()) return length.status();
  if (!b.bounds().NonNegative(*length - 1)) {
    return Invalid("its length is ", length->ToString(), "; it must be 1 or more");
  }
  if (!inverse && onesided && parts.imaginary.has_value()) {
    return Invalid(
        "its input is complex and onesided is 1; half of a spectrum suffices only for a real "
        "input");
  }
  const Value scale = Size(b, Elem::kDouble, *length, {});
  if (inverse && onesided) {
    const Value y = Div(b, RealInverse(b, parts, axis, *length), scale);
    c.Set(0, Cast(b, Unsqueeze(b, y, {x.rank() - 1}), x.elem));
    return absl::OkStatus();
  }
  parts.real = Fit(b, parts.real, axis, *length);
  if (parts.imaginary.has_value()) {
    parts.imaginary = Fit(b, *parts.imaginary, axis, *length);
  }
  const Expr bins = onesided ? FloorDiv(*length, 2) + 1 : *length;
  const Complex y = Transform(b, parts, axis, TurnsOf(b, *length, bins, *length), inverse);
  const Value both = Stacked(b, y.real, *y.imaginary);
  c.Set(0, Cast(b, inverse ? Div(b, both, scale) : both, x.elem));
  return absl::OkStatus();
}
absl::Status Dft17(HandlerContext& c) { return Dft(c, c.Int("axis")); }
absl::Status Dft20(HandlerContext& c) {
  if (!c.Has(2)) return Dft(c, -2);
  ASSIGN_OR_RETURN(const std::vector<int64_t> axis, c.Integers(2, "axis"));
  if (axis.size() != 1) return Invalid("its axis must be one number");
  return Dft(c, axis.front());
}

absl::Status Stft17(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Bounds& bounds = b.bounds();
  const Value& x = c.In(0);
  const bool onesided = c.Int("onesided") != 0;
  ASSIGN_OR_RETURN(Complex parts, PartsOf(c, x));
  if (x.rank() != 3 || (onesided && parts.imaginary.has_value())) {
    return Invalid("its signal has shape ", ShapeToString(x.shape), " and onesided is ",
                   onesided ? 1 : 0,
                   "; it must be [batch, length, 1], or [batch, length, 2] with onesided 0");
  }
  ASSIGN_OR_RETURN(const Expr step, c.OneSize(1, "frame_step"));
  absl::StatusOr<Expr> frame = c.Has(2) && c.In(2).rank() == 1 ? c.In(2).shape[0] : x.shape[1];
  if (c.Has(3)) frame = c.OneSize(3, "frame_length");
  if (!frame.ok()) return frame.status();
  if (!bounds.NonNegative(step - 1) || !bounds.NonNegative(*frame - 1) ||
      !bounds.NonNegative(x.shape[1] - *frame)) {
    return Invalid("its frames have length ", frame->ToString(), " and step ", step.ToString(),
                   "; both must be 1 or more, and a frame within the signal of ",
                   x.shape[1].ToString());
  }
  if (c.Has(2) && (c.In(2).rank() != 1 || !bounds.ProvablyEqual(c.In(2).shape[0], *frame))) {
    return Invalid("its window has shape ", ShapeToString(c.In(2).shape), "; it must be [",
                   frame->ToString(), "], a frame");
  }
  const Shape framed = {x.shape[0], FloorDiv(x.shape[1] - *frame, step) + 1, *frame};
  const auto frames = [&](const Value& part) {
    const Value cut = Map(b, part, framed, {Expr::Axis(0), Expr::Axis(1) * step + Expr::Axis(2)});
    return c.Has(2) ? Mul(b, cut, Cast(b, c.In(2), Elem::kDouble)) : cut;
  };
  Complex signal = {frames(parts.real), {}};
  if (parts.imaginary.has_value()) signal.imaginary = frames(*parts.imaginary);
  const Expr bins = onesided ? FloorDiv(*frame, 2) + 1 : *frame;
  const Complex y = Transform(b, signal, 2, TurnsOf(b, *frame, bins, *frame), /*inverse=*/false);
  c.Set(0, Cast(b, Stacked(b, y.real, *y.imaginary), x.elem));
  return absl::OkStatus();
}

absl::StatusOr<Elem> ResultElem(HandlerContext& c) {
  const int64_t number = c.Int("output_datatype");
  const std::optional<Elem> elem = ElemOf(number);
  if (elem.has_value() && Row(*elem).carry == Carry::kSame && *elem != Elem::kBool) return *elem;
  return Invalid("attribute \"output_datatype\" is ", number,
                 "; it must be an integer or float type");
}

// Returns first - second * cos(x) + third * cos(2 x), for x over one period.
absl::Status Window(HandlerContext& c, double first, double second, double third) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const Expr size, c.OneSize(0, "size"));
  RETURN_IF_ERROR(CheckSizes("size", {size}, b.bounds()));
  ASSIGN_OR_RETURN(const Elem elem, ResultElem(c));
  const Expr round = c.Int("periodic") != 0 ? size : size - 1;
  const Value turn = Div(b, b.Iota(Elem::kDouble, {size}, 0), Size(b, Elem::kDouble, round, {}));
  const Value angle = Mul(b, turn, Number(b, 2 * std::numbers::pi));
  Value y = Sub(b, Number(b, first), Mul(b, Number(b, second), Unary(b, Op::kCos, angle)));
  if (third != 0) {
    const Value twice = Unary(b, Op::kCos, Add(b, angle, angle));
    y = Add(b, y, Mul(b, Number(b, third), twice));
  }
  c.Set(0, Cast(b, y, elem));
  return absl::OkStatus();
}
absl::Status HannWindow17(HandlerContext& c) { return Window(c, 0.5, 0.5, 0); }
absl::Status HammingWindow17(HandlerContext& c) { return Window(c, 25.0 / 46, 21.0 / 46, 0); }
absl::Status BlackmanWindow17(HandlerContext& c) { return Window(c, 0.42, 0.5, 0.08); }

double MelOf(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double HertzOf(double mel) { return 700 * (std::pow(10, mel / 2595) - 1); }

// Returns triangles over the bins of a spectrum; their corners are equidistant in mel.
absl::Status MelWeightMatrix17(HandlerContext& c) {
  static constexpr std::string_view kNames[] = {"num_mel_bins", "dft_length", "sample_rate",
                                                "lower_edge_hertz", "upper_edge_hertz"};
  double given[5];
  std::vector<absl::Status> known;
  for (int i = 0; i < 5; ++i) known.push_back(c.Numbers(i, kNames[i]).status());
  RETURN_IF_ERROR(Together(known));
  for (int i = 0; i < 5; ++i) {
    ASSIGN_OR_RETURN(const std::vector<double> numbers, c.Numbers(i, kNames[i]));
    if (numbers.size() != 1 || !(numbers.front() >= 0 && numbers.front() < 0x1p31)) {
      return Invalid("its ", kNames[i], " must be one number, 0 or more");
    }
    given[i] = numbers.front();
  }
  ASSIGN_OR_RETURN(const Elem elem, ResultElem(c));
  const auto bins = static_cast<int64_t>(given[0]), length = static_cast<int64_t>(given[1]);
  const int64_t rows = length / 2 + 1;
  if (given[2] < 1 || bins * rows > kMaxMelElements) {
    return Invalid("its sample_rate is ", given[2], " and its matrix ", rows, " by ", bins,
                   "; the rate must be 1 or more, and at most ", kMaxMelElements,
                   " elements are supported");
  }
  const double low = MelOf(given[3]), step = (MelOf(given[4]) - low) / (given[0] + 2);
  std::vector<int64_t> corners;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = HertzOf(low + static_cast<double>(i) * step);
    corners.push_back(
        static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * hertz / given[2])));
  }
  Tensor t = Tensor::Zeros(DType::kF64, {rows, bins});
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t left = corners[i], peak = corners[i + 1], right = corners[i + 2];
    const auto set = [&](int64_t row, double value) {
      if (row >= 0 && row < rows) t.data<double>()[row * bins + i] = value;
    };
    if (peak == left) set(peak, 1);
    for (int64_t j = std::max<int64_t>(left, 0); j <= std::min(peak, rows) && peak > left; ++j) {
      set(j, static_cast<double>(j - left) / static_cast<double>(peak - left));
    }
    for (int64_t j = std::max<int64_t>(peak, 0); j < std::min(right, rows); ++j) {
      set(j, static_cast<double>(right - j) / static_cast<double>(right - peak));
    }
  }
  c.Set(0, Cast(c.b(), c.b().Literal(Elem::kDouble, std::move(t)), elem));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "DFT", 17, Dft17},
    {"", "DFT", 20, Dft20},
    {"", "STFT", 17, Stft17},
    {"", "HannWindow", 17, HannWindow17},
    {"", "HammingWindow", 17, HammingWindow17},
    {"", "BlackmanWindow", 17, BlackmanWindow17},
    {"", "MelWeightMatrix", 17, MelWeightMatrix17},
};

}  // namespace

absl::Span<const HandlerRow> SignalRows() { return kRows; }

}  // namespace athanor::onnx
