#include "server/describe/model_metadata.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/datatype.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using Reply = inference::ModelMetadataResponse;

void Describe(const std::string& name, const TensorType& type, Reply::TensorMetadata* tensor) {
  tensor->set_name(name);
  const DatatypeRow* datatype = DatatypeOf(type.dtype);
  if (datatype != nullptr) tensor->set_datatype(std::string(datatype->name));
  for (const Expr& size : type.shape) tensor->add_shape(size.constant().value_or(-1));
}

}  // namespace

absl::Status FillMetadata(ServerCore& core, const std::string& name,
                          const std::string& version_name, Reply* answer) {
  ASSIGN_OR_RETURN(auto found, core.registry().versions().Find(name, version_name));
  const ModelVersion& version = *found;
  RETURN_IF_ERROR(version.unusable());
  const Graph& graph = version.graph();
  answer->set_name(version.name());
  for (const auto& other : core.registry().versions().List(version.name())) {
    answer->add_versions(absl::StrCat(other->version()));
  }
  answer->set_platform("athanor");
  for (NodeId id : graph.InputIds()) {
    Describe(graph.node(id).name, graph.node(id).type, answer->add_inputs());
  }
  for (const Output& output : graph.outputs) {
    Describe(output.name, graph.node(output.node).type, answer->add_outputs());
  }
  // The protocol has no parameters per tensor, so the model's parameters carry these.
  const auto add_elements = [&](const auto& tensors, const std::vector<std::string>& elements,
                                const char* what) {
    for (size_t i = 0; i < elements.size(); ++i) {
      if (elements[i].empty()) continue;
      const std::string& name = tensors.Get(static_cast<int>(i)).name();
      (*answer->mutable_properties())[absl::StrCat(what, ".", name, ".element")] = elements[i];
    }
  };
  add_elements(answer->inputs(), version.input_elements(), "input");
  add_elements(answer->outputs(), version.output_elements(), "output");
  (*answer->mutable_properties())["version"] = absl::StrCat(version.version());
  (*answer->mutable_properties())["graph_hash"] = version.graph_hash();
  return absl::OkStatus();
}

bool IsModelReady(ServerCore& core, const std::string& name, const std::string& version) {
  const auto found = core.registry().versions().Find(name, version);
  return found.ok() && core.serves((*found)->device()) && (*found)->plan() != nullptr;
}

}  // namespace athanor
