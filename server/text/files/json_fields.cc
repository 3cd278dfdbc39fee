#include "server/text/files/json_fields.h"

#include <utility>

#include "compiler/ir/value/message.h"
namespace athanor {
namespace {

constexpr size_t kMaxBytes = size_t{128} << 20;
constexpr int kMaxDepth = 64;

const nlohmann::json& NullJson() {
  static const nlohmann::json kNull;
  return kNull;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view name) {
  if (text.size() > kMaxBytes) {
    return absl::ResourceExhaustedError(
        Cat(name, " has ", text.size(), " bytes; at most ", kMaxBytes));
  }
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {  // ahead of parsing, which keeps what it reads
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (text[i] == '[' || text[i] == '{') {
      if (++depth > kMaxDepth) {
        return absl::ResourceExhaustedError(Cat(name, " is nested deeper than ", kMaxDepth));
      }
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(Cat(name, " is no JSON"));
  return json;
}

JsonFields::JsonFields(const nlohmann::json& json, std::string path)
    : json_(json), path_(std::move(path)) {
  if (!json.is_object()) Fail(absl::InvalidArgumentError(Cat(path_, " is no object")));
}

bool JsonFields::Has(std::string_view name) {
  Ignore(name);
  if (!json_.is_object()) return false;
  const auto found = json_.find(name);
  return found != json_.end() && !found->is_null();
}

const nlohmann::json& JsonFields::Any(std::string_view name) {
  if (Has(name)) return *json_.find(name);
  Fail(absl::InvalidArgumentError(Cat(path_, " lacks ", Quoted(name))));
  return NullJson();
}

std::string JsonFields::Text(std::string_view name) {
  const nlohmann::json& value = Any(name);
  if (value.is_string()) return value.get<std::string>();
  Fail(absl::InvalidArgumentError(Cat(path_, ".", name, " is no string")));
  return "";
}

bool JsonFields::Bool(std::string_view name) {
  const nlohmann::json& value = Any(name);
  if (value.is_boolean()) return value.get<bool>();
  Fail(absl::InvalidArgumentError(Cat(path_, ".", name, " is neither true nor false")));
  return false;
}

int64_t JsonFields::Int(std::string_view name) {
  const nlohmann::json& value = Any(name);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (fits) return value.get<int64_t>();
  Fail(absl::InvalidArgumentError(Cat(path_, ".", name, " is no integer")));
  return 0;
}

int JsonFields::Choice(std::string_view name, std::initializer_list<std::string_view> texts) {
  const std::string text = Text(name);
  int index = 0;
  for (std::string_view known : texts) {
    if (text == known) return index;
    ++index;
  }
  if (ok()) Unsupported(Cat(name, " ", Quoted(text)));
  return 0;
}

void JsonFields::Unsupported(std::string_view what) {
  Fail(absl::UnimplementedError(Cat(path_, ": ", what, " is not supported")));
}

absl::Status JsonFields::Done() {
  for (const auto& [name, value] : json_.items()) {
    if (ok() && json_.is_object() && !asked_.contains(name)) {
      Unsupported(Cat("the field ", Quoted(name)));
    }
  }
  return status_;
}

}  // namespace athanor
