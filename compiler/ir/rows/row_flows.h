// Maps the axes of an op's operands to axes of its result: one function per kind of op. Private to
// row_independence.cc.
#ifndef ATHANOR_COMPILER_IR_ROWS_ROW_FLOWS_H_
#define ATHANOR_COMPILER_IR_ROWS_ROW_FLOWS_H_

#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// Maps each operand's axis to the result's axis that it becomes, position by position:
// flow[operand][axis].
using Flow = std::vector<std::vector<int>>;
// The axis' elements are combined in the result, or it has no such axis.
inline constexpr int kMixed = -1;

Flow Alike(const Graph& graph, const Node& node);
Flow AcrossAxis(const Graph& graph, const Node& node);
Flow AcrossLast(const Graph& graph, const Node& node);
Flow Reduced(const Graph& graph, const Node& node);
Flow Gathered(const Graph& graph, const Node& node);
Flow Scattered(const Graph& graph, const Node& node);
Flow Convolved(const Graph& graph, const Node& node);
Flow Pooled(const Graph& graph, const Node& node);
Flow Contracted(const Graph& graph, const Node& node);
Flow Attended(const Graph& graph, const Node& node);
Flow Rotated(const Graph& graph, const Node& node);
Flow Dequantized(const Graph& graph, const Node& node);
Flow Bagged(const Graph& graph, const Node& node);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_ROWS_ROW_FLOWS_H_
