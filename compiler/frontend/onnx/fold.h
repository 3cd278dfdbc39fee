// Values of nodes that depend on literals only, by the reference evaluator, as far as that is
// cheap.
//
//   Folder folder({.max_bytes = 64 << 20, .max_work = 200'000'000});
//   std::optional<Tensor> t = folder.Fold(graph, node);   // null: too large, or follows from more
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_FOLD_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_FOLD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace athanor::onnx {

// One per import, for one graph that only grows. What is not folded is computed once when a plan is
// loaded, as any weight is.
class Folder {
 public:
  struct Limits {
    int64_t max_bytes = 64 << 20;        // of all that it folds
    int64_t max_work = 200'000'000;      // elements visited, together
    int64_t max_result_bytes = 1 << 16;  // of one
  };
  explicit Folder(const Limits& limits) : limits_(limits) {}

  // The node's value if it follows from Constant, Iota and literals alone, has no dims, and is
  // within the limits. An index outside its tensor is left for run time, where it is an error only
  // if the node is needed.
  std::optional<Tensor> Fold(const Graph& graph, NodeId node);

 private:
  void Classify(const Graph& graph);
  std::nullopt_t GiveUp(NodeId node);

  const Limits limits_;
  int64_t bytes_ = 0, work_ = 0;
  std::vector<bool> literal_;  // by node: it follows from literals alone and may be folded
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_FOLD_H_
