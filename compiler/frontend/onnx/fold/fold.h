// Computes nodes that depend on literals only, by the reference evaluator, within cost limits.
//
//   Folder folder({.max_bytes = 64 << 20, .max_work = 200'000'000});
//   std::optional<Tensor> t = folder.Fold(graph, node);   // null: too large, or follows from more
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_FOLD_FOLD_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_FOLD_FOLD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::onnx {

// Used once per import, for one graph that only grows. Nodes that are not folded are computed once
// when a plan is loaded, as any weight is.
class Folder {
 public:
  struct Limits {
    int64_t max_bytes = 64 << 20;  // bytes of all folded values together
    // Elements visited by all folds together; failed attempts count too.
    int64_t max_work = 200'000'000;
    int64_t max_result_bytes = 1 << 16;  // bytes of one folded value
    // Elements visited by one node, between two calls of `cancelled`.
    int64_t max_node_work = 20'000'000;
  };
  // `cancelled` is called before each node that is evaluated; after the first true nothing more is
  // folded.
  explicit Folder(const Limits& limits, std::function<bool()> cancelled = nullptr)
      : limits_(limits), asks_(std::move(cancelled)) {}

  bool cancelled() const { return cancelled_; }

  // Returns the node's value if it depends on Constant, Iota and literals alone, has no dims, is
  // within the limits, and has at most `most` elements. An index outside its tensor is left for run
  // time, where it is an error only if the node is needed.
  std::optional<Tensor> Fold(const Graph& graph, NodeId node, int64_t most = int64_t{1} << 16);

 private:
  void Classify(const Graph& graph);
  std::nullopt_t GiveUp(NodeId node);
  absl::StatusOr<Tensor> Evaluate(const Graph& graph, const std::vector<NodeId>& needed);

  const Limits limits_;
  const std::function<bool()> asks_;
  bool cancelled_ = false;
  int64_t bytes_ = 0, work_ = 0;
  std::vector<bool> literal_;  // by node: depends on literals alone and may be folded
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_FOLD_FOLD_H_
