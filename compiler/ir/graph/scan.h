// The parts of a Scan, the op that runs a graph `length` times, carrying states from step to step.
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
// A node has one result, so a loop with several results is several nodes that differ only in
// `result`; a plan merges them into one loop. Only axis 0 is scanned and stacked: other axes take
// an IndexMap before or after, as every movement does.
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
  // Index of the body's Input for an operand; Input 0 is the step's number.
  int InputOf(int operand) const { return operand + 1; }
};

// REQUIRES: attributes that inference has accepted for this number of operands.
ScanView ViewScan(const Attrs& attrs, size_t operands);
inline ScanView ViewScan(const Node& node) { return ViewScan(node.attrs, node.inputs.size()); }

// Returns the body as a graph of its own, with the given dims.
Graph BodyOf(const ScanView& scan, const std::vector<Dim>& dims);

// Returns the body with all sizes replaced by numbers.
Graph BodyAt(const ScanView& scan, const Expr::Env& dims);

// Returns a key that is equal for the Scans of one graph that belong to one loop, that is, for
// nodes that differ only in `result`.
std::string LoopKey(const Node& node);

// Evaluates the Scan step by step. `operands` are the node's, at the sizes of `dims`. Returns one
// tensor per output of the body: the last value of a state, or the elements of all steps stacked
// (their shape begins with the length).
absl::StatusOr<std::vector<Tensor>> RunScan(const ScanView& scan,
                                            absl::Span<const Tensor* const> operands,
                                            const Expr::Env& dims);

// Returns slice `at` of a tensor's axis 0.
Tensor SliceOf(const Tensor& tensor, int64_t at);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_SCAN_H_
