// The shapes of a graph's outputs for given values of its dims.
//
//   OutputShapes shapes(graph);
//   absl::Status s = shapes.Fill(/*output=*/0, dims, &shape, &bytes);
//
// Immutable, so thread-safe. Sizes that are a number or a dim, which is nearly all, cost a copy.
#ifndef ATHANOR_SERVER_PLANS_OUTPUT_SHAPES_H_
#define ATHANOR_SERVER_PLANS_OUTPUT_SHAPES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

class OutputShapes {
 public:
  explicit OutputShapes(const Graph& graph) : OutputShapes(graph, graph.outputs) {}
  // Takes `outputs` instead of the graph's own.
  OutputShapes(const Graph& graph, absl::Span<const Output> outputs);

  const std::string& name(int output) const { return outputs_[output].name; }
  std::string_view datatype(int output) const { return outputs_[output].datatype; }
  // Computes an output's shape and bytes. `dims` are in the order of graph.dims and in their
  // bounds. INVALID_ARGUMENT names an output whose size exceeds 64 bits.
  absl::Status Fill(int output, absl::Span<const int64_t> dims, std::vector<int64_t>* shape,
                    int64_t* bytes) const;

 private:
  struct Axis {
    int64_t constant = -1;
    int dim = -1;
    Expr size;  // if neither is set
  };
  struct Entry {
    std::string name;
    std::string_view datatype;
    int element_bytes = 0;
    std::vector<Axis> axes;
  };
  int64_t SizeOf(const Axis& axis, absl::Span<const int64_t> dims) const;

  std::vector<std::string> dims_;
  std::vector<Entry> outputs_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_OUTPUT_SHAPES_H_
