// Proves that requests may share a call: row i of every output depends on row i of every input
// alone, for any number of rows.
//
//   RowProof proof = ProveRowIndependent(graph, "b");
//   proof.independent;             // x f32[b, 64] -> y f32[b, 10]: true, with one element per row
//   proof.reason;                  // else: `"p" (Softmax): normalises across the rows of dim b`
//
// If it is proved, calls may be joined whose other dims are equal and whose inputs without rows are
// equal byte for byte. Inputs with rows are concatenated, as long as the sum of the sizes of the
// dim is within its bounds. The outputs with rows are the calls' outputs, concatenated, whatever
// the rows hold (a NaN stays in its row); outputs without rows are the same for all. This is exact
// for the reference evaluator; kernels, which may sum in another order at another size, stay within
// their error bounds. Only errors are shared: an index outside its tensor fails the whole call.
//
// How: a value has rows if one axis has q*dim elements, q free of the dim; element k of the axis
// belongs to row k / q. The proof walks from the inputs. Each op either keeps rows apart, by its
// traits (graph/op_traits.h), or becomes the reason. Without a proof the answer is
// no; that does not mean that rows are mixed at some size.
#ifndef ATHANOR_COMPILER_IR_ROWS_ROW_INDEPENDENCE_H_
#define ATHANOR_COMPILER_IR_ROWS_ROW_INDEPENDENCE_H_

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

struct RowProof {
  // Place of the rows in a value.
  struct Rows {
    int axis = -1;     // axis of per_row * dim elements, a row's side by side; -1: no rows
    Expr per_row = 1;  // free of the dim; may hold other dims

    bool any() const { return axis >= 0; }
  };

  bool independent = false;
  // Empty if independent. Names the node, its op and what it does across rows, or the output, or
  // the dim.
  std::string reason;
  // For graph.InputIds() and graph.outputs, in order; axis is 0 or -1. Empty unless independent.
  std::vector<Rows> inputs, outputs;
};

// Takes time linear in nodes, except for the proofs that IndexMaps need. Pure, thread-safe.
// REQUIRES: Verify(graph).ok().
RowProof ProveRowIndependent(const Graph& graph, std::string_view dim);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_ROWS_ROW_INDEPENDENCE_H_
