// Imports uploaded graphs. Refuses every mistake a user can make in a graph, so that later stages
// meet none.
//
//   absl::StatusOr<ImportedGraph> imported = ImportGraph(uploaded_bytes, limits);
//   if (!imported.ok()) return imported.status();
//   // "node \"y\" (Add): operand 0 has dtype f32, operand 1 has f16; ... Cast(dtype=f32) ..."
//
// INVALID_ARGUMENT: the graph is wrong; UNIMPLEMENTED: an op or dtype that is not supported. Each
// message names the node, dim or output and what would be right. Thread-safe.
#ifndef ATHANOR_COMPILER_FRONTEND_FRONTEND_H_
#define ATHANOR_COMPILER_FRONTEND_FRONTEND_H_

#include <cstdint>
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
  // Element types of values that are not of a dtype (element.h), in the order of graph.InputIds()
  // and of graph.outputs; an empty string if the dtype says it all. Not part of any hash.
  std::vector<std::string> input_elements, output_elements;
};

constexpr int kMaxNesting = 16;  // nesting depth of floor_div, min and max in a message's sizes

// Says who made a graph. Those that the server makes of checkpoints may have states; users' may
// not.
enum class GraphMaker : uint8_t { kUser, kServer };

// Imports a serialised athanor.v1.Graph. Bytes that are no such message are INVALID_ARGUMENT, which
// names the field that is wrong.
absl::StatusOr<ImportedGraph> ImportGraph(std::string_view bytes, const GraphLimits& limits = {},
                                          int max_nesting = kMaxNesting,
                                          GraphMaker maker = GraphMaker::kUser);
// Nodes may come in any order. The result is in topological order; a valid order is kept.
absl::StatusOr<ImportedGraph> ImportGraph(const v1::Graph& message, const GraphLimits& limits = {},
                                          int max_nesting = kMaxNesting,
                                          GraphMaker maker = GraphMaker::kUser);
// Returns only the graph.
absl::StatusOr<Graph> GraphFromProto(const v1::Graph& message, const GraphLimits& limits = {});

// Nodes without a name get one. `parameter_hashes` is that of ImportedGraph; if it is empty, the
// message has no hashes, and ImportGraph refuses it if there are parameters.
v1::Graph GraphToProto(const Graph& graph, absl::Span<const std::string> parameter_hashes = {});
// Includes the hashes and element types; ImportGraph returns them.
v1::Graph GraphToProto(const ImportedGraph& imported);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_FRONTEND_H_
