// Inputs whose values are indices: which nodes select with them, and whether a request's values
// stay inside. Only inputs that are an index operand themselves are checked here, where it is
// cheap; indices that are computed are guarded in the kernels.
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

  // `dims` as graph.dims; `inputs` the bytes of each input in the order of graph.InputIds(), of the
  // sizes that `dims` give. INVALID_ARGUMENT names the input, the element and the node.
  absl::Status Check(absl::Span<const int64_t> dims,
                     absl::Span<const std::string_view> inputs) const;

 private:
  struct Row {
    int input;
    std::string name;
    DType dtype;
    Expr size;         // indices are in [0, size); bag offsets in [0, size]
    bool offsets;      // of an EmbeddingBag: start with 0 and never decrease
    std::string node;  // that selects, as messages name it
  };
  std::vector<std::string> dims_;
  std::vector<Row> rows_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_INDEX_CHECK_H_
