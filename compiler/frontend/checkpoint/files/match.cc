#include "compiler/frontend/checkpoint/files/match.h"

#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor::checkpoint {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return ShapeToString(Shape(shape.begin(), shape.end()));
}

}  // namespace

void RefuseTensor(std::string_view tensor, std::string reason,
                  std::vector<ImportRefusal>* refusals) {
  ImportRefusal refusal;
  refusal.code = absl::StatusCode::kInvalidArgument;
  refusal.node = tensor;
  refusal.reason = std::move(reason);
  AddRefusal(std::move(refusal), refusals);
}

void MatchWanted(const WantedTensors& wanted, const Tensors& tensors,
                 std::vector<ImportRefusal>* refusals) {
  for (const auto& [name, shape] : wanted) {
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      RefuseTensor(name, Cat("is missing; its shape would be ", ShapeText(shape)), refusals);
      continue;
    }
    const FileTensor& tensor = it->second;
    if (tensor.shape != shape) {
      RefuseTensor(tensor.name,
                   Cat("has shape ", ShapeText(tensor.shape), "; it must be ", ShapeText(shape)),
                   refusals);
    } else if (!HoldsWeights(tensor.stored)) {
      RefuseTensor(
          tensor.name,
          Cat("is stored as ", StoredInfo(tensor.stored).name, "; weights are no integers"),
          refusals);
    }
  }
}

}  // namespace athanor::checkpoint
