// Reads a user's graph from a file, for the programs of this folder.
#ifndef ATHANOR_TESTS_BENCH_GRAPH_FILE_H_
#define ATHANOR_TESTS_BENCH_GRAPH_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// INVALID_ARGUMENT: the file is not a serialised athanor.v1.Graph, or the graph is refused.
absl::StatusOr<Graph> ReadGraph(const std::string& path);

using OnnxDims = std::vector<onnx::DimGiven>;

// Reads an ONNX model whose weights lie in the same file. INVALID_ARGUMENT: it is refused.
absl::StatusOr<Graph> ReadOnnx(const std::string& path, const OnnxDims& dims);

// For ReadArguments: "batch:1:8,height:32:320".
bool ParseDims(const std::string& text, OnnxDims* dims);
inline auto AsDims(OnnxDims* to) {
  return [to](const std::string& text) { return ParseDims(text, to); };
}

}  // namespace athanor

#endif  // ATHANOR_TESTS_BENCH_GRAPH_FILE_H_
