// Values of nodes that depend on literals only, by the reference evaluator, as far as that is
// cheap.
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

// One per import, for one graph that only grows. What is not folded is computed once when a plan is
// loaded, as any weight is.
class Folder {
 public:
  struct Limits {
    int64_t max_bytes = 64 << 20;        // of all that it folds
    int64_t max_work = 200'000'000;      // elements visited, together, and nodes in vain
    int64_t max_result_bytes = 1 << 16;  // of one
    int64_t max_node_work = 20'000'000;  // of one node, between two times that `cancelled` is asked
  };
  // `cancelled`: asked before each node that is evaluated; after the first true nothing is folded.
  explicit Folder(const Limits& limits, std::function<bool()> cancelled = nullptr)
      : limits_(limits), asks_(std::move(cancelled)) {}

  bool cancelled() const { return cancelled_; }

  // The node's value if it follows from Constant, Iota and literals alone, has no dims, is within
  // the limits, and has at most `most` elements. An index outside its tensor is left for run time,
  // where it is an error only if the node is needed.
  std::optional<Tensor> Fold(const Graph& graph, NodeId node, int64_t most = int64_t{1} << 16);

 private:
  void Classify(const Graph& graph);
  std::nullopt_t GiveUp(NodeId node);
  absl::StatusOr<Tensor> Evaluate(const Graph& graph, const std::vector<NodeId>& needed);

  const Limits limits_;
  const std::function<bool()> asks_;
  bool cancelled_ = false;
  int64_t bytes_ = 0, work_ = 0;
  std::vector<bool> literal_;  // by node: it follows from literals alone and may be folded
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_FOLD_FOLD_H_
