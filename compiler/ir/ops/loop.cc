// Scan: a body run step by step. Its views (graph/scan.h) stand here too.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status CheckCount(std::string_view name, int64_t count, int64_t most, std::string_view of) {
  if (count >= 0 && count <= most) return absl::OkStatus();
  return Invalid(name, "=", count, " must be in [0, ", most, "], ", of);
}

// Checks the body's Input for each operand: the same type; for a scanned operand, without axis 0.
absl::Status CheckInputs(TypeSpan inputs, const ScanView& scan, const Bounds& bounds) {
  const std::vector<NodeId> ids = scan.body.InputIds();
  if (ids.size() != inputs.size() + 1) {
    return Invalid("the body has ", ids.size(), " inputs; it needs ", inputs.size() + 1,
                   ": the step's number, and one for each operand");
  }
  const TensorType& step = scan.body.node(ids[0]).type;
  if (step.dtype != DType::kI64 || !step.shape.empty()) {
    return Invalid("the body's input 0, the step's number, is ", TypeToString(step),
                   "; it must be i64[]");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string what = Cat("operand ", i), inside = Cat("the body's input ", i + 1);
    Shape shape = inputs[i].shape;
    const bool scanned =
        static_cast<int>(i) >= scan.states && static_cast<int>(i) < scan.states + scan.scanned;
    if (scanned) {
      if (shape.empty()) return Invalid(what, " is scanned, but has no axes; it needs axis 0");
      if (!bounds.ProvablyEqual(shape[0], scan.length)) {
        return Invalid("axis 0 of ", what, ", which is scanned, has size ", shape[0].ToString(),
                       "; it must be the length, ", scan.length.ToString());
      }
      shape.erase(shape.begin());
    }
    const TensorType& type = scan.body.node(ids[i + 1]).type;
    absl::Status s = CheckSameDType(what, inputs[i].dtype, inside, type.dtype);
    if (s.ok())
      s = CheckSameShape(scanned ? "a slice of " + what : what, shape, inside, type.shape, bounds);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckStates(TypeSpan inputs, const ScanView& scan, const Bounds& bounds) {
  for (int i = 0; i < scan.states; ++i) {
    const std::string what = Cat("state ", i), next = Cat("the body's output ", i);
    const TensorType& type = scan.body.node(scan.body.outputs[i].node).type;
    absl::Status s = CheckSameDType(what, inputs[i].dtype, next, type.dtype);
    if (s.ok()) s = CheckSameShape(what, inputs[i].shape, next, type.shape, bounds);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorType> InferScan(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const auto operands = static_cast<int64_t>(inputs.size());
  const int64_t states = GetAttr<int64_t>(attrs, "states");
  const int64_t scanned = GetAttr<int64_t>(attrs, "scanned");
  absl::Status s = CheckCount("states", states, operands, "of its operands");
  if (s.ok()) s = CheckCount("scanned", scanned, operands - states, "of the operands that follow");
  if (!s.ok()) return s;
  const Shape& length = GetAttr<Shape>(attrs, "length");
  if (length.size() != 1)
    return Invalid("length holds ", length.size(), " sizes; it must hold one");
  if (!bounds.NonNegative(length[0])) {
    return Invalid("length ", length[0].ToString(), " is not provably 0 or more");
  }
  const ScanView scan = ViewScan(attrs, inputs.size());
  const auto outputs = static_cast<int64_t>(scan.body.outputs.size());
  if (outputs < states) {
    return Invalid("the body has ", outputs, " outputs; the first ", states,
                   " must be the next states");
  }
  const int64_t result = GetAttr<int64_t>(attrs, "result");
  if (result < 0 || result >= outputs) {
    return Invalid("result=", result, " must be in [0, ", outputs - 1,
                   "]: one of the body's outputs");
  }
  s = CheckInputs(inputs, scan, bounds);
  if (s.ok()) s = CheckStates(inputs, scan, bounds);
  if (!s.ok()) return s;
  if (result < states) return inputs[result];
  TensorType type = scan.body.node(scan.body.outputs[result].node).type;
  type.shape.insert(type.shape.begin(), length[0]);
  return type;
}

absl::Status ReferenceScan(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  const ScanView scan = ViewScan(attrs, inputs.size());
  ASSIGN_OR_RETURN(std::vector<Tensor> results, RunScan(scan, inputs, dims));
  result->bytes = std::move(results[scan.result].bytes);
  return absl::OkStatus();
}

// Returns the number of elements that one step computes.
absl::StatusOr<int64_t> ElementsOf(const Graph& body, const Expr::Env& dims) {
  int64_t elements = 0;
  for (const Node& node : body.nodes) {
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, ConcreteShape(node.type.shape, dims));
    if (__builtin_add_overflow(elements, Product(shape), &elements)) return INT64_MAX;
  }
  return elements;
}

absl::Status SampleScan(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const ScanView scan = ViewScan(node);
  // An element of the result may depend on all steps before it, so the whole loop is computed.
  const int64_t length = scan.length.Evaluate(cutter.dims()).value_or(INT64_MAX);
  ASSIGN_OR_RETURN(const int64_t elements, ElementsOf(scan.body, cutter.dims()));
  RETURN_IF_ERROR(cutter.Spend(n, length, elements));
  std::vector<Cutter::Handle> operands;
  for (NodeId i : node.inputs) {
    const absl::Span<const int64_t> shape = cutter.ShapeOf(i);
    RETURN_IF_ERROR(cutter.Spend(n, Product(shape)));
    operands.push_back(cutter.Pull(i, {shape.begin(), shape.end()}, UpTo(Product(shape))));
  }
  cutter.RecipeOf(n) = [&cutter, n, operands = std::move(operands)]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> in;
    for (Cutter::Handle operand : operands) {
      absl::StatusOr<NodeId> node = cutter.Get(operand);
      if (!node.ok()) return node;
      in.push_back(*node);
    }
    std::map<std::string, Expr, std::less<>> sizes;
    for (const auto& [name, value] : cutter.dims()) sizes[name] = value;
    Attrs attrs = cutter.graph().node(n).attrs;
    EditExprs(&attrs, [&](Expr& e) {
      if (!e.constant()) e = e.Substitute(sizes);
    });
    absl::StatusOr<NodeId> whole = cutter.builder().Add(Op::kScan, std::move(in), std::move(attrs));
    const absl::Span<const int64_t> shape = cutter.ShapeOf(n);
    return cutter.Add(Op::kGather,
                      {cutter.Flatten(std::move(whole), {shape.begin(), shape.end()}),
                       cutter.IndexLiteral({Count(cutter.Wanted(n))}, cutter.Wanted(n))},
                      {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

}  // namespace

ScanView ViewScan(const Attrs& attrs, size_t operands) {
  const int states = static_cast<int>(GetAttr<int64_t>(attrs, "states"));
  const int scanned = static_cast<int>(GetAttr<int64_t>(attrs, "scanned"));
  return {*GetAttr<SubGraph>(attrs, "body"),
          states,
          scanned,
          static_cast<int>(operands) - states - scanned,
          static_cast<int>(GetAttr<int64_t>(attrs, "result")),
          GetAttr<Shape>(attrs, "length")[0],
          GetAttrOr<bool>(attrs, "reverse", false)};
}

Graph BodyOf(const ScanView& scan, const std::vector<Dim>& dims) {
  Graph body = scan.body;
  body.dims = dims;
  return body;
}

Graph BodyAt(const ScanView& scan, const Expr::Env& dims) {
  std::map<std::string, Expr, std::less<>> sizes;
  for (const auto& [name, size] : dims) sizes[name] = size;
  const auto settle = [&](Expr& e) {
    if (!e.constant()) e = e.Substitute(sizes);
  };
  Graph body = scan.body;
  for (Node& node : body.nodes) {
    for (Expr& e : node.type.shape) settle(e);
    EditExprs(&node.attrs, settle);
  }
  return body;
}

std::string LoopKey(const Node& node) {
  Node alike{node.op, node.inputs, node.attrs, {}, ""};
  alike.attrs["result"] = int64_t{0};
  std::string key;
  EncodeNode(alike, &key);
  return key;
}

Tensor SliceOf(const Tensor& tensor, int64_t at) {
  Tensor slice{tensor.dtype, {tensor.shape.begin() + 1, tensor.shape.end()}, {}};
  const size_t bytes = static_cast<size_t>(slice.elements()) * DTypeBytes(slice.dtype);
  slice.bytes = tensor.bytes.substr(static_cast<size_t>(at) * bytes, bytes);
  return slice;
}

absl::StatusOr<std::vector<Tensor>> RunScan(const ScanView& scan,
                                            absl::Span<const Tensor* const> operands,
                                            const Expr::Env& dims) {
  const std::optional<int64_t> length = scan.length.Evaluate(dims);
  if (!length || *length < 0) {
    return absl::InvalidArgumentError(absl::StrCat("its length ", scan.length.ToString(), " is ",
                                                   length ? absl::StrCat(*length) : "not a number",
                                                   " for these inputs; it must not be negative"));
  }
  // The first results are the states, which every step replaces; each other one collects a slice a
  // step.
  std::vector<Tensor> results;
  for (size_t o = 0; o < scan.body.outputs.size(); ++o) {
    if (static_cast<int>(o) < scan.states) {
      results.push_back(*operands[o]);
      continue;
    }
    const TensorType& type = scan.body.node(scan.body.outputs[o].node).type;
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, ConcreteShape(type.shape, dims));
    shape.insert(shape.begin(), *length);
    results.push_back(Tensor::Zeros(type.dtype, std::move(shape)));
  }
  for (int64_t step = 0; step < *length; ++step) {
    const int64_t at = scan.reverse ? *length - 1 - step : step;
    std::vector<Tensor> inputs = {Tensor::Of<int64_t>(DType::kI64, {}, {step})};
    for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
      if (i < scan.states) {
        inputs.push_back(results[i]);
      } else {
        inputs.push_back(i < scan.states + scan.scanned ? SliceOf(*operands[i], at) : *operands[i]);
      }
    }
    absl::StatusOr<std::vector<Tensor>> outputs = Evaluate(scan.body, inputs, &dims);
    if (!outputs.ok()) {
      return absl::Status(outputs.status().code(),
                          absl::StrCat("step ", step, ": ", outputs.status().message()));
    }
    for (size_t o = 0; o < results.size(); ++o) {
      if (static_cast<int>(o) < scan.states) {
        results[o] = std::move((*outputs)[o]);
      } else {
        const std::string& bytes = (*outputs)[o].bytes;
        std::copy(bytes.begin(), bytes.end(), results[o].bytes.begin() + at * bytes.size());
      }
    }
  }
  return results;
}

void AddLoop(Rows* rows) {
  ATHANOR_ROW(
      Scan, kControl, 0, kAnyOperands,
      ATHANOR_ATTRS(
          Required("body", AttrType::kGraph, "what a step computes, over the dims around"),
          Required("states", AttrType::kInt, "operands that are the first states"),
          Required("scanned", AttrType::kInt, "operands after them that are sliced"),
          Required("result", AttrType::kInt, "which of the body's outputs this is"),
          Required("length", AttrType::kShape, "one size: the number of steps"),
          Optional("reverse", AttrType::kBool, "slices and elements from the last on",
                   AttrValue(false))),
      InferScan, 0,
      "Operands states, scanned, captured. The body runs `length` times, one step after another: "
      "its inputs are the step's number from 0 (i64[]), the states, slice number step along axis 0 "
      "of each scanned operand, and the captured operands; its outputs are the next states, of the "
      "states' types, then elements. The result is a state after the last step, without steps the "
      "operand bit for bit; or the elements, element number step along a new axis 0, of size "
      "`length`. With `reverse` slices and elements number length - 1 - step. Each step means what "
      "its ops do.",
      .form = OpForm::kLoop, .errors = ErrorRule::kLoop, .sample = SampleScan);
}

}  // namespace athanor
