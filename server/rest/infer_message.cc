#include "server/rest/infer_message.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/rest/tensor_json.h"

namespace athanor {
namespace {

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

// Bytes that a number's element takes at most, beside the two of its text, and a tensor's message.
constexpr int64_t kElementBytes = 8, kTensorBytes = 512;
constexpr char kBinaryBytes[] = "binary_data_size";
constexpr char kBinary[] = "binary_data";
constexpr char kBinaryOutput[] = "binary_data_output";
constexpr char kSharedRegion[] = "shared_memory_region";

absl::Status WrongType(absl::string_view path, const Json& value, absl::string_view wanted) {
  std::string is = value.is_array() ? "a list" : value.is_object() ? "an object" : value.dump();
  if (value.is_string()) is = Quoted(value.get_ref<const std::string&>());
  return Invalid(std::string(path), " is ", is, "; it has to be ", std::string(wanted));
}

absl::Status ReadText(absl::string_view path, Json& value, std::string* text) {
  if (!value.is_string()) return WrongType(path, value, "a text");
  *text = std::move(value.get_ref<std::string&>());
  return absl::OkStatus();
}

absl::Status ReadFlag(absl::string_view path, const Json& value, bool* flag) {
  if (!value.is_boolean()) return WrongType(path, value, "true or false");
  *flag = value.get<bool>();
  return absl::OkStatus();
}

// Reads a parameter that is left for RequestBinder to know.
absl::Status ReadParameter(absl::string_view path, Json& value,
                           inference::InferParameter* parameter) {
  if (value.is_boolean()) {
    parameter->set_bool_param(value.get<bool>());
  } else if (value.is_number_integer()) {
    const bool huge = value.is_number_unsigned() &&
                      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (huge) {
      parameter->set_uint64_param(value.get<uint64_t>());
    } else {
      parameter->set_int64_param(value.get<int64_t>());
    }
  } else if (value.is_number()) {
    parameter->set_double_param(value.get<double>());
  } else {
    if (!value.is_string()) return WrongType(path, value, "a text, a number, true or false");
    parameter->set_string_param(std::move(value.get_ref<std::string&>()));
  }
  return absl::OkStatus();
}

absl::Status NoSuchField(absl::string_view path, absl::string_view name, absl::string_view fields) {
  return Invalid(std::string(path), " has the field ", Quoted({name.data(), name.size()}),
                 ", which is unknown; the fields are ", std::string(fields));
}

// Bytes of a body behind its JSON, which are a tensor's.
struct BinaryTensor {
  absl::string_view bytes;
  std::string* raw;  // where they belong
};

// Reads one body, but for the bytes of its binary tensors.
class Reader {
 public:
  Reader(absl::string_view binary, RestRequest* read, std::vector<BinaryTensor>* tensors)
      : binary_(binary), read_(*read), message_(read->message), tensors_(*tensors) {}

  absl::Status Read(Json& body) {
    if (!body.is_object()) return WrongType("the request", body, "an object");
    for (auto& [name, value] : body.items()) {
      if (name == "id") {
        RETURN_IF_ERROR(ReadText("id", value, message_.mutable_id()));
      } else if (name == "parameters") {
        RETURN_IF_ERROR(ReadParameters(value));
      } else if (name == "inputs") {
        RETURN_IF_ERROR(ReadInputs(value));
      } else if (name == "outputs") {
        RETURN_IF_ERROR(ReadOutputs(value));
      } else {
        return NoSuchField("the request", name, "id, parameters, inputs and outputs");
      }
    }
    if (!body.contains("inputs")) return Invalid("inputs is missing; it has to be a list");
    if (binary_.empty()) return absl::OkStatus();
    return Invalid("the body has ", binary_.size(),
                   " bytes behind the tensors that binary_data_size names");
  }

 private:
  absl::Status ReadParameters(Json& parameters) {
    if (!parameters.is_object()) return WrongType("parameters", parameters, "an object");
    for (auto& [name, value] : parameters.items()) {
      const std::string path = absl::StrCat("parameters.", name);
      if (name == kBinaryOutput) {
        RETURN_IF_ERROR(ReadFlag(path, value, &read_.binary));
        continue;
      }
      RETURN_IF_ERROR(ReadParameter(path, value, &(*message_.mutable_parameters())[name]));
    }
    return absl::OkStatus();
  }

  absl::Status ReadInputs(Json& inputs) {
    if (!inputs.is_array()) return WrongType("inputs", inputs, "a list");
    for (size_t i = 0; i < inputs.size(); ++i) {
      RETURN_IF_ERROR(ReadInput(absl::StrCat("inputs[", i, "]"), inputs[i]));
    }
    return absl::OkStatus();
  }

  absl::Status ReadInput(const std::string& path, Json& input) {
    if (!input.is_object()) return WrongType(path, input, "an object");
    auto* tensor = message_.add_inputs();
    const Json* data = nullptr;
    std::optional<int64_t> bytes;
    for (auto& [name, value] : input.items()) {
      const std::string inner = absl::StrCat(path, ".", name);
      if (name == "name") {
        RETURN_IF_ERROR(ReadText(inner, value, tensor->mutable_name()));
      } else if (name == "datatype") {
        RETURN_IF_ERROR(ReadText(inner, value, tensor->mutable_datatype()));
      } else if (name == "shape") {
        RETURN_IF_ERROR(ReadShape(inner, value, tensor));
      } else if (name == "data") {
        data = &value;
      } else if (name == "parameters") {
        RETURN_IF_ERROR(ReadInputParameters(inner, value, tensor->mutable_parameters(), &bytes));
      } else {
        return NoSuchField(path, name, "name, shape, datatype, parameters and data");
      }
    }
    if (tensor->name().empty()) return Invalid(path, ".name is missing");
    if (!input.contains("datatype")) return Invalid(path, ".datatype is missing");
    if (!input.contains("shape")) return Invalid(path, ".shape is missing");
    if (tensor->parameters().contains(kSharedRegion)) {
      if (data == nullptr && !bytes.has_value()) return absl::OkStatus();
      return Invalid("input ", Quoted(tensor->name()), ": it lies in shared memory, and has ",
                     data != nullptr ? "data" : kBinaryBytes,
                     " too; send it in one of the two ways");
    }
    std::string* raw = message_.add_raw_input_contents();
    return Prefixed(Cat("input ", Quoted(tensor->name()), ": "), Fill(*tensor, data, bytes, raw));
  }

  static absl::Status ReadShape(const std::string& path, const Json& shape,
                                inference::ModelInferRequest::InferInputTensor* tensor) {
    if (!shape.is_array()) return WrongType(path, shape, "a list of sizes");
    for (size_t i = 0; i < shape.size(); ++i) {
      const Json& size = shape[i];
      if (!size.is_number_unsigned() ||
          size.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return WrongType(absl::StrCat(path, "[", i, "]"), size, "a size, 0 or more");
      }
      tensor->add_shape(size.get<int64_t>());
    }
    return absl::OkStatus();
  }

  static absl::Status ReadInputParameters(const std::string& path, Json& parameters,
                                          Parameters* read, std::optional<int64_t>* bytes) {
    if (!parameters.is_object()) return WrongType(path, parameters, "an object");
    for (auto& [name, value] : parameters.items()) {
      const std::string inner = absl::StrCat(path, ".", name);
      if (name == kBinaryBytes) {
        if (!value.is_number_unsigned()) return WrongType(inner, value, "a number of bytes");
        *bytes = static_cast<int64_t>(std::min<uint64_t>(
            value.get<uint64_t>(), uint64_t{std::numeric_limits<int64_t>::max()}));
      } else {
        RETURN_IF_ERROR(ReadParameter(inner, value, &(*read)[name]));
      }
    }
    return absl::OkStatus();
  }

  // Fills a tensor's bytes. One whose datatype is unknown is left for RequestBinder to refuse.
  absl::Status Fill(const inference::ModelInferRequest::InferInputTensor& tensor, const Json* data,
                    std::optional<int64_t> bytes, std::string* raw) {
    if (bytes.has_value()) {
      if (data != nullptr) {
        return Invalid("it has data and binary_data_size; send the tensor in one of the two ways");
      }
      if (*bytes > static_cast<int64_t>(binary_.size())) {
        return Invalid("binary_data_size is ", *bytes, ", and the body has ", binary_.size(),
                       " bytes left behind the JSON (", kJsonLengthHeader, ")");
      }
      tensors_.push_back({binary_.substr(0, *bytes), raw});
      binary_.remove_prefix(*bytes);
      return absl::OkStatus();
    }
    if (data == nullptr) {
      return Invalid("it has neither data nor the parameter binary_data_size");
    }
    const DatatypeRow* datatype = FindDatatype(tensor.datatype());
    if (datatype == nullptr) return absl::OkStatus();
    if (!HasJsonForm(*datatype)) {
      return Invalid("sending ", datatype->name,
                     " as JSON is not supported; use the binary data format");
    }
    int64_t elements = 1;
    for (const int64_t size : tensor.shape()) {
      if (__builtin_mul_overflow(elements, size, &elements)) {
        return Invalid("its shape has more elements than fit 64 bits");
      }
    }
    return ReadElements(*datatype, *data, elements, raw);
  }

  absl::Status ReadOutputs(Json& outputs) {
    if (!outputs.is_array()) return WrongType("outputs", outputs, "a list");
    for (size_t i = 0; i < outputs.size(); ++i) {
      RETURN_IF_ERROR(ReadOutput(absl::StrCat("outputs[", i, "]"), outputs[i]));
    }
    return absl::OkStatus();
  }

  absl::Status ReadOutput(const std::string& path, Json& output) {
    if (!output.is_object()) return WrongType(path, output, "an object");
    auto* wanted = message_.add_outputs();
    std::optional<bool> binary;
    for (auto& [name, value] : output.items()) {
      const std::string inner = absl::StrCat(path, ".", name);
      if (name == "name") {
        RETURN_IF_ERROR(ReadText(inner, value, wanted->mutable_name()));
      } else if (name == "parameters") {
        RETURN_IF_ERROR(ReadOutputParameters(inner, value, wanted->mutable_parameters(), &binary));
      } else {
        return NoSuchField(path, name, "name and parameters");
      }
    }
    if (wanted->name().empty()) return Invalid(path, ".name is missing");
    if (binary.has_value()) read_.binary_outputs[wanted->name()] = *binary;
    return absl::OkStatus();
  }

  static absl::Status ReadOutputParameters(const std::string& path, Json& parameters,
                                           Parameters* read, std::optional<bool>* binary) {
    if (!parameters.is_object()) return WrongType(path, parameters, "an object");
    for (auto& [name, value] : parameters.items()) {
      const std::string inner = absl::StrCat(path, ".", name);
      if (name == kBinary) {
        RETURN_IF_ERROR(ReadFlag(inner, value, &binary->emplace()));
      } else if (name == "classification" && value == 0) {
        continue;  // says that there is none
      } else {
        RETURN_IF_ERROR(ReadParameter(inner, value, &(*read)[name]));
      }
    }
    return absl::OkStatus();
  }

  absl::string_view binary_;  // that no tensor has taken yet
  RestRequest& read_;
  inference::ModelInferRequest& message_;
  std::vector<BinaryTensor>& tensors_;
};

// Gives the tensors their bytes, and takes the body's memory for those of the largest if they are
// half of it.
void TakeBinary(std::vector<BinaryTensor> tensors, std::string* body) {
  const auto less = [](const BinaryTensor& a, const BinaryTensor& b) {
    return a.bytes.size() < b.bytes.size();
  };
  const auto largest = std::max_element(tensors.begin(), tensors.end(), less);
  std::optional<BinaryTensor> whole;
  if (largest != tensors.end() && 2 * largest->bytes.size() >= body->capacity()) {
    whole = *largest;
    tensors.erase(largest);
  }
  for (const BinaryTensor& tensor : tensors) {
    tensor.raw->assign(tensor.bytes.data(), tensor.bytes.size());
  }
  if (!whole.has_value()) return;
  const size_t begin = whole->bytes.data() - body->data();
  body->resize(begin + whole->bytes.size());
  body->erase(0, begin);
  *whole->raw = std::move(*body);
}

}  // namespace

absl::StatusOr<size_t> JsonBytesOf(const HttpRequest& http) {
  const std::string* header = http.Header(kJsonLengthHeader);
  if (header == nullptr) return http.body.size();
  uint64_t bytes = 0;
  const absl::string_view text = absl::StripAsciiWhitespace(*header);
  if (text.empty() || text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &bytes) || bytes > http.body.size()) {
    return Invalid("the header ", kJsonLengthHeader, " is ", Quoted(*header),
                   "; it has to be the bytes of JSON, of the body's ", http.body.size());
  }
  if (bytes > 0) return bytes;
  return Unimplemented("the header ", kJsonLengthHeader,
                       " is 0: bodies without JSON are not supported; name the inputs in JSON");
}

absl::StatusOr<RestRequest> ReadInferRequest(HttpRequest* http, ServerLedger* ledger) {
  ASSIGN_OR_RETURN(const size_t json_bytes, JsonBytesOf(*http));
  const absl::string_view body = http->body;
  ASSIGN_OR_RETURN(JsonBody json, ParseJsonBody(body.substr(0, json_bytes), ledger));
  RestRequest request;
  // An element takes two bytes of JSON at least.
  const auto bytes = static_cast<int64_t>(body.size() - json_bytes) +
                     static_cast<int64_t>(json_bytes) / 2 * kElementBytes + kTensorBytes;
  ASSIGN_OR_RETURN(request.memory, ledger->Reserve(HeldKind::kRequests, bytes, "the request"));
  std::vector<BinaryTensor> tensors;
  RETURN_IF_ERROR(Reader(body.substr(json_bytes), &request, &tensors).Read(json.value));
  TakeBinary(std::move(tensors), &http->body);
  std::string().swap(http->body);  // with its memory
  ASSIGN_OR_RETURN(
      request.memory,
      ledger->Reserve(HeldKind::kRequests, static_cast<int64_t>(request.message.SpaceUsedLong()),
                      "the request"));
  return request;
}

}  // namespace athanor
