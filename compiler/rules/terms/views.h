// Views of views as one view.
//
//   Graph g = ComposeViews(graph);   // reshape after permute after reshape: one IndexMap
//
// Exact, and always right to apply: a view costs nothing by itself, and recognition sees through
// one view, not through chains. Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_RULES_TERMS_VIEWS_H_
#define ATHANOR_COMPILER_RULES_TERMS_VIEWS_H_

#include "compiler/ir/graph/graph.h"

namespace athanor {

// Every IndexMap without fill over another one reads what that one reads; an IndexMap that changes
// nothing is its operand. Nodes stay where they are, so some are left without users.
Graph ComposeViews(const Graph& graph);

// Every IndexMap that reads inside its operand, as those made of an accepted graph do, without a
// proof of that has a fill, which is never read: Verify accepts the graph, and kernels test the
// place before they read. A proof for two views need not be found for both in one, nor for other
// names of dims. Bodies of Scans too, at any depth: they are read over the dims of `graph`.
void GuardViews(Graph* graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_VIEWS_H_
