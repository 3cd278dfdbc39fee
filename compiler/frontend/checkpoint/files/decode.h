// Builds the nodes that turn a tensor's stored bytes into the f32 numbers they stand for.
//
//   NodeId bytes = b.Parameter(tensor.name, TypeOfBytes(tensor)).value();
//   NodeId weight = Decode(b, graph, bytes, tensor.stored).value();       // f32 [rows.., columns]
//
// Every form decodes exactly as ggml defines it: an element is a code times a scale, with an offset
// added in some forms. All products but those of Q6_K are exact, so at most the sum is rounded.
// Sources: ggml's block structures; the gguf package is the oracle of the tests, bit for bit.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_DECODE_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_DECODE_H_

#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/files/stored.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::checkpoint {

// Adds nodes to `graph`, which `b` builds. `stored` has the type that TypeOfBytes gives, but its
// rows may be any, also dims: rows that a Gather took are decoded alike. Another type is
// INVALID_ARGUMENT.
absl::StatusOr<NodeId> Decode(GraphBuilder& b, const Graph& graph, NodeId stored, Stored how);

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_DECODE_H_
