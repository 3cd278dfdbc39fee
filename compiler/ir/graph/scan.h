// The parts of a Scan, the op that runs a graph once for each step of a length.
//
//   Scan(states..., scanned..., captured...) {body, states, scanned, result, length, reverse}
//
//   body      its Inputs in order: the number of the step (an i64 scalar), each state, a slice of
//             each scanned operand (its axis 0 removed), each captured operand; its outputs in
//             order: the next states, then elements, each of which is stacked on a new axis 0
//   result    which of the body's outputs the node is: a state's last value, or a stack
//
//   ScanView scan = ViewScan(node.attrs, node.inputs.size());
//   scan.stacked()   // results beyond the states
//
// One node has one result, so a loop of several is several nodes, alike but for `result`: one loop
// when a plan is made. Only axis 0 is scanned and stacked: another one is an IndexMap before or
// after, as every movement is.
#ifndef ATHANOR_COMPILER_IR_GRAPH_SCAN_H_
#define ATHANOR_COMPILER_IR_GRAPH_SCAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

struct ScanView {
  const Graph& body;
  int states, scanned, captured;
  int result;
  const Expr& length;
  bool reverse;

  int stacked() const { return static_cast<int>(body.outputs.size()) - states; }
  // The body's Input of an operand; 0 is the step's number.
  int InputOf(int operand) const { return operand + 1; }
};

// REQUIRES: attributes that inference has accepted for so many operands.
ScanView ViewScan(const Attrs& attrs, size_t operands);
inline ScanView ViewScan(const Node& node) { return ViewScan(node.attrs, node.inputs.size()); }

// The body as a graph of its own, which has the dims around it.
Graph BodyOf(const ScanView& scan, const std::vector<Dim>& dims);

// The same with all sizes as numbers, at these dims.
Graph BodyAt(const ScanView& scan, const Expr::Env& dims);

// What says which loop a Scan is a result of, among the nodes of its graph: equal for nodes alike
// but for `result`.
std::string LoopKey(const Node& node);

// One step of the reference evaluator after another. `operands` as the node's, at the sizes of
// `dims`. Of each of the body's outputs: the last state, or the elements of all steps in a row
// (their shape has the length in front).
absl::StatusOr<std::vector<Tensor>> RunScan(const ScanView& scan,
                                            absl::Span<const Tensor* const> operands,
                                            const Expr::Env& dims);

// Slice `at` of a tensor's axis 0.
Tensor SliceOf(const Tensor& tensor, int64_t at);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_SCAN_H_
