// The edge where graphs come in: everything a user can get wrong about a graph is refused here, so
// that later stages meet none of it.
//
//   absl::StatusOr<ImportedGraph> imported = ImportGraph(uploaded_bytes, limits);
//   if (!imported.ok()) return imported.status();
//   // "node \"y\" (Add): operand 0 has dtype f32, operand 1 has f16; ... Cast(dtype=f32) ..."
//
// INVALID_ARGUMENT: the graph is wrong; UNIMPLEMENTED: an op or dtype that is not supported. Each
// message names the node, dim or output and what would be right. Thread-safe.
#ifndef ATHANOR_COMPILER_FRONTEND_FRONTEND_H_
#define ATHANOR_COMPILER_FRONTEND_FRONTEND_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {

struct ImportedGraph {
  Graph graph;
  // SHA-256 (32 bytes) of each parameter's bytes, in the order of graph.ParameterIds().
  std::vector<std::string> parameter_hashes;
  // What values mean where that is no dtype (element.h), in the order of graph.InputIds() and of
  // graph.outputs; empty: themselves. Part of no hash.
  std::vector<std::string> input_elements, output_elements;
};

constexpr int kMaxNesting = 16;  // of floor_div, min and max in a size of a message, at most

// From a serialised athanor.v1.Graph. Bytes that are no such message are INVALID_ARGUMENT with the
// field where they go wrong.
absl::StatusOr<ImportedGraph> ImportGraph(std::string_view bytes, const GraphLimits& limits = {},
                                          int max_nesting = kMaxNesting);
// Nodes may come in any order; the result is ordered, and an order that is valid already is kept.
absl::StatusOr<ImportedGraph> ImportGraph(const v1::Graph& message, const GraphLimits& limits = {},
                                          int max_nesting = kMaxNesting);
// The graph alone.
absl::StatusOr<Graph> GraphFromProto(const v1::Graph& message, const GraphLimits& limits = {});

// Nodes without a name get one. `parameter_hashes` as in ImportedGraph; empty leaves the hashes
// out, and then ImportGraph refuses the message if there are parameters.
v1::Graph GraphToProto(const Graph& graph, absl::Span<const std::string> parameter_hashes = {});
// With what is known beside the graph; ImportGraph gives it back.
v1::Graph GraphToProto(const ImportedGraph& imported);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_FRONTEND_H_
