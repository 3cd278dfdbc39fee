// Inference of Scan, and the parts of a Scan.
#include <map>
#include <string>

#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/ops/infer.h"
#include "compiler/ir/value/message.h"

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
      if (shape.empty()) return Invalid(what, " is scanned but has no axes");
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

}  // namespace athanor
