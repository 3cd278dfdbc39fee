// Proves that sequences of tokens may share a step: what a row of dim T gives follows from its own
// sequence alone, whichever rows of other sequences are beside it.
//
//   SequenceProof proof = ProveSequenceIndependent(graph, "T");
//   proof.independent;   // the decoder of a language model: true
//   proof.wanted;        // "R": outputs have a row for each row that input [R] asks for
//   proof.reason;        // else: `"n" (Softmax): normalises across the rows of dim T`
//
// A row's sequence is known by its states, so two promises of who runs the graph are part of the
// proof: blocks that a row's line of the table names are written by rows of its sequence alone
// while they do (server/generate: a block is written while it has one owner), and a step has no
// (sequence, position) twice. Then:
// - a StateWrite writes rows of T, and its index is taken to be slots of the row's own blocks;
// - a PagedAttention reads states, by the inputs `table` and `sequence` as they are;
// - a Gather by a row's own index may read the table;
// - a Gather of rows of T by an input [R] begins rows of R. No row of T may depend on these, and
//   each op behind it keeps them apart as it keeps rows of T;
// - every other op keeps rows apart by the proof of row_independence.h.
// An input without rows is a table, of which a row's other ops read nothing.
#ifndef ATHANOR_COMPILER_IR_ROWS_SEQUENCE_INDEPENDENCE_H_
#define ATHANOR_COMPILER_IR_ROWS_SEQUENCE_INDEPENDENCE_H_

#include <string>
#include <string_view>

#include "compiler/ir/graph/graph.h"

namespace athanor {

struct SequenceProof {
  bool independent = false;
  // Empty if independent. Names the node, its op and what it does across rows, or the output.
  std::string reason;
  // The dim of the rows that are asked for; empty if outputs have all rows, or without a proof.
  std::string wanted;
};

// Takes time linear in nodes, except for the proofs that IndexMaps need. Pure, thread-safe.
// REQUIRES: Verify(graph).ok().
SequenceProof ProveSequenceIndependent(const Graph& graph, std::string_view dim);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_ROWS_SEQUENCE_INDEPENDENCE_H_
