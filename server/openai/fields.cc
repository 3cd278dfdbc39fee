#include "server/openai/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/request_limits.h"
#include "server/generate/sample/sampling.h"
#include "server/generate/sample/stop_watcher.h"

namespace athanor {
namespace {

constexpr int64_t kMostInt = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();
using Path = absl::string_view;

absl::Status ReadNumber(Path path, const Json& value, float* number) {
  if (!value.is_number()) return WrongType(path, value, "a number");
  const auto read = value.get<double>();
  // A cast of more would have no defined result.
  if (std::abs(read) > std::numeric_limits<float>::max()) {
    return Invalid(std::string(path), " is ", read, "; it is beyond all that is of use");
  }
  *number = static_cast<float>(read);
  return absl::OkStatus();
}

// Refuses a list that is too long ahead of what reading it takes.
absl::Status CheckSize(Path path, const Json& list, absl::string_view of, int64_t most) {
  if (static_cast<int64_t>(list.size()) <= most) return absl::OkStatus();
  return Invalid(std::string(path), " has ", list.size(), " ", std::string(of), "; it may have ",
                 most);
}

// Each of these reads a number into a field of v1::Sampling.
template <void (v1::Sampling::*set)(float)>
absl::Status SetNumber(Path path, Json& value, FieldValues* values) {
  float number = 0;
  RETURN_IF_ERROR(ReadNumber(path, value, &number));
  (values->settings.mutable_sampling()->*set)(number);
  return absl::OkStatus();
}

template <bool OpenAiRequest::* flag>
absl::Status SetFlag(Path path, Json& value, FieldValues* values) {
  return ReadBool(path, value, &(values->request.*flag));
}

// Reads an integer whose range Generation checks.
template <void (v1::GenerateRequest::*set)(int64_t)>
absl::Status SetInt(Path path, Json& value, FieldValues* values) {
  int64_t number = 0;
  RETURN_IF_ERROR(ReadInt(path, value, -kMostInt, kMostInt, &number));
  (values->settings.*set)(number);
  return absl::OkStatus();
}

absl::Status Ignore(Path, Json&, FieldValues*) { return absl::OkStatus(); }

// Refuses a field by its name: what it asks for is not there.
absl::Status Refuse(Path path, Json&, FieldValues*) {
  return absl::UnimplementedError(absl::StrCat(path, " is not supported; leave it out"));
}

absl::Status RefuseUnlessEmpty(Path path, Json& value, FieldValues* values) {
  return value.empty() || value == "" ? absl::OkStatus() : Refuse(path, value, values);
}

// Accepts the values that change nothing.
template <const char* const* first, const char* const* second>
absl::Status RefuseUnless(Path path, Json& value, FieldValues*) {
  if (value == *first || value == *second) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(path, " is not supported, but for \"", *first,
                                               "\", which changes nothing; leave it out"));
}
constexpr const char* kNone = "none";
constexpr const char* kAuto = "auto";
constexpr const char* kMedium = "medium";

absl::Status ReadResponseFormat(Path path, Json& value, FieldValues*) {
  if (value == Json{{"type", "text"}}) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(path, " is not supported, but for {\"type\": \"text\"}; leave it out"));
}

absl::Status ReadModalities(Path path, Json& value, FieldValues*) {
  if (value == Json::array({"text"})) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(path, " is not supported, but for [\"text\"]; leave it out"));
}

absl::Status ReadModel(Path path, Json& value, FieldValues* values) {
  return ReadText(path, value, &values->request.model);
}

absl::Status ReadPrompt(Path, Json& value, FieldValues* values) {
  values->prompt = std::move(value);
  return absl::OkStatus();
}

absl::Status ReadMessages(Path path, Json& value, FieldValues* values) {
  if (!value.is_array()) return WrongType(path, value, "a list of messages");
  values->messages = std::move(value);
  return absl::OkStatus();
}

absl::Status ReadN(Path path, Json& value, FieldValues* values) {
  return ReadInt(path, value, 1, kMostChoices, &values->request.n);
}

absl::Status ReadBestOf(Path path, Json& value, FieldValues* values) {
  int64_t best_of = 0;
  RETURN_IF_ERROR(ReadInt(path, value, 1, kMostChoices, &best_of));
  values->best_of = best_of;
  return absl::OkStatus();
}

absl::Status ReadMaxCompletionTokens(Path path, Json& value, FieldValues* values) {
  int64_t most = 0;
  RETURN_IF_ERROR(ReadInt(path, value, 1, kMostInt, &most));
  values->max_completion_tokens = most;
  return absl::OkStatus();
}

absl::Status ReadStreamOptions(Path path, Json& value, FieldValues* values) {
  if (!value.is_object()) return WrongType(path, value, "an object");
  values->has_stream_options = true;
  for (auto& [key, option] : value.items()) {
    const std::string inner = absl::StrCat(path, ".", key);
    if (key == "include_usage") {
      if (option.is_null()) continue;
      RETURN_IF_ERROR(ReadBool(inner, option, &values->request.include_usage));
    } else if (key != "include_obfuscation") {
      return UnknownField(inner);
    }
  }
  return absl::OkStatus();
}

// Reads a number for completions, for chats a flag beside which `top_logprobs` is the number.
absl::Status ReadLogprobs(Path path, Json& value, FieldValues* values) {
  if (values->request.endpoint == Endpoint::kChats) {
    return ReadBool(path, value, &values->request.logprobs);
  }
  int64_t number = 0;
  RETURN_IF_ERROR(ReadInt(path, value, 0, Sampling::kMostLogprobs, &number));
  values->request.logprobs = true;
  values->settings.mutable_sampling()->set_logprobs(static_cast<int32_t>(number));
  return absl::OkStatus();
}

absl::Status ReadTopLogprobs(Path path, Json& value, FieldValues* values) {
  int64_t number = 0;
  RETURN_IF_ERROR(ReadInt(path, value, 0, Sampling::kMostLogprobs, &number));
  values->top_logprobs = number;
  return absl::OkStatus();
}

absl::Status ReadStop(Path path, Json& value, FieldValues* values) {
  if (value.is_string()) {
    values->settings.add_stop(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongType(path, value, "a text or a list of texts");
  RETURN_IF_ERROR(CheckSize(path, value, "texts", StopWatcher::kMostStops));
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_ERROR(
        ReadText(absl::StrCat(path, "[", i, "]"), value[i], values->settings.add_stop()));
  }
  return absl::OkStatus();
}

absl::Status ReadStopTokens(Path path, Json& value, FieldValues* values) {
  if (!value.is_array()) return WrongType(path, value, "a list of tokens");
  RETURN_IF_ERROR(CheckSize(path, value, "tokens", kMostStopTokens));
  for (size_t i = 0; i < value.size(); ++i) {
    int64_t token = 0;
    RETURN_IF_ERROR(ReadInt(absl::StrCat(path, "[", i, "]"), value[i], 0, kMostInt32, &token));
    values->settings.add_stop_tokens(static_cast<int32_t>(token));
  }
  return absl::OkStatus();
}

absl::Status ReadSeed(Path path, Json& value, FieldValues* values) {
  if (!value.is_number_integer()) return WrongType(path, value, "an integer");
  const uint64_t seed = value.is_number_unsigned() ? value.get<uint64_t>()
                                                   : static_cast<uint64_t>(value.get<int64_t>());
  values->settings.mutable_sampling()->set_seed(seed);
  return absl::OkStatus();
}

absl::Status ReadTopK(Path path, Json& value, FieldValues* values) {
  int64_t top_k = 0;
  RETURN_IF_ERROR(ReadInt(path, value, -1, kMostInt32, &top_k));
  values->settings.mutable_sampling()->set_top_k(std::max<int64_t>(top_k, 0));  // -1: all, as 0
  return absl::OkStatus();
}

absl::Status ReadLogitBias(Path path, Json& value, FieldValues* values) {
  if (!value.is_object()) return WrongType(path, value, "an object of numbers by token");
  RETURN_IF_ERROR(CheckSize(path, value, "tokens", Sampling::kMostBias));
  auto& bias = *values->settings.mutable_sampling()->mutable_bias();
  for (const auto& [key, added] : value.items()) {
    int32_t token = 0;
    // SimpleAtoi takes signs and spaces too.
    if (key.find_first_not_of("0123456789") != std::string::npos ||
        !absl::SimpleAtoi(key, &token)) {
      return Invalid(std::string(path), " names ", Quoted(key), ", which is no token's number");
    }
    if (bias.contains(token)) return Invalid(std::string(path), " names token ", token, " twice");
    RETURN_IF_ERROR(ReadNumber(absl::StrCat(path, " of token ", token), added, &bias[token]));
  }
  return absl::OkStatus();
}

absl::Status ReadIgnoreEos(Path path, Json& value, FieldValues* values) {
  bool ignore = false;
  RETURN_IF_ERROR(ReadBool(path, value, &ignore));
  values->settings.set_ignore_eos(ignore);
  return absl::OkStatus();
}

absl::Status ReadVariables(Path path, Json& value, FieldValues* values) {
  if (!value.is_object()) return WrongType(path, value, "an object");
  values->template_variables = std::move(value);
  return absl::OkStatus();
}

absl::Status ReadContinues(Path path, Json& value, FieldValues* values) {
  return ReadBool(path, value, &values->continues_last);
}

absl::Status ReadCacheSalt(Path path, Json& value, FieldValues* values) {
  std::string* salt = values->settings.mutable_cache_salt();
  RETURN_IF_ERROR(ReadText(path, value, salt));
  if (static_cast<int64_t>(salt->size()) <= kMostSaltBytes) return absl::OkStatus();
  return Invalid(std::string(path), " has ", salt->size(), " bytes; it may have ", kMostSaltBytes);
}

absl::Status ReadInput(Path, Json& value, FieldValues* values) {
  values->input = std::move(value);
  return absl::OkStatus();
}

absl::Status ReadEncodingFormat(Path path, Json& value, FieldValues* values) {
  if (value != "float" && value != "base64") {
    return WrongType(path, value, "\"float\" or \"base64\"");
  }
  values->base64 = value == "base64";
  return absl::OkStatus();
}

using Request = v1::GenerateRequest;
using Numbers = v1::Sampling;

constexpr Field kFields[] = {
    // name, of completions, of chats, reader, of embeddings
    {"model", true, true, ReadModel, true},
    {"prompt", true, false, ReadPrompt},
    {"messages", false, true, ReadMessages},
    {"max_tokens", true, true, SetInt<&Request::set_max_tokens>},
    {"max_completion_tokens", false, true, ReadMaxCompletionTokens},
    {"n", true, true, ReadN},
    {"stream", true, true, SetFlag<&OpenAiRequest::stream>},
    {"stream_options", true, true, ReadStreamOptions},
    {"logprobs", true, true, ReadLogprobs},
    {"top_logprobs", false, true, ReadTopLogprobs},
    {"stop", true, true, ReadStop},
    {"seed", true, true, ReadSeed},
    {"temperature", true, true, SetNumber<&Numbers::set_temperature>},
    {"top_p", true, true, SetNumber<&Numbers::set_top_p>},
    {"presence_penalty", true, true, SetNumber<&Numbers::set_presence_penalty>},
    {"frequency_penalty", true, true, SetNumber<&Numbers::set_frequency_penalty>},
    {"logit_bias", true, true, ReadLogitBias},
    {"echo", true, false, SetFlag<&OpenAiRequest::echo>},
    {"input", false, false, ReadInput, true},
    {"encoding_format", false, false, ReadEncodingFormat, true},
    // As vLLM has them.
    {"top_k", true, true, ReadTopK},
    {"min_p", true, true, SetNumber<&Numbers::set_min_p>},
    {"repetition_penalty", true, true, SetNumber<&Numbers::set_repetition_penalty>},
    {"min_tokens", true, true, SetInt<&Request::set_min_tokens>},
    {"ignore_eos", true, true, ReadIgnoreEos},
    {"stop_token_ids", true, true, ReadStopTokens},
    {"chat_template_kwargs", false, true, ReadVariables},
    {"continue_final_message", false, true, ReadContinues},
    {"priority", true, true, SetInt<&Request::set_priority>},
    {"cache_salt", true, true, ReadCacheSalt},
    // Say nothing about what is generated.
    {"user", true, true, Ignore, true},
    {"safety_identifier", true, true, Ignore},
    {"metadata", true, true, Ignore},
    {"store", true, true, Ignore},
    {"service_tier", true, true, Ignore},
    {"prompt_cache_key", true, true, Ignore},
    {"prompt_cache_retention", true, true, Ignore},
    {"prompt_cache_options", true, true, Ignore},
    {"parallel_tool_calls", false, true, Ignore},
    // Accepted where they change nothing.
    {"tools", false, true, RefuseUnlessEmpty},
    {"tool_choice", false, true, RefuseUnless<&kNone, &kAuto>},
    {"functions", false, true, RefuseUnlessEmpty},
    {"function_call", false, true, RefuseUnless<&kNone, &kAuto>},
    {"response_format", false, true, ReadResponseFormat},
    {"modalities", false, true, ReadModalities},
    {"best_of", true, false, ReadBestOf},
    {"suffix", true, false, RefuseUnlessEmpty},
    {"audio", false, true, Refuse},
    {"prediction", false, true, Refuse},
    {"reasoning_effort", false, true, RefuseUnless<&kNone, &kNone>},
    {"verbosity", false, true, RefuseUnless<&kMedium, &kMedium>},
    {"web_search_options", false, true, Refuse},
    {"moderation", true, true, Refuse},
    {"dimensions", false, false, Refuse, true},
};

}  // namespace

absl::Span<const Field> Fields() { return kFields; }

const Field* FindField(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const Field& field) { return field.name == name; });
  return found == std::end(kFields) ? nullptr : found;
}

absl::Status ReadFields(Endpoint endpoint, Json& body, FieldValues* values) {
  values->request.endpoint = endpoint;
  if (!body.is_object()) return WrongType("the body", body, "an object");
  for (auto& [name, value] : body.items()) {
    const Field* field = FindField(name);
    if (field == nullptr || !field->Of(endpoint)) return UnknownField(name);
    if (value.is_null()) continue;  // as if it were not there
    RETURN_IF_ERROR(field->read(field->name, value, values));
  }
  if (!values->request.model.empty()) return absl::OkStatus();
  return Invalid("model is missing; set it to the name of a model that GET /v1/models lists");
}

absl::Status WrongType(absl::string_view path, const Json& value, absl::string_view wanted) {
  std::string is = value.type_name();
  if (value.is_string()) {
    is = Quoted(value.get_ref<const std::string&>());
  } else if (value.is_primitive()) {
    is = value.dump();
  } else {
    is = value.is_array() ? "a list" : "an object";
  }
  return Invalid(std::string(path), " is ", is, "; it has to be ", std::string(wanted));
}

absl::Status UnknownField(absl::string_view path) {
  return Invalid("Unrecognized request argument supplied: ", std::string(path));
}

absl::Status ReadText(absl::string_view path, Json& value, std::string* text) {
  if (!value.is_string()) return WrongType(path, value, "a text");
  *text = std::move(value.get_ref<std::string&>());
  return absl::OkStatus();
}

absl::Status ReadBool(absl::string_view path, const Json& value, bool* flag) {
  if (!value.is_boolean()) return WrongType(path, value, "true or false");
  *flag = value.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadInt(absl::string_view path, const Json& value, int64_t low, int64_t high,
                     int64_t* number) {
  if (!value.is_number_integer()) return WrongType(path, value, "an integer");
  const bool huge =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMostInt);
  *number = huge ? kMostInt : value.get<int64_t>();
  if (!huge && *number >= low && *number <= high) return absl::OkStatus();
  return Invalid(std::string(path), " is ", value.dump(), "; it has to be from ", low, " to ",
                 high);
}

}  // namespace athanor
