// The table of a request's fields: which endpoint has them, and who reads them.
#ifndef ATHANOR_SERVER_OPENAI_FIELDS_H_
#define ATHANOR_SERVER_OPENAI_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/http/json_body.h"
#include "server/openai/request.h"

namespace athanor {

// Holds what fields say, ahead of the prompts.
struct FieldValues {
  OpenAiRequest request;
  v1::GenerateRequest settings;  // all but the prompt
  Json prompt, messages, template_variables, input;
  bool base64 = false;
  bool continues_last = false;
  std::optional<int64_t> top_logprobs, best_of, max_completion_tokens;
  bool has_stream_options = false;
};

struct Field {
  absl::string_view name;
  bool completions, chats;  // the endpoints that have it, beside `embeddings`
  // Reads a value that is not null; `path` names it in errors.
  absl::Status (*read)(absl::string_view path, Json& value, FieldValues* values);
  bool embeddings = false;

  bool Of(Endpoint endpoint) const {
    return endpoint == Endpoint::kChats         ? chats
           : endpoint == Endpoint::kCompletions ? completions
                                                : embeddings;
  }
};

absl::Span<const Field> Fields();
// Returns null if no endpoint has such a field.
const Field* FindField(absl::string_view name);

// Reads all fields of a body that `endpoint` has; refuses others.
absl::Status ReadFields(Endpoint endpoint, Json& body, FieldValues* values);

// Return INVALID_ARGUMENT naming `path` if the value has another type or is out of range.
absl::Status ReadText(absl::string_view path, Json& value, std::string* text);
absl::Status ReadBool(absl::string_view path, const Json& value, bool* flag);
absl::Status ReadInt(absl::string_view path, const Json& value, int64_t low, int64_t high,
                     int64_t* number);
// Returns the error of a value that is not `wanted`: "a text".
absl::Status WrongType(absl::string_view path, const Json& value, absl::string_view wanted);
absl::Status UnknownField(absl::string_view path);

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_FIELDS_H_
