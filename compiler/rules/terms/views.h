// Merges chains of views into one view.
//
//   Graph g = ComposeViews(graph);   // reshape after permute after reshape: one IndexMap
//
// Exact, and always worthwhile: a view costs nothing by itself, and recognition sees through one
// view but not through chains. Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_RULES_TERMS_VIEWS_H_
#define ATHANOR_COMPILER_RULES_TERMS_VIEWS_H_

#include "compiler/ir/graph/graph.h"

namespace athanor {

// Makes every IndexMap without fill that reads another one read that one's operand, and replaces an
// IndexMap that changes nothing by its operand. Keeps all nodes in place, so some lose their users.
Graph ComposeViews(const Graph& graph);

// Gives a fill, which is never read, to every IndexMap without a proof that it reads inside its
// operand. REQUIRES: it does read inside, as in graphs derived from an accepted graph. Then Verify
// accepts the graph, and kernels test positions before they read. Such a map can lose its proof
// when two views are merged or dims renamed. Also covers the bodies of Scans, at any depth; they
// are over the dims of `graph`.
void GuardViews(Graph* graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_VIEWS_H_
