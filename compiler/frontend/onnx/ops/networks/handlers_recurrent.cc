// Handlers: recurrent networks. Each op has its own cell; all share one loop for all directions and
// layouts.
#include "compiler/frontend/onnx/ops/networks/handlers_recurrent.h"

#include <algorithm>
#include <utility>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/math/handlers_quantised.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// A matrix [rows, columns] that multiplies vectors of size `columns`. Quantised weights are i32
// minus their zero point; their operand is quantised to u8, all of it by one scale.
struct Weights {
  Value values;
  std::optional<Value> scale;  // if quantised: f32 [rows]

  Weights Rows(OpBuilder& b, const Expr& first, const Expr& count) const {
    Weights rows = {Slice(b, values, 0, first, count), scale};
    if (scale) rows.scale = Slice(b, *scale, 0, first, count);
    return rows;
  }
  Value Product(OpBuilder& b, std::string_view spec, const Value& x) const {
    if (!scale) return Contract(b, spec, x, values);
    const Quantised q = QuantisedDynamically(b, x);
    const Value shifted =
        Sub(b, Cast(b, q.values, Elem::kInt32), Cast(b, q.zero_point, Elem::kInt32));
    const Value sums = Cast(b, Contract(b, spec, shifted, values), Elem::kFloat);
    return Mul(b, sums, Mul(b, q.scale, *scale));
  }
};

// The weights and initial states of one direction.
struct Direction {
  Weights w, r;  // [gates*H, I], [gates*H, H]
  // Biases of the input and of the state, [gates*H] each; nullopt if there are none.
  std::optional<Value> w_bias, r_bias;
  std::optional<Value> peepholes;  // [3*H]
  std::vector<Value> state;        // [batch, H] each
  absl::Span<const Activation> activations;
};

constexpr int64_t kMaxHidden = int64_t{1} << 31;  // small enough to avoid overflow

// The parts that all recurrent ops have in common, in floats wide enough for sums.
struct Network {
  Value x;  // [length, batch, I]
  Elem elem = Elem::kFloat;
  Expr batch;
  int64_t hidden = 0;
  int gates = 0;
  bool batch_first = false;
  std::optional<double> clip;
  Sequence sequence;
  std::vector<Direction> directions;
  std::vector<Activation> activations;
  bool first_reversed = false;
};

struct CellOp {
  int gates;
  std::vector<std::string_view> activations;
  int states;  // h; h and c
  // Weights come as [directions, columns, rows], with their own scales and zero points.
  bool quantised = false;
};
constexpr int kWScale = 8, kRScale = 10;  // operands; each is followed by its zero point

// Returns the slice for one direction of a [directions, ...] operand.
Value OfDirection(OpBuilder& b, const Value& v, int d, int axis = 0) {
  return Squeeze(b, Slice(b, v, axis, d, 1), {axis});
}

absl::Status CheckShape(const OpBuilder& b, std::string_view what, const Value& v,
                        const Shape& right) {
  bool same = v.rank() == static_cast<int>(right.size());
  for (size_t i = 0; same && i < right.size(); ++i) {
    same = b.bounds().ProvablyEqual(v.shape[i], right[i]);
  }
  if (same) return absl::OkStatus();
  return Invalid(what, " has shape ", ShapeToString(v.shape), "; it must be ",
                 ShapeToString(right));
}

absl::Status CheckOperands(HandlerContext& c, const Network& n, const CellOp& op,
                           int64_t directions) {
  OpBuilder& b = c.b();
  const int64_t rows = op.gates * n.hidden;
  const auto weights = [&](const Expr& columns) {
    return op.quantised ? Shape{directions, columns, rows} : Shape{directions, rows, columns};
  };
  absl::Status s = CheckShape(b, "W", c.In(1), weights(n.x.shape[2]));
  if (s.ok()) s = CheckShape(b, "R", c.In(2), weights(n.hidden));
  for (int i = kWScale; op.quantised && s.ok() && i < c.inputs(); ++i) {
    const Shape one = {directions}, each = {directions, rows};
    const std::string_view names[] = {"W_scale", "W_zero_point", "R_scale", "R_zero_point"};
    s = CheckShape(b, names[i - kWScale], c.In(i), c.In(i).rank() == 1 ? one : each);
  }
  if (s.ok() && c.Has(3)) s = CheckShape(b, "B", c.In(3), {directions, 2 * rows});
  if (s.ok() && c.Has(4)) s = CheckShape(b, "sequence_lens", c.In(4), {n.batch});
  const Shape state =
      n.batch_first ? Shape{n.batch, directions, n.hidden} : Shape{directions, n.batch, n.hidden};
  if (s.ok() && c.Has(5)) s = CheckShape(b, "initial_h", c.In(5), state);
  if (s.ok() && op.states > 1 && c.Has(6)) s = CheckShape(b, "initial_c", c.In(6), state);
  if (s.ok() && op.states > 1 && c.Has(7))
    s = CheckShape(b, "P", c.In(7), {directions, 3 * n.hidden});
  return s;
}

Weights WeightsOf(HandlerContext& c, const CellOp& op, int i, int scale, int d) {
  OpBuilder& b = c.b();
  const Value v = OfDirection(b, c.In(i), d);
  if (!op.quantised) return {Up(b, v), std::nullopt};
  if (!b.status().ok()) return {v, v};
  const Value zero = Cast(b, OfDirection(b, c.In(scale + 1), d), Elem::kInt32);
  // Zero points by column, or one for all.
  const Value shifted = Sub(b, Cast(b, v, Elem::kInt32), zero);
  Value factors = OfDirection(b, c.In(scale), d);
  if (factors.rank() == 0) factors = Splat(b, factors, {v.shape[1]});
  return {Permute(b, shifted, {1, 0}), factors};
}

Direction DirectionOf(HandlerContext& c, const Network& n, const CellOp& op, int d) {
  OpBuilder& b = c.b();
  const int64_t rows = op.gates * n.hidden;
  Direction direction;
  direction.w = WeightsOf(c, op, 1, kWScale, d);
  direction.r = WeightsOf(c, op, 2, kRScale, d);
  if (c.Has(3)) {
    const Value both = Up(b, OfDirection(b, c.In(3), d));
    direction.w_bias = Slice(b, both, 0, 0, rows);
    direction.r_bias = Slice(b, both, 0, rows, rows);
  }
  for (int i = 0; i < op.states; ++i) {
    const Value zero = Splat(b, b.Scalar(n.x.elem, 0), {n.batch, n.hidden});
    direction.state.push_back(
        c.Has(5 + i) ? Up(b, OfDirection(b, c.In(5 + i), d, n.batch_first ? 1 : 0)) : zero);
  }
  if (op.states > 1 && c.Has(7)) direction.peepholes = Up(b, OfDirection(b, c.In(7), d));
  return direction;
}

absl::StatusOr<Network> NetworkOf(HandlerContext& c, const CellOp& op) {
  OpBuilder& b = c.b();
  Network n;
  n.elem = c.In(0).elem;
  n.batch_first = c.version() >= 14 && c.Int("layout") != 0;
  if (c.In(0).rank() != 3 || c.In(2).rank() != 3) {
    return Invalid("X has shape ", ShapeToString(c.In(0).shape), ", R has ",
                   ShapeToString(c.In(2).shape), "; both must have rank 3");
  }
  n.x = Up(b, c.In(0));
  if (n.batch_first) n.x = Permute(b, n.x, {1, 0, 2});
  if (!b.status().ok()) return b.status();
  n.batch = n.x.shape[1];
  const int hidden_axis = op.quantised ? 1 : 2;
  const std::optional<int64_t> hidden = c.In(2).shape[hidden_axis].constant();
  if (!hidden || *hidden < 1 || *hidden > kMaxHidden ||
      (c.Given("hidden_size") && c.Int("hidden_size") != *hidden)) {
    return Invalid("R has shape ", ShapeToString(c.In(2).shape), "; its axis ", hidden_axis,
                   " must be hidden_size, a constant of 1 to ", kMaxHidden);
  }
  n.hidden = *hidden;
  n.gates = op.gates;
  ASSIGN_OR_RETURN(std::string way, c.OneOf("direction", {"forward", "reverse", "bidirectional"}));
  const int directions = way == "bidirectional" ? 2 : 1;
  n.first_reversed = way == "reverse";
  RETURN_IF_ERROR(CheckOperands(c, n, op, directions));
  ASSIGN_OR_RETURN(n.activations,
                   ActivationsOf(c, directions * op.activations.size(), op.activations));
  if (c.Given("clip")) n.clip = c.Float("clip");
  if (n.clip && !(*n.clip >= 0)) {
    return Invalid("attribute clip is ", *n.clip, "; it must be 0 or more");
  }
  n.sequence = Sequence(n.x.shape[0]);
  if (c.Has(4)) n.sequence.SetLengths(b, c.In(4));
  if (op.quantised) n.x = n.sequence.Used(b, n.x);  // the other steps do not count for its range
  for (int d = 0; d < directions; ++d) n.directions.push_back(DirectionOf(c, n, op, d));
  return n;
}

// The inputs of a cell for one step.
struct Step {
  OpBuilder& b;
  const Network& network;
  const Direction& direction;
  absl::Span<const Activation> activations;
  Value x;  // [batch, gates*H]: the input's part of the gates
  const std::vector<Value>& state;

  int64_t hidden() const { return network.hidden; }
  Value Gate(const Value& gates, int gate) const {
    return Slice(b, gates, 1, gate * hidden(), hidden());
  }
  // Returns the state's part of gates [first, first + count).
  Value OfState(const Value& h, int first, int count) const {
    return direction.r.Rows(b, first * hidden(), count * hidden()).Product(b, "nh,gh->ng", h);
  }
  Value Activated(int which, Value v) const {
    if (network.clip) {
      Tensor t = Tensor::Zeros(v.dtype(), {});
      StoreScalar(t, 0, Scalar::Float(t.dtype, *network.clip));
      const Value limit = b.Literal(v.elem, std::move(t));
      v = Clamp(b, v, Neg(b, limit), limit);
    }
    return activations[which](b, v);
  }
  Value Complement(const Value& v) const { return Sub(b, b.Scalar(v.elem, 1), v); }
};

using Cell = absl::FunctionRef<std::vector<Value>(const Step& step)>;
// Returns the biases that are added to the input's part, [gates*H].
using OperandBias = absl::FunctionRef<Value(const Direction& direction)>;

struct Ran {
  Value y;  // [length, batch, H]
  std::vector<Value> last;
};

Ran RunDirection(OpBuilder& b, const Network& n, size_t d, OperandBias bias, Cell cell) {
  const Direction& direction = n.directions[d];
  const bool reversed = n.first_reversed || d == 1;
  const size_t per_direction = n.activations.size() / n.directions.size();
  Value x = direction.w.Product(b, "lni,gi->lng", n.x);
  if (direction.w_bias) x = Add(b, x, bias(direction));
  // Rows with their own lengths are reversed one by one; otherwise the loop runs backwards.
  const bool turned = reversed && n.sequence.by_row();
  if (turned) x = n.sequence.Reversed(b, x);
  const auto step = [&](const Value& t, const std::vector<Value>& slices,
                        const std::vector<Value>& state) {
    std::vector<Value> held = state;
    if (direction.r.scale) {
      // Rows that have ended are zeroed, so that they do not count for the range.
      const Value before = Sub(b, t, b.Integer(Elem::kInt64, 1));
      held[0] = n.sequence.Within(b, before, state[0],
                                  Splat(b, b.Scalar(state[0].elem, 0), state[0].shape));
    }
    const Step at = {
        b,         n,
        direction, absl::MakeConstSpan(n.activations).subspan(d * per_direction, per_direction),
        slices[0], held};
    std::vector<Value> next = cell(at);
    const Value zero = Splat(b, b.Scalar(next[0].elem, 0), next[0].shape);
    const Value element = n.sequence.Within(b, t, next[0], zero);
    for (size_t i = 0; i < next.size(); ++i) {
      next[i] = n.sequence.Within(b, t, next[i], state[i]);
    }
    next.push_back(element);
    return next;
  };
  Sequence::Ran ran = n.sequence.Run(b, {x}, direction.state, reversed && !turned, step);
  Value y = std::move(ran.stacked[0]);
  if (turned) y = n.sequence.Reversed(b, y);
  return {y, std::move(ran.last)};
}

absl::Status RunNetwork(HandlerContext& c, const Network& n, OperandBias bias, Cell cell) {
  OpBuilder& b = c.b();
  std::vector<Value> ys;
  std::vector<std::vector<Value>> last;  // by state, then direction
  for (size_t d = 0; d < n.directions.size(); ++d) {
    Ran ran = RunDirection(b, n, d, bias, cell);
    ys.push_back(Unsqueeze(b, ran.y, {n.batch_first ? 2 : 1}));
    last.resize(ran.last.size());
    for (size_t i = 0; i < ran.last.size(); ++i) {
      last[i].push_back(Unsqueeze(b, ran.last[i], {n.batch_first ? 1 : 0}));
    }
  }
  if (n.batch_first) {
    for (Value& y : ys) y = Permute(b, y, {1, 0, 2, 3});
  }
  if (c.Wants(0)) c.Set(0, Cast(b, Concat(b, ys, n.batch_first ? 2 : 1), n.elem));
  for (size_t i = 0; i < last.size(); ++i) {
    const int o = static_cast<int>(i) + 1;
    if (c.Wants(o)) c.Set(o, Cast(b, Concat(b, last[i], n.batch_first ? 1 : 0), n.elem));
  }
  return absl::OkStatus();
}

Value BothBiases(OpBuilder& b, const Direction& d) { return Add(b, *d.w_bias, *d.r_bias); }

}  // namespace

absl::Status Rnn(HandlerContext& c) {
  ASSIGN_OR_RETURN(Network n, NetworkOf(c, {1, {"Tanh"}, 1}));
  return RunNetwork(
      c, n, [&](const Direction& d) { return BothBiases(c.b(), d); },
      [](const Step& s) -> std::vector<Value> {
        return {s.Activated(0, Add(s.b, s.x, s.OfState(s.state[0], 0, 1)))};
      });
}

// The gates are z, r, h.
absl::Status Gru(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(Network n, NetworkOf(c, {3, {"Sigmoid", "Tanh"}, 1}));
  const bool linear = c.Int("linear_before_reset") != 0;
  const auto bias = [&](const Direction& d) {
    if (!linear) return BothBiases(b, d);
    // The state's bias of gate h is multiplied by r.
    const Expr zr = 2 * n.hidden;
    const Value sum = Add(b, Slice(b, *d.w_bias, 0, 0, zr), Slice(b, *d.r_bias, 0, 0, zr));
    return Concat(b, {sum, Slice(b, *d.w_bias, 0, zr, n.hidden)}, 0);
  };
  return RunNetwork(c, n, bias, [&](const Step& s) -> std::vector<Value> {
    const Value& h = s.state[0];
    const Value zr = Add(b, Slice(b, s.x, 1, 0, 2 * s.hidden()), s.OfState(h, 0, 2));
    const Value z = s.Activated(0, s.Gate(zr, 0)), r = s.Activated(0, s.Gate(zr, 1));
    Value of_state;
    if (linear) {
      of_state = s.OfState(h, 2, 1);
      if (s.direction.r_bias) {
        of_state = Add(b, of_state, Slice(b, *s.direction.r_bias, 0, 2 * s.hidden(), s.hidden()));
      }
      of_state = Mul(b, r, of_state);
    } else {
      of_state = s.OfState(Mul(b, r, h), 2, 1);
    }
    const Value fresh = s.Activated(1, Add(b, s.Gate(s.x, 2), of_state));
    return {Add(b, Mul(b, s.Complement(z), fresh), Mul(b, z, h))};
  });
}

namespace {

// The gates are i, o, f, c; the peepholes i, o, f.
absl::Status RunLstm(HandlerContext& c, bool quantised) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(Network n, NetworkOf(c, {4, {"Sigmoid", "Tanh", "Tanh"}, 2, quantised}));
  const bool coupled = c.Int("input_forget") != 0;
  return RunNetwork(
      c, n, [&](const Direction& d) { return BothBiases(b, d); },
      [&](const Step& s) -> std::vector<Value> {
        const Value gates = Add(b, s.x, s.OfState(s.state[0], 0, 4));
        const Value& cell = s.state[1];
        const auto peeped = [&](int gate, int peephole, const Value& at) {
          const Value own = s.Gate(gates, gate);
          if (!s.direction.peepholes) return own;
          const Value p = Slice(b, *s.direction.peepholes, 0, peephole * s.hidden(), s.hidden());
          return Add(b, own, Mul(b, p, at));
        };
        const Value i = s.Activated(0, peeped(0, 0, cell));
        const Value f = coupled ? s.Complement(i) : s.Activated(0, peeped(2, 2, cell));
        const Value fresh = s.Activated(1, s.Gate(gates, 3));
        const Value next = Add(b, Mul(b, f, cell), Mul(b, i, fresh));
        const Value o = s.Activated(0, peeped(1, 1, next));
        // The cell state is no gate: only sums that enter a gate are clipped, as in ONNX Runtime.
        return {Mul(b, o, s.activations[2](b, next)), next};
      });
}

}  // namespace

absl::Status Lstm(HandlerContext& c) { return RunLstm(c, /*quantised=*/false); }
absl::Status DynamicQuantizeLstm(HandlerContext& c) { return RunLstm(c, /*quantised=*/true); }

namespace {

constexpr HandlerRow kRows[] = {
    {"", "RNN", 1, Rnn},
    {"", "GRU", 3, Gru},
    {"", "LSTM", 1, Lstm},
    {"", "LinearAttention", 27, LinearAttention},
    {"com.microsoft", "DynamicQuantizeLSTM", 1, DynamicQuantizeLstm},
};

}  // namespace

absl::Span<const HandlerRow> RecurrentRows() { return kRows; }

}  // namespace athanor::onnx
