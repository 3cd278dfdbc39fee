// Checks of one node that GraphBuilder and Verify share: operands, attributes, types, limits.
//
//   NodeChecker checker(graph.dims, graph.DimBounds(), limits);
//   absl::StatusOr<TensorType> type = checker.Infer(op, {a, b}, /*attrs=*/{});
//
// Messages come without the node's name; the caller prefixes it. Safe on values from anywhere.
#ifndef ATHANOR_COMPILER_IR_GRAPH_CHECK_H_
#define ATHANOR_COMPILER_IR_GRAPH_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

class NodeChecker {
 public:
  // Borrows the dims and the bounds, which must outlive the checker.
  NodeChecker(const std::vector<Dim>& dims, const Bounds& bounds, const GraphLimits& limits)
      : dims_(dims), bounds_(bounds), limits_(limits) {}

  // Checks the number of operands and the attributes, infers the result's type, and checks that
  // against the limits.
  absl::StatusOr<TensorType> Infer(Op op, absl::Span<const TensorType> inputs,
                                   const Attrs& attrs) const;
  // Checks an Input, Parameter or StateRead of the stated type.
  absl::Status CheckDeclared(Op op, const TensorType& type, const Attrs& attrs) const;

 private:
  absl::Status CheckType(const TensorType& type) const;
  absl::Status CheckSize(int axis, const Expr& size, int64_t* bytes) const;
  // Checks that symbols are dims or $0 to $(axes-1), that nothing overflowed, and that the size is
  // within the limit.
  absl::Status CheckExpr(const Expr& expr, int axes) const;
  absl::Status CheckAttrs(const OpRow& row, const Attrs& attrs) const;
  absl::Status CheckAttr(const AttrSpec& spec, const AttrValue& value) const;
  absl::Status CheckShapeAttr(const Shape& shape) const;
  absl::Status CheckMapAttr(const IndexMap& map) const;
  absl::Status CheckTensorAttr(const Tensor& value) const;
  absl::Status CheckGraphAttr(const SubGraph& body) const;
  bool IsDim(std::string_view symbol) const;

  const std::vector<Dim>& dims_;
  const Bounds& bounds_;
  const GraphLimits& limits_;
};

// Checks the name of a node, an output or the graph: valid UTF-8 within the limit.
absl::Status CheckName(std::string_view what, std::string_view name, const GraphLimits& limits);

inline bool IsKnown(DType dtype) { return static_cast<size_t>(dtype) < std::size(kDTypes); }

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_CHECK_H_
