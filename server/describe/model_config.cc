#include "server/describe/model_config.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "compiler/frontend/datatype.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

inference::DataType DataTypeOf(DType dtype) {
  const DatatypeRow* row = DatatypeOf(dtype);
  inference::DataType type = inference::TYPE_INVALID;
  if (row != nullptr) inference::DataType_Parse("TYPE_" + std::string(row->name), &type);
  return type;
}

template <typename Tensor>
void Describe(const std::string& name, const TensorType& type, bool rows, Tensor* tensor) {
  tensor->set_name(name);
  tensor->set_data_type(DataTypeOf(type.dtype));
  for (size_t i = rows ? 1 : 0; i < type.shape.size(); ++i) {
    tensor->add_dims(type.shape[i].constant().value_or(-1));
  }
}

// Returns the most rows of a call if all tensors have rows; 0 if not.
int32_t MaxBatchSize(const Batching* batching) {
  if (batching == nullptr) return 0;
  const auto all = [](const std::vector<bool>& rows) {
    return std::all_of(rows.begin(), rows.end(), [](bool has) { return has; });
  };
  if (!all(batching->input_rows) || !all(batching->output_rows)) return 0;
  return static_cast<int32_t>(
      std::min<int64_t>(batching->most_rows, std::numeric_limits<int32_t>::max()));
}

}  // namespace

absl::Status FillModelConfig(ServerCore& core, const std::string& name,
                             const std::string& version_name, inference::ModelConfig* config) {
  ASSIGN_OR_RETURN(auto found, core.registry().versions().Find(name, version_name));
  const ModelVersion& version = *found;
  RETURN_IF_ERROR(version.unusable());
  config->set_name(version.name());
  config->set_platform("athanor");
  config->set_backend("athanor");
  const int32_t batch = MaxBatchSize(version.batching().shared.get());
  config->set_max_batch_size(batch);
  const Graph& graph = version.graph();
  for (NodeId id : graph.InputIds()) {
    Describe(graph.node(id).name, graph.node(id).type, batch > 0, config->add_input());
  }
  for (const Output& output : graph.outputs) {
    Describe(output.name, graph.node(output.node).type, batch > 0, config->add_output());
  }
  if (version.batching().shared != nullptr) {
    config->mutable_dynamic_batching()->set_max_queue_delay_microseconds(
        version.batching().delay.count());
  }
  auto* group = config->add_instance_group();
  group->set_name(version.device());
  group->set_count(static_cast<int32_t>(core.options().contexts));
  group->set_kind(version.device() == "cpu" ? inference::ModelInstanceGroup::KIND_CPU
                                            : inference::ModelInstanceGroup::KIND_GPU);
  return absl::OkStatus();
}

}  // namespace athanor
