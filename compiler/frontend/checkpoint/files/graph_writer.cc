#include "compiler/frontend/checkpoint/files/graph_writer.h"

#include "compiler/frontend/checkpoint/files/decode.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::checkpoint {

NodeId GraphWriter::Keep(absl::StatusOr<NodeId> node) {
  if (node.ok()) return *node;
  if (status_.ok()) status_ = node.status();
  return -1;
}

NodeId GraphWriter::Add(Op op, std::vector<NodeId> inputs, Attrs attrs) {
  return status_.ok() ? Keep(b_.Add(op, std::move(inputs), std::move(attrs))) : -1;
}

NodeId GraphWriter::View(NodeId x, Shape shape, std::vector<Expr> coordinates) {
  return Add(Op::kIndexMap, {x}, {{"map", IndexMap{std::move(shape), std::move(coordinates)}}});
}

NodeId GraphWriter::Filled(double value, const Shape& shape) {
  const auto narrow = static_cast<float>(value);
  return View(Keep(b_.Constant(Tensor::Of<float>(DType::kF32, {}, {narrow}))), shape, {});
}

NodeId GraphWriter::FilledInt(int64_t value, const Shape& shape) {
  const auto narrow = static_cast<int32_t>(value);
  return View(Keep(b_.Constant(Tensor::Of<int32_t>(DType::kI32, {}, {narrow}))), shape, {});
}

NodeId GraphWriter::Parameter(const FileTensor& tensor) {
  if (!status_.ok()) return -1;
  const auto [it, added] = made_.emplace(tensor.name, -1);
  if (!added) return it->second;
  parameters_.push_back(tensor);
  return it->second = Keep(b_.Parameter(tensor.name, TypeOfBytes(tensor)));
}

NodeId GraphWriter::Decoded(NodeId stored, const FileTensor& tensor) {
  return status_.ok() ? Keep(Decode(b_, graph_, stored, tensor.stored)) : -1;
}

absl::StatusOr<CheckpointGraph> GraphWriter::Finish() {
  RETURN_IF_ERROR(status_);
  return CheckpointGraph{std::move(graph_), std::move(parameters_)};
}

}  // namespace athanor::checkpoint
