#include "server/models/model_import.h"

#include <utility>

namespace athanor {

GraphLimits GraphLimitsOf(const ServerOptions& options) {
  GraphLimits limits;
  limits.max_nodes = options.max_nodes;
  limits.max_rank = static_cast<int>(options.max_rank);
  limits.max_dims = options.max_dims;
  limits.max_name_bytes = options.max_name_bytes;
  limits.max_tensor_bytes = options.max_tensor_bytes;
  limits.max_attr_bytes = options.max_attr_bytes;
  limits.max_expr_size = options.max_expr_size;
  return limits;
}

GraphMaker GraphMakerOf(std::string_view format) {
  return format == "hf" || format == "gguf" ? GraphMaker::kServer : GraphMaker::kUser;
}

absl::Status ModelImport::Give(const google::protobuf::RepeatedPtrField<v1::DimGiven>& dims) {
  if (dims.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError("dims are given of ONNX models only");
}

v1::Refusals RefusalsToProto(absl::Span<const ImportRefusal> refusals, int64_t bytes) {
  v1::Refusals message;
  constexpr int64_t kOverhead = 16;  // tag and length of an item, and `others`
  int64_t used = kOverhead;
  for (const ImportRefusal& refusal : refusals) {
    v1::Refusals::Refusal item;
    item.set_code(static_cast<int32_t>(refusal.code));
    item.set_node(refusal.node);
    item.set_domain(refusal.domain);
    item.set_op(refusal.op);
    item.set_version(refusal.version);
    item.set_reason(refusal.reason);
    for (const std::string& input : refusal.inputs) item.add_inputs(input);
    used += static_cast<int64_t>(item.ByteSizeLong()) + kOverhead;
    if (used > bytes) {
      message.set_others(static_cast<int64_t>(refusals.size()) - message.refusals_size());
      return message;
    }
    *message.add_refusals() = std::move(item);
  }
  return message;
}

}  // namespace athanor
