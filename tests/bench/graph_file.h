// Reads a user's graph from a file, for the programs of this folder.
#ifndef ATHANOR_TESTS_BENCH_GRAPH_FILE_H_
#define ATHANOR_TESTS_BENCH_GRAPH_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// INVALID_ARGUMENT: the file is not a serialised athanor.v1.Graph, or the graph is refused.
absl::StatusOr<Graph> ReadGraph(const std::string& path);

}  // namespace athanor

#endif  // ATHANOR_TESTS_BENCH_GRAPH_FILE_H_
