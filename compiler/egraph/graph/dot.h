// Draws small e-graphs in Graphviz' language: a cluster per class, and an edge from a node's child
// slot to the child's class.
//
//   std::ofstream("graph.dot") << DotText(graph);   // then: dot -Tsvg graph.dot
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_DOT_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_DOT_H_

#include <cstddef>
#include <string>

#include "compiler/egraph/graph/egraph.h"

namespace athanor::egraph {

// Returns classes in id order, with their values if there is an analysis. Beyond `max_nodes`, a
// comment says how many nodes are left out. Labels end in "..." after 160 bytes. REQUIRES:
// graph.clean().
std::string DotText(const EGraph& graph, size_t max_nodes = 500);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_DOT_H_
