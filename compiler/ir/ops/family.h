// Shared by the files that hold ops, ops/<family>.cc: how a row is written, and traits that ops of
// several families have. Private to ops/.
//
//   ATHANOR_REFERENCE(Relu) { ... }                       // in the family's unnamed namespace
//   void AddActivations(Rows* rows) {
//     ATHANOR_ROW(Relu, kComposite, 1, 1, {}, InferElementwise<C::kNumeric>, 0, "Max(x, 0): ...",
//                 .rows = {AlikeFlow}, .sample = SampleElementwise);   // traits, op_traits.h
//   }
#ifndef ATHANOR_COMPILER_IR_OPS_FAMILY_H_
#define ATHANOR_COMPILER_IR_OPS_FAMILY_H_

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/op.h"
#include "compiler/ir/ops/infer.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {

using Rows = std::vector<OpRow>;
using C = DTypeClass;
using Inputs = absl::Span<const Tensor* const>;

// The families; op_table.cc calls each. A family that has many rows adds them in parts.
void AddLeaves(Rows* rows);
void AddFunctions(Rows* rows);
void AddTrigonometry(Rows* rows);
void AddArithmetic(Rows* rows);
void AddLogic(Rows* rows);
void AddConversions(Rows* rows);
void AddIndexing(Rows* rows);
void AddReductions(Rows* rows);
void AddWindows(Rows* rows);
void AddContract(Rows* rows);
void AddActivations(Rows* rows);
void AddNorms(Rows* rows);
void AddAttention(Rows* rows);
void AddPagedAttention(Rows* rows);
void AddBags(Rows* rows);
void AddOrder(Rows* rows);
void AddTransformers(Rows* rows);
void AddLoop(Rows* rows);

// More operands than any graph has nodes.
inline constexpr int kAnyOperands = 1 << 20;

// Operations per element: of a function that has a series, of a division or a root.
inline constexpr double kFunction = 20, kDivision = 8;

inline AttrSpec Required(std::string_view name, AttrType type, std::string_view doc) {
  return {name, type, true, doc, std::nullopt};
}
// An optional attribute; `otherwise` is the value that its absence means, if one value says it.
inline AttrSpec Optional(std::string_view name, AttrType type, std::string_view doc,
                         std::optional<AttrValue> otherwise = std::nullopt) {
  return {name, type, false, doc, std::move(otherwise)};
}

// A row; what follows the semantics are its traits, as designated initializers of OpTraits.
#define ATHANOR_ROW(name, op_class, min, max, attrs, infer, ulp, semantics, ...)       \
  rows->push_back(OpRow{Op::k##name, #name, OpClass::op_class, min, max, attrs, infer, \
                        Reference##name, ulp, semantics, OpTraits{__VA_ARGS__}})
// A leaf whose type is declared and whose contents come from outside.
#define ATHANOR_DECLARED(name, attrs, semantics, ...)                                            \
  rows->push_back(OpRow{Op::k##name, #name, OpClass::kLeaf, 0, 0, attrs, InferDeclared, nullptr, \
                        0, semantics, OpTraits{__VA_ARGS__}})
#define ATHANOR_ATTRS(...) (std::vector<AttrSpec>{__VA_ARGS__})
#define ATHANOR_UNARY(name, dtype_class, ulp, semantics, ...)                              \
  ATHANOR_ROW(name, kElementwise, 1, 1, {}, InferElementwise<dtype_class>, ulp, semantics, \
              __VA_ARGS__)
#define ATHANOR_BINARY(name, dtype_class, ulp, semantics, ...)                             \
  ATHANOR_ROW(name, kElementwise, 2, 2, {}, InferElementwise<dtype_class>, ulp, semantics, \
              __VA_ARGS__)

// An op's reference function: the slow, obvious implementation of its semantics text. REQUIRES:
// operands and attributes that its inference accepts; `result` with its dtype and shape set and its
// bytes zeroed. Floats are computed wider (f64 for f16, bf16 and f32; long double where it helps
// f64) and rounded once, so that a reference value is as near the true one as its dtype allows.
#define ATHANOR_REFERENCE(name)                                     \
  absl::Status Reference##name([[maybe_unused]] Inputs inputs,      \
                               [[maybe_unused]] const Attrs& attrs, \
                               [[maybe_unused]] const Expr::Env& dims, Tensor* result)

// Axis flows (op_traits.h): operands and result alike; the same but for attribute `axis`; what
// attribute `axes` leaves.
AxisFlow AlikeFlow(const Graph& graph, const Node& node);
AxisFlow AcrossAxisFlow(const Graph& graph, const Node& node);
AxisFlow ReduceFlow(const Graph& graph, const Node& node);

// Sampling (ops/cutter.h): of elementwise ops; of reductions; of ops whose elements follow from
// their row along attribute `axis`, or along the last axis, of operand 0, and from all of others.
absl::Status SampleElementwise(Cutter& cutter, NodeId node);
absl::Status SampleReduce(Cutter& cutter, NodeId node);
absl::Status SampleAlongAxis(Cutter& cutter, NodeId node);
absl::Status SampleAlongLast(Cutter& cutter, NodeId node);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_FAMILY_H_
