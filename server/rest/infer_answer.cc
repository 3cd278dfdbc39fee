#include "server/rest/infer_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "server/rest/tensor_json.h"

namespace athanor {
namespace {

using inference::ModelInferResponse;

// Bytes of JSON around a tensor, beside its name and sizes, and around the answer.
constexpr int64_t kTensorBytes = 128, kSizeBytes = 21, kHeadBytes = 1024;

std::string JsonOf(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AddParameter(const inference::InferParameter& parameter, std::string* text) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      *text += parameter.bool_param() ? "true" : "false";
      return;
    case inference::InferParameter::kInt64Param:
      absl::StrAppend(text, parameter.int64_param());
      return;
    case inference::InferParameter::kUint64Param:
      absl::StrAppend(text, parameter.uint64_param());
      return;
    case inference::InferParameter::kDoubleParam:
      *text += Json(parameter.double_param()).dump();
      return;
    case inference::InferParameter::kStringParam:
      *text += JsonOf(parameter.string_param());
      return;
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      *text += "null";
      return;
  }
}

// Adds `"name":value` pairs, with commas between them.
void AddParameters(const google::protobuf::Map<std::string, inference::InferParameter>& parameters,
                   std::string* text) {
  bool first = true;
  for (const auto& [name, value] : parameters) {
    absl::StrAppend(text, first ? "" : ",", JsonOf(name), ":");
    AddParameter(value, text);
    first = false;
  }
}

void AddOutput(const ModelInferResponse::InferOutputTensor& output, const std::string& raw,
               bool binary, std::string* text) {
  absl::StrAppend(text, R"({"name":)", JsonOf(output.name()), R"(,"datatype":")", output.datatype(),
                  R"(","shape":[)");
  for (int i = 0; i < output.shape_size(); ++i) {
    absl::StrAppend(text, i > 0 ? "," : "", output.shape(i));
  }
  *text += "]";
  if (IsShared(output)) {
    *text += "}";  // Triton's C++ client expects binary_data_size among any parameters
    return;
  }
  if (binary || !output.parameters().empty()) {
    *text += R"(,"parameters":{)";
    if (binary) {
      absl::StrAppend(text, R"("binary_data_size":)", raw.size(),
                      output.parameters().empty() ? "" : ",");
    }
    AddParameters(output.parameters(), text);
    *text += "}";
  }
  if (!binary) {
    *text += R"(,"data":)";
    WriteElements(*FindDatatype(output.datatype()), raw, text);
  }
  *text += "}";
}

int64_t ElementsOf(const ModelInferResponse::InferOutputTensor& output) {
  int64_t elements = 1;  // its bytes fit a reply
  for (const int64_t size : output.shape()) elements *= size;
  return elements;
}

}  // namespace

HttpHeaders RestAnswer::headers() const {
  if (!binary) return {};
  return {{kJsonLengthHeader, absl::StrCat(json_bytes)}};
}

bool IsShared(const ModelInferResponse::InferOutputTensor& output) {
  return output.parameters().contains("shared_memory_region");
}

absl::Status CheckForms(const ModelInferResponse& reply, const RestRequest& request) {
  for (const auto& output : reply.outputs()) {
    if (IsShared(output) || request.WantsBytes(output.name()) ||
        HasJsonForm(*FindDatatype(output.datatype()))) {
      continue;
    }
    return Invalid("output ", Quoted(output.name()), ": sending ", output.datatype(),
                   " as JSON is not supported; ask for binary_data");
  }
  return absl::OkStatus();
}

int64_t MostJsonBytes(const ModelInferResponse& reply, const RestRequest& request) {
  int64_t bytes = kHeadBytes + 6 * static_cast<int64_t>(request.message.id().size());
  for (const auto& output : reply.outputs()) {
    bytes += kTensorBytes + 6 * static_cast<int64_t>(output.name().size()) +
             kSizeBytes * output.shape_size();
    for (const auto& [name, value] : output.parameters()) {
      bytes += kTensorBytes + 6 * static_cast<int64_t>(name.size() + value.string_param().size());
    }
    if (IsShared(output) || request.WantsBytes(output.name())) continue;
    bytes += MostElementBytes(*FindDatatype(output.datatype()), ElementsOf(output));
  }
  return bytes;
}

int64_t BinaryBytes(const ModelInferResponse& reply, const RestRequest& request) {
  int64_t bytes = 0;
  for (const auto& output : reply.outputs()) {
    if (IsShared(output) || !request.WantsBytes(output.name())) continue;
    bytes += ElementsOf(output) * DTypeBytes(FindDatatype(output.datatype())->dtype);
  }
  return bytes;
}

RestAnswer WriteInferAnswer(const ModelInferResponse& reply, const RestRequest& request) {
  RestAnswer answer;
  std::string& text = answer.body;
  absl::StrAppend(&text, R"({"model_name":)", JsonOf(reply.model_name()), R"(,"model_version":)",
                  JsonOf(reply.model_version()));
  if (!reply.id().empty()) absl::StrAppend(&text, R"(,"id":)", JsonOf(reply.id()));
  text += R"(,"parameters":{)";
  AddParameters(reply.parameters(), &text);
  text += R"(},"outputs":[)";
  size_t bytes = 0;
  for (int i = 0; i < reply.outputs_size(); ++i) {
    if (i > 0) text += ",";
    const std::string& raw = reply.raw_output_contents(i);
    const bool binary = request.WantsBytes(reply.outputs(i).name()) && !IsShared(reply.outputs(i));
    AddOutput(reply.outputs(i), raw, binary, &text);
    answer.binary = answer.binary || binary;
    if (binary) bytes += raw.size();
  }
  text += "]}";
  answer.json_bytes = text.size();
  text.reserve(text.size() + bytes);
  for (int i = 0; i < reply.outputs_size(); ++i) {
    // Contents in shared memory are empty here.
    if (request.WantsBytes(reply.outputs(i).name())) text += reply.raw_output_contents(i);
  }
  return answer;
}

}  // namespace athanor
