// Adds nodes of a checkpoint's graph. The first step that fails is kept; later ones do nothing.
//
//   class Builder : private GraphWriter { ... };
//   NodeId weight = Weight(tensor);                  // its bytes as a parameter, decoded to f32
//   NodeId x = Contract("tk,nk->tn", y, weight);
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GRAPH_WRITER_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GRAPH_WRITER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/files/stored.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::checkpoint {

struct CheckpointGraph {
  Graph graph;
  std::vector<FileTensor> parameters;  // of graph.ParameterIds(), in order
};

// Not thread-safe.
class GraphWriter {
 public:
  GraphWriter(std::string name, std::vector<Dim> dims, const GraphLimits& limits)
      : graph_{.name = std::move(name), .dims = std::move(dims)}, b_(&graph_, limits) {}

  NodeId Keep(absl::StatusOr<NodeId> node);
  NodeId Add(Op op, std::vector<NodeId> inputs, Attrs attrs = {});
  NodeId Op2(Op op, NodeId a, NodeId b) { return Add(op, {a, b}); }
  NodeId Input(const std::string& name, DType dtype, Shape shape) {
    return Keep(b_.Input(name, {dtype, std::move(shape)}));
  }
  NodeId Contract(std::string spec, NodeId a, NodeId b) {
    return Add(Op::kContract, {a, b}, {{"spec", std::move(spec)}});
  }
  NodeId View(NodeId x, Shape shape, std::vector<Expr> coordinates);
  NodeId Cast(NodeId x, DType dtype) { return Add(Op::kCast, {x}, {{"dtype", dtype}}); }
  NodeId Take(NodeId data, NodeId indices) {
    return Add(Op::kGather, {data, indices}, {{"axis", int64_t{0}}});
  }
  NodeId Counted(DType dtype, const Shape& shape, int64_t axis) {
    return Add(Op::kIota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", dtype}});
  }
  NodeId Sum(NodeId x, int64_t axis) {
    return Add(Op::kSumReduce, {x}, {{"axes", std::vector<int64_t>{axis}}});
  }
  // A value everywhere, f32 or i32.
  NodeId Filled(double value, const Shape& shape);
  NodeId FilledInt(int64_t value, const Shape& shape);

  // The tensor's bytes; the same node for the same tensor.
  NodeId Parameter(const FileTensor& tensor);
  NodeId Decoded(NodeId stored, const FileTensor& tensor);
  NodeId Weight(const FileTensor& tensor) { return Decoded(Parameter(tensor), tensor); }
  // Rows of a table that `indices` name; only they are decoded.
  NodeId Rows(const FileTensor& table, NodeId indices) {
    return Decoded(Take(Parameter(table), indices), table);
  }

  const absl::Status& status() const { return status_; }
  Graph& graph() { return graph_; }
  GraphBuilder& builder() { return b_; }
  absl::StatusOr<CheckpointGraph> Finish();

 private:
  Graph graph_;
  GraphBuilder b_;
  absl::Status status_;
  std::map<std::string, NodeId> made_;  // parameters by name
  std::vector<FileTensor> parameters_;
};

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_FILES_GRAPH_WRITER_H_
