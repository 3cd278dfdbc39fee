// Scan: converted to our Scan op or unrolled. If the length depends on dims, unrolled steps beyond
// it are computed but not kept.
#include <algorithm>
#include <string>
#include <utility>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_scan.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/networks/handlers_control.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::GraphProto;

struct ScanInput {
  Value value;
  int axis = 0;
  bool reversed = false;
};
struct ScanOutput {
  int64_t axis = 0;  // axis of the result; may count from the end
  bool reversed = false;
};

// Returns the elements of x at `position` on an axis, which is removed.
Value At(OpBuilder& b, const Value& x, int axis, const Expr& position) {
  Shape shape;
  std::vector<Expr> coordinates;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) {
      coordinates.push_back(position);
      continue;
    }
    coordinates.push_back(Expr::Axis(static_cast<int>(shape.size())));
    shape.push_back(x.shape[i]);
  }
  return Map(b, x, std::move(shape), std::move(coordinates));
}

absl::StatusOr<Expr> LengthOf(const OpBuilder& b, absl::Span<const ScanInput> inputs) {
  if (inputs.empty()) return Invalid("it has no scan inputs, which give the number of steps");
  for (const ScanInput& input : inputs) {
    const Expr& first = inputs[0].value.shape[inputs[0].axis];
    const Expr& size = input.value.shape[input.axis];
    if (b.bounds().ProvablyEqual(first, size)) continue;
    return Invalid("its scan inputs have ", first.ToString(), " and ", size.ToString(),
                   " elements along their axes; the numbers must be equal");
  }
  return b.bounds().Simplify(inputs[0].value.shape[inputs[0].axis]);
}

absl::Status CheckUnrolled(HandlerContext& c, const Expr& length) {
  const OpBuilder& b = c.b();
  // Each step makes at least one node.
  if (length.constant() && *length.constant() > c.unroll_left()) {
    return Unimplemented("it has ", *length.constant(),
                         " steps; unrolled, the loops of a model have at most ",
                         std::max<int64_t>(c.unroll_left(), 0), " nodes left");
  }
  const std::optional<int64_t> most = b.bounds().Maximum(length);
  if (length.constant() || (most && *most <= kMaxMaskedSteps)) return absl::OkStatus();
  return Unimplemented(
      "its scan inputs have ", length.ToString(), " elements, ",
      most ? Cat("up to ", *most) : std::string("without bound"),
      "; a Scan that must be unrolled with a length that depends on dims has at most ",
      kMaxMaskedSteps, " steps");
}

// Returns x with `axis` moved to `to`.
Value MoveAxis(OpBuilder& b, const Value& x, int axis, int to) {
  std::vector<int> axes;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) axes.push_back(i);
  }
  axes.insert(axes.begin() + to, axis);
  return axis == to ? x : Permute(b, x, axes);
}

// Same as Scanned; nullopt if the body must be unrolled.
absl::StatusOr<std::optional<std::vector<Value>>> AsScan(HandlerContext& c,
                                                         const std::vector<Value>& states,
                                                         absl::Span<const ScanInput> inputs,
                                                         absl::Span<const ScanOutput> outputs,
                                                         const Expr& length) {
  OpBuilder& b = c.b();
  const std::optional<int64_t> known = length.constant();
  const int64_t most = b.bounds().Maximum(length).value_or(kMaxLoopSteps + 1);
  if ((known && *known <= kMaxUnrolledSteps) || most > kMaxLoopSteps) return std::nullopt;
  ScanBuilder scan(&b, length);
  std::vector<Value> inside;
  for (const Value& state : states) inside.push_back(scan.State(state));
  std::vector<Value> operands = inside;
  for (const ScanInput& input : inputs) {
    const Value front = MoveAxis(b, input.value, input.axis, 0);
    operands.push_back(scan.Slice(input.reversed ? Reverse(b, front, 0) : front));
  }
  if (!b.status().ok()) return b.TakeStatus();
  absl::StatusOr<std::optional<std::vector<Value>>> results =
      c.TryInline(c.GraphAttr("body"), operands, "body");
  if (!results.ok() || !*results) return results;
  std::vector<Value>& made = **results;
  for (size_t i = 0; i < states.size(); ++i) {
    if (!Alike(b.bounds(), made[i], inside[i])) return std::nullopt;
  }
  const auto middle = made.begin() + static_cast<int64_t>(states.size());
  scan.Finish({made.begin(), middle}, {middle, made.end()});
  std::vector<Value> all;
  for (size_t i = 0; i < states.size(); ++i) all.push_back(scan.Last(i));
  for (size_t k = 0; k < outputs.size(); ++k) {
    ASSIGN_OR_RETURN(int axis, c.Axis(outputs[k].axis, made[states.size() + k].rank() + 1));
    Value stacked = scan.Stacked(k);
    if (outputs[k].reversed) stacked = Reverse(b, stacked, 0);
    all.push_back(MoveAxis(b, stacked, 0, axis));
  }
  if (!b.status().ok()) return b.TakeStatus();
  return all;
}

// Returns the last states, then the stacked outputs.
absl::StatusOr<std::vector<Value>> Scanned(HandlerContext& c, std::vector<Value> states,
                                           absl::Span<const ScanInput> inputs,
                                           absl::Span<const ScanOutput> outputs) {
  OpBuilder& b = c.b();
  const GraphProto& body = c.GraphAttr("body");
  ASSIGN_OR_RETURN(Expr length, LengthOf(b, inputs));
  ASSIGN_OR_RETURN(std::optional<std::vector<Value>> loop,
                   AsScan(c, states, inputs, outputs, length));
  if (loop) return *std::move(loop);
  RETURN_IF_ERROR(CheckUnrolled(c, length));
  const int64_t least = b.bounds().Minimum(length).value_or(0);
  const int64_t most = *b.bounds().Maximum(length);
  const size_t count = states.size();
  std::vector<std::vector<Value>> elements(outputs.size());
  std::vector<Value> models;
  // Visits at least one step, for the outputs' types and shapes.
  for (int64_t step = 0; step < std::max<int64_t>(most, 1); ++step) {
    std::optional<Value> mask;
    if (step >= least) {
      mask = Less(b, b.Integer(Elem::kInt64, step), Size(b, Elem::kInt64, length, {}));
    }
    std::vector<Value> operands = states;
    for (const ScanInput& input : inputs) {
      operands.push_back(
          At(b, input.value, input.axis, input.reversed ? length - 1 - step : Expr(step)));
    }
    if (!b.status().ok()) return b.TakeStatus();
    absl::StatusOr<std::vector<Value>> results;
    if (mask) {
      const OpBuilder::Guard guard(&b, *mask, true);
      results = c.Inline(body, operands, StepLabel(step));
    } else {
      results = c.Inline(body, operands, StepLabel(step));
    }
    if (!results.ok()) return results;
    if (step == 0) models.assign(results->begin() + static_cast<int64_t>(count), results->end());
    if (step >= most) break;
    for (size_t i = 0; i < count; ++i) {
      if (!mask) {
        states[i] = (*results)[i];
        continue;
      }
      ASSIGN_OR_RETURN(states[i], Either(b, *mask, (*results)[i], states[i], Cat("state ", i)));
    }
    for (size_t k = 0; k < outputs.size(); ++k) elements[k].push_back((*results)[count + k]);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    ASSIGN_OR_RETURN(int axis, c.Axis(outputs[k].axis, models[k].rank() + 1));
    ASSIGN_OR_RETURN(Value stacked, Stack(b, elements[k], models[k], length, axis,
                                          outputs[k].reversed, Cat("scan output ", k)));
    states.push_back(std::move(stacked));
  }
  return states;
}

// Returns an attribute with one number for each of `count`; all 0 if it is absent.
absl::StatusOr<std::vector<int64_t>> PerItem(const HandlerContext& c, std::string_view name,
                                             int count, bool flags) {
  if (!c.Given(name)) return std::vector<int64_t>(count, 0);
  std::vector<int64_t> values = c.Ints(name);
  if (static_cast<int>(values.size()) != count) {
    return Invalid("attribute ", Quoted(name), " has ", values.size(), " elements; it must have ",
                   count);
  }
  for (const int64_t value : values) {
    if (flags && value != 0 && value != 1) {
      return Invalid("attribute ", Quoted(name), " has the element ", value, "; 0 or 1 are meant");
    }
  }
  return values;
}

// Returns the number of states, computed from the operands of the node (from `first` on) and of its
// body.
absl::StatusOr<int> StatesOf(const HandlerContext& c, int first) {
  const GraphProto& body = c.GraphAttr("body");
  const int64_t scans = c.Int("num_scan_inputs");
  const int operands = c.inputs() - first;
  if (scans < 1 || scans > operands || body.input_size() != operands) {
    return Invalid(
        "it has ", operands, " operands, its body ", body.input_size(),
        " inputs, and num_scan_inputs is ", scans,
        "; the body must take each operand, and num_scan_inputs must be from 1 to their number");
  }
  const int states = operands - static_cast<int>(scans);
  if (body.output_size() < states || c.outputs() > body.output_size()) {
    return Invalid("its body has ", body.output_size(), " outputs; there are ", states,
                   " states and ", c.outputs(), " results");
  }
  for (int i = first; i < c.inputs(); ++i) {
    if (!c.Has(i)) return Invalid("operand ", i, " is omitted");
  }
  return states;
}

void SetAll(HandlerContext& c, const std::vector<Value>& results) {
  for (int o = 0; o < c.outputs(); ++o) {
    if (c.Wants(o)) c.Set(o, results[o]);
  }
}

}  // namespace

absl::Status Scan9(HandlerContext& c) {
  ASSIGN_OR_RETURN(int count, StatesOf(c, 0));
  const int scans = c.inputs() - count;
  const int stacked = c.GraphAttr("body").output_size() - count;
  const auto axes = PerItem(c, "scan_input_axes", scans, false);
  const auto directions = PerItem(c, "scan_input_directions", scans, true);
  const auto out_axes = PerItem(c, "scan_output_axes", stacked, false);
  const auto out_directions = PerItem(c, "scan_output_directions", stacked, true);
  for (const auto* values : {&axes, &directions, &out_axes, &out_directions}) {
    if (!values->ok()) return values->status();
  }
  std::vector<Value> states;
  for (int i = 0; i < count; ++i) states.push_back(c.In(i));
  std::vector<ScanInput> inputs;
  for (int i = 0; i < scans; ++i) {
    const Value& value = c.In(count + i);
    ASSIGN_OR_RETURN(int axis, c.Axis((*axes)[i], value.rank()));
    inputs.push_back({value, axis, (*directions)[i] == 1});
  }
  std::vector<ScanOutput> outputs;
  for (int k = 0; k < stacked; ++k) outputs.push_back({(*out_axes)[k], (*out_directions)[k] == 1});
  ASSIGN_OR_RETURN(std::vector<Value> results, Scanned(c, std::move(states), inputs, outputs));
  SetAll(c, results);
  return absl::OkStatus();
}

// Axis 0 of all operands and results is a batch, which the body does not have: its rows are scanned
// one by one.
absl::Status Scan8(HandlerContext& c) {
  ASSIGN_OR_RETURN(int count, StatesOf(c, 1));
  const int scans = c.inputs() - 1 - count;
  const int stacked = c.GraphAttr("body").output_size() - count;
  ASSIGN_OR_RETURN(const auto directions, PerItem(c, "directions", scans, true));
  for (int i = 1; i < c.inputs(); ++i) {
    const int least = i > count ? 2 : 1;
    if (c.In(i).rank() >= least) continue;
    return Invalid("operand ", i, " has rank ", c.In(i).rank(), "; it has a batch",
                   least == 2 ? " and a sequence" : "", " axis, so at least ", least);
  }
  const Expr& batch = c.In(1).shape[0];
  if (!batch.constant()) {
    return Unimplemented("its batch is ", batch.ToString(),
                         "; the rows of Scan-8 are scanned one by one, so it must be a number");
  }
  if (c.Has(0)) {
    ASSIGN_OR_RETURN(std::vector<Expr> lengths, c.Sizes(0, "sequence_lens"));
    for (const Expr& length : lengths) {
      const Expr& whole = c.In(1 + count).shape[1];
      if (c.b().bounds().ProvablyEqual(length, whole)) continue;
      return Unimplemented("its sequence_lens have ", length.ToString(),
                           "; only whole sequences, of ", whole.ToString(), ", are scanned");
    }
  }
  std::vector<std::vector<Value>> rows(count + stacked);
  for (int64_t row = 0; row < *batch.constant(); ++row) {
    std::vector<Value> states;
    for (int i = 0; i < count; ++i) states.push_back(At(c.b(), c.In(1 + i), 0, row));
    std::vector<ScanInput> inputs;
    for (int i = 0; i < scans; ++i) {
      inputs.push_back({At(c.b(), c.In(1 + count + i), 0, row), 0, directions[i] == 1});
    }
    ASSIGN_OR_RETURN(std::vector<Value> results,
                     Scanned(c, std::move(states), inputs, std::vector<ScanOutput>(stacked)));
    for (size_t r = 0; r < rows.size(); ++r) rows[r].push_back(results[r]);
  }
  if (rows.empty() || rows[0].empty()) return Unimplemented("its batch is 0");
  std::vector<Value> results;
  for (const std::vector<Value>& row : rows) {
    ASSIGN_OR_RETURN(Value all, Stack(c.b(), row, row[0], batch, 0, false, "a result"));
    results.push_back(std::move(all));
  }
  SetAll(c, results);
  return absl::OkStatus();
}

}  // namespace athanor::onnx
