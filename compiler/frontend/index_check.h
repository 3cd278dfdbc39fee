// Checks the values of inputs that are indices: finds the nodes that use them to select, and tests
// whether a request's values are inside. Covers only inputs that are an index operand themselves,
// where the check is cheap; kernels guard computed indices.
//
//   IndexChecks checks(graph);              // "g" = Gather(table [30522, 384], ids)
//   checks.Check(dims, inputs);             // input "ids": element 7 is 30522; it must be in ...
//
// Immutable, so thread-safe.
#ifndef ATHANOR_COMPILER_FRONTEND_INDEX_CHECK_H_
#define ATHANOR_COMPILER_FRONTEND_INDEX_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

class IndexChecks {
 public:
  explicit IndexChecks(const Graph& graph);

  // `dims` are in the order of graph.dims; `inputs` are the bytes of each input in the order of
  // graph.InputIds(), with the sizes that `dims` gives. INVALID_ARGUMENT names the input, the
  // element and the node.
  absl::Status Check(absl::Span<const int64_t> dims,
                     absl::Span<const std::string_view> inputs) const;

 private:
  struct Row {
    int input;
    std::string name;
    DType dtype;
    Expr size;         // indices are in [0, size); bag offsets in [0, size]
    bool offsets;      // EmbeddingBag's offsets, which start with 0 and never decrease
    std::string node;  // selecting node, as messages name it
  };
  std::vector<std::string> dims_;
  std::vector<Row> rows_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_INDEX_CHECK_H_
