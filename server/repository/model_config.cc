#include "server/repository/model_config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Use = ConfigField::Use;

constexpr std::string_view kReshape =
    "tensors have the shapes of the model's own inputs and outputs";
constexpr std::string_view kShapeTensor = "tensors of TensorRT's are not served here";

constexpr ConfigField kFields[] = {
    {"ModelConfig", "name", Use::kRead},
    {"ModelConfig", "platform", Use::kRead},
    {"ModelConfig", "backend", Use::kRead},
    {"ModelConfig", "runtime", Use::kInert},
    {"ModelConfig", "version_policy", Use::kRead},
    {"ModelConfig", "max_batch_size", Use::kRead},
    {"ModelConfig", "input", Use::kRead},
    {"ModelConfig", "output", Use::kRead},
    {"ModelConfig", "batch_input", Use::kRefused, "inputs are the model's own"},
    {"ModelConfig", "batch_output", Use::kRefused, "outputs are the model's own"},
    {"ModelConfig", "optimization", Use::kInert},
    {"ModelConfig", "dynamic_batching", Use::kRead},
    {"ModelConfig", "sequence_batching", Use::kRefused,
     "models keep no state between requests here, but language models their own"},
    {"ModelConfig", "ensemble_scheduling", Use::kRefused,
     "a model is one graph; join the graphs, or call one after the other"},
    {"ModelConfig", "instance_group", Use::kInert},
    {"ModelConfig", "default_model_filename", Use::kRead},
    {"ModelConfig", "cc_model_filenames", Use::kInert},
    {"ModelConfig", "metric_tags", Use::kInert},
    {"ModelConfig", "parameters", Use::kRead},
    {"ModelConfig", "model_warmup", Use::kInert},
    {"ModelConfig", "model_operations", Use::kRefused, "libraries of ops are not loaded"},
    {"ModelConfig", "model_transaction_policy", Use::kRead},
    {"ModelConfig", "model_repository_agents", Use::kRefused,
     "agents would change or check files before they are loaded"},
    {"ModelConfig", "response_cache", Use::kInert},
    {"ModelConfig", "model_metrics", Use::kInert},
    {"ModelTransactionPolicy", "decoupled", Use::kRefused, "a request has one response"},
    {"ModelInput", "name", Use::kRead},
    {"ModelInput", "data_type", Use::kRead},
    {"ModelInput", "format", Use::kInert},
    {"ModelInput", "dims", Use::kRead},
    {"ModelInput", "reshape", Use::kRefused, kReshape},
    {"ModelInput", "is_shape_tensor", Use::kRefused, kShapeTensor},
    {"ModelInput", "allow_ragged_batch", Use::kRefused,
     "requests that share a call have rows of one shape"},
    {"ModelInput", "optional", Use::kRefused, "a request has all inputs"},
    {"ModelInput", "is_non_linear_format_io", Use::kRefused, kShapeTensor},
    {"ModelOutput", "name", Use::kRead},
    {"ModelOutput", "data_type", Use::kRead},
    {"ModelOutput", "dims", Use::kRead},
    {"ModelOutput", "reshape", Use::kRefused, kReshape},
    {"ModelOutput", "label_filename", Use::kInert},
    {"ModelOutput", "is_shape_tensor", Use::kRefused, kShapeTensor},
    {"ModelOutput", "is_non_linear_format_io", Use::kRefused, kShapeTensor},
    // Requests share calls, but by the server's flags.
    {"ModelDynamicBatching", "preferred_batch_size", Use::kInert},
    {"ModelDynamicBatching", "max_queue_delay_microseconds", Use::kInert},
    {"ModelDynamicBatching", "preserve_ordering", Use::kInert},
    {"ModelDynamicBatching", "priority_levels", Use::kInert},
    {"ModelDynamicBatching", "default_priority_level", Use::kInert},
    {"ModelDynamicBatching", "default_queue_policy", Use::kInert},
    {"ModelDynamicBatching", "priority_queue_policy", Use::kInert},
};

constexpr std::string_view kParameterPrefix = "athanor.";

// Keeps the first error of a parse.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = Cat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Applies the table to the fields that are set, and to those of messages that it has rows of.
absl::Status ReadFields(const Message& message, const std::string& path,
                        std::vector<std::string>* inert) {
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    const ConfigField* row = FindConfigField(message.GetDescriptor()->name(), field->name());
    if (row == nullptr) continue;
    const std::string where = path + field->name();
    if (row->use == Use::kRefused) {
      return Unimplemented(where, ": not served here: ", row->why, "; leave it out");
    }
    if (row->use == Use::kInert) {
      if (!absl::c_linear_search(*inert, where)) inert->push_back(where);
      continue;
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    const auto* reflection = message.GetReflection();
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(ReadFields(reflection->GetMessage(message, field), where + ".", inert));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      RETURN_IF_ERROR(
          ReadFields(reflection->GetRepeatedMessage(message, field, i), where + ".", inert));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadParameters(RepositoryConfig* config) {
  const struct {
    std::string_view name;
    std::string* value;
  } known[] = {{"athanor.dims", &config->dims},
               {"athanor.batch_dim", &config->batch_dim},
               {"athanor.search_budget", &config->search_budget},
               {"athanor.device", &config->device}};
  std::set<std::string> names;
  for (const auto& [name, parameter] : config->message.parameters()) names.insert(name);
  for (const std::string& name : names) {
    if (!name.starts_with(kParameterPrefix)) {
      config->inert.push_back(Cat("parameters[", Quoted(name), "]"));
      continue;
    }
    const auto row = absl::c_find_if(known, [&](const auto& each) { return each.name == name; });
    if (row == std::end(known)) {
      return Invalid("parameters: there is no ", Quoted(name),
                     "; there are athanor.dims, athanor.batch_dim, athanor.search_budget and "
                     "athanor.device");
    }
    *row->value = config->message.parameters().at(name).string_value();
  }
  return absl::OkStatus();
}

absl::Status CheckNames(const inference::ModelConfig& message, const std::string& model) {
  if (!message.name().empty() && message.name() != model) {
    return Invalid("name: ", Quoted(message.name()), ", but its folder is ", Quoted(model),
                   "; both are the model's name");
  }
  constexpr std::string_view kPlatforms[] = {"", "onnxruntime_onnx", "athanor"};
  constexpr std::string_view kBackends[] = {"", "onnxruntime", "athanor"};
  if (!absl::c_linear_search(kPlatforms, message.platform())) {
    return Unimplemented("platform: ", Quoted(message.platform()),
                         " is not served here; there are \"onnxruntime_onnx\" and \"athanor\"");
  }
  if (!absl::c_linear_search(kBackends, message.backend())) {
    return Unimplemented("backend: ", Quoted(message.backend()),
                         " is not served here; there are \"onnxruntime\" and \"athanor\"");
  }
  const std::string& file = message.default_model_filename();
  if (file == "." || file == ".." || file.find('/') != std::string::npos) {
    return Invalid("default_model_filename: ", Quoted(file),
                   " is no name of a file in the version's folder");
  }
  if (message.max_batch_size() < 0) {
    return Invalid("max_batch_size: ", message.max_batch_size(), " is negative");
  }
  return absl::OkStatus();
}

absl::Status CheckPolicy(const inference::ModelVersionPolicy& policy) {
  for (int64_t version : policy.specific().versions()) {
    if (version < 1) return Invalid("version_policy.specific: versions begin with 1");
  }
  return absl::OkStatus();
}

}  // namespace

const ConfigField* FindConfigField(std::string_view message, std::string_view name) {
  for (const ConfigField& row : kFields) {
    if (row.message == message && row.name == name) return &row;
  }
  return nullptr;
}

std::vector<int64_t> RepositoryConfig::WantedVersions(const std::vector<int64_t>& there) const {
  const inference::ModelVersionPolicy& policy = message.version_policy();
  if (policy.has_all()) return there;
  if (policy.has_specific()) {
    std::vector<int64_t> wanted;
    for (int64_t version : there) {
      if (absl::c_linear_search(policy.specific().versions(), version)) wanted.push_back(version);
    }
    return wanted;
  }
  const size_t most = std::max<size_t>(1, policy.latest().num_versions());
  return {there.end() - static_cast<int64_t>(std::min(most, there.size())), there.end()};
}

absl::StatusOr<RepositoryConfig> ParseConfig(std::string_view text, const std::string& model) {
  RepositoryConfig config;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(32);
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&input, &config.message)) {
    return Invalid(error.text().empty() ? "no text of a ModelConfig" : error.text());
  }
  RETURN_IF_ERROR(ReadFields(config.message, "", &config.inert));
  RETURN_IF_ERROR(CheckNames(config.message, model));
  RETURN_IF_ERROR(CheckPolicy(config.message.version_policy()));
  RETURN_IF_ERROR(ReadParameters(&config));
  return config;
}

}  // namespace athanor
