// The parts of the canonical form: what Canonicalize and CanonicalHash share, and what makes the
// e-graph's payloads equal.
#ifndef ATHANOR_COMPILER_IR_GRAPH_CANONICAL_H_
#define ATHANOR_COMPILER_IR_GRAPH_CANONICAL_H_

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// Defaults written out, the letters of a Contract renamed in order of appearance: equal nodes have
// equal attributes. Attributes that the op
// table refuses stay as they are.
Attrs CanonicalAttrs(Op op, const Attrs& given);

// Unambiguous bytes of a node: op, operands, attributes, type; not the name. Literals above a few
// bytes stand there as their SHA-256.
void EncodeNode(const Node& node, std::string* bytes);

// Renames the dims to d0, d1, ... in an order that does not depend on their names, and drops those
// that no node uses. Returns the former names of d0, d1, ...
std::vector<std::string> RenameDims(Graph* graph);

// As Canonicalize of graph.h; `moved` receives, by node of `graph`, its number there, -1 for those
// that no output needs.
Graph Canonicalize(const Graph& graph, std::vector<std::string>* dim_names,
                   std::vector<NodeId>* moved);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_CANONICAL_H_
