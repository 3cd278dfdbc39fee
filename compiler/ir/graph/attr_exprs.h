// Visits the expressions in a node's attributes: those of shapes, of index maps, and of all nodes
// of a nested graph.
//
//   std::set<std::string> symbols;
//   ForEachExpr(node.attrs, [&](const Expr& e) { e.CollectSymbols(&symbols); });
#ifndef ATHANOR_COMPILER_IR_GRAPH_ATTR_EXPRS_H_
#define ATHANOR_COMPILER_IR_GRAPH_ATTR_EXPRS_H_

#include "absl/functional/function_ref.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

void ForEachExpr(const Attrs& attrs, absl::FunctionRef<void(const Expr&)> visit);
// Calls `edit` with each expression, which it may change at once or later, as long as the
// attributes are not changed otherwise. A nested graph is copied first, so the expressions belong
// to these attributes alone.
void EditExprs(Attrs* attrs, absl::FunctionRef<void(Expr&)> edit);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_ATTR_EXPRS_H_
