// The parts of the canonical form that Canonicalize, CanonicalHash and the e-graph's payloads
// share.
#ifndef ATHANOR_COMPILER_IR_GRAPH_CANONICAL_H_
#define ATHANOR_COMPILER_IR_GRAPH_CANONICAL_H_

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// Returns the attributes in canonical form: defaults are written out, and the letters of a Contract
// are renamed in order of appearance. Equal nodes then have equal attributes. Attributes that the
// op table refuses stay as they are.
Attrs CanonicalAttrs(Op op, const Attrs& given);

// Appends an unambiguous encoding of a node: op, operands, attributes and type, not the name. A
// literal of more than a few bytes is encoded as its SHA-256.
void EncodeNode(const Node& node, std::string* bytes);

// Renames the dims to d0, d1, ... in an order that does not depend on their names, and drops those
// that no node uses. Returns the former names of d0, d1, ...
std::vector<std::string> RenameDims(Graph* graph);

// Same as Canonicalize of graph.h. `moved` receives, for each node of `graph`, its id in the
// result, or -1 if no output or update needs it.
Graph Canonicalize(const Graph& graph, std::vector<std::string>* dim_names,
                   std::vector<NodeId>* moved);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_CANONICAL_H_
