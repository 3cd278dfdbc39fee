#include "server/openai/embeddings_request.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/openai/fields.h"

namespace athanor {
namespace {

constexpr char kInput[] = "a text, a list of texts, a list of tokens, or a list of these";

absl::Status ReadTokens(const Json& list, EmbeddingInput* input) {
  if (static_cast<int64_t>(list.size()) > kMostEmbeddingTokens) {
    return Invalid(input->name, " has ", list.size(), " tokens; a request may have ",
                   kMostEmbeddingTokens);
  }
  input->tokens.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    int64_t token = 0;
    RETURN_IF_ERROR(ReadInt(absl::StrCat(input->name, "[", i, "]"), list[i], 0,
                            std::numeric_limits<int32_t>::max(), &token));
    input->tokens.push_back(static_cast<int32_t>(token));
  }
  return absl::OkStatus();
}

// Reads a text or a list of tokens.
absl::Status ReadOne(std::string name, Json& value, std::vector<EmbeddingInput>* inputs) {
  EmbeddingInput& input = inputs->emplace_back();
  input.name = std::move(name);
  if (value.is_array()) {
    RETURN_IF_ERROR(ReadTokens(value, &input));
  } else if (value.is_string()) {
    RETURN_IF_ERROR(ReadText(input.name, value, &input.text));
  } else {
    return WrongType(input.name, value,
                     input.name == "input" ? kInput : "a text or a list of tokens");
  }
  if (!input.text.empty() || !input.tokens.empty()) return absl::OkStatus();
  return Invalid(input.name, " is empty; an input has at least one token");
}

}  // namespace

int64_t EmbeddingsRequest::bytes() const {
  auto bytes = static_cast<int64_t>(inputs.capacity() * sizeof(EmbeddingInput));
  for (const EmbeddingInput& input : inputs) {
    bytes += static_cast<int64_t>(input.text.capacity() + input.name.capacity() +
                                  input.tokens.capacity() * sizeof(int32_t));
  }
  return bytes;
}

absl::StatusOr<EmbeddingsRequest> ReadEmbeddings(Json body) {
  FieldValues values;
  RETURN_IF_ERROR(ReadFields(Endpoint::kEmbeddings, body, &values));
  EmbeddingsRequest request{.model = std::move(values.request.model), .base64 = values.base64};
  Json& input = values.input;
  if (input.is_null()) return Invalid("input is missing; it has to be ", kInput);
  const bool many = input.is_array() && !input.empty() && !input[0].is_number();
  if (!many) {
    RETURN_IF_ERROR(ReadOne("input", input, &request.inputs));
    return request;
  }
  if (static_cast<int64_t>(input.size()) > kMostEmbeddingInputs) {
    return Invalid("input has ", input.size(), " inputs; it may have ", kMostEmbeddingInputs);
  }
  request.inputs.reserve(input.size());
  for (size_t i = 0; i < input.size(); ++i) {
    RETURN_IF_ERROR(ReadOne(absl::StrCat("input[", i, "]"), input[i], &request.inputs));
  }
  return request;
}

}  // namespace athanor
