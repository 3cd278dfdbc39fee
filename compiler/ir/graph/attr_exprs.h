// The expressions in a node's attributes: of shapes, of index maps, and of all nodes of a graph
// inside it.
//
//   std::set<std::string> symbols;
//   ForEachExpr(node.attrs, [&](const Expr& e) { e.CollectSymbols(&symbols); });
#ifndef ATHANOR_COMPILER_IR_GRAPH_ATTR_EXPRS_H_
#define ATHANOR_COMPILER_IR_GRAPH_ATTR_EXPRS_H_

#include "absl/functional/function_ref.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

void ForEachExpr(const Attrs& attrs, absl::FunctionRef<void(const Expr&)> visit);
// Each may be changed, then or as long as the attributes stay as they are: a graph inside is copied
// first, so what `edit` is given belongs to these attributes alone.
void EditExprs(Attrs* attrs, absl::FunctionRef<void(Expr&)> edit);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_ATTR_EXPRS_H_
