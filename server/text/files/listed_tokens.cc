#include "server/text/files/listed_tokens.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/files/json_fields.h"

namespace athanor {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr char kConfig[] = "tokenizer_config.json", kAddedTokens[] = "added_tokens.json",
               kDecoder[] = "added_tokens_decoder";

bool IsNamed(const OrderedJson& variables, std::string_view content) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const OrderedJson& named) { return named == content; });
}

// Tokens of a vocabulary by their text.
class Known {
 public:
  explicit Known(const TokenizerData& data) {
    for (size_t id = 0; id < data.pieces.size(); ++id) {
      ids_.try_emplace(data.pieces[id], static_cast<int32_t>(id));
    }
    for (const AddedToken& token : data.added) added_[token.content] = token.id;
  }
  bool IsAdded(const std::string& content) const { return added_.contains(content); }
  // Returns the id of a token; -1: there is none.
  int32_t IdOf(const std::string& content) const {
    if (const auto added = added_.find(content); added != added_.end()) return added->second;
    const auto id = ids_.find(content);
    return id == ids_.end() || content.empty() ? -1 : id->second;
  }
  // Adds a token that is not added yet.
  absl::Status Add(std::string_view file, AddedToken token, TokenizerData* data) {
    if (token.content.empty()) return Invalid(file, ": the token ", token.id, " has no text");
    const int32_t id = IdOf(token.content);
    if (id >= 0 && id != token.id) {
      return Invalid(file, ": ", Quoted(token.content), " has the id ", token.id,
                     ", and in the vocabulary ", id);
    }
    added_[token.content] = token.id;
    data->added.push_back(std::move(token));
    return absl::OkStatus();
  }

 private:
  absl::flat_hash_map<std::string, int32_t> ids_, added_;
};

// Reads an id that is written as a number or as a text.
absl::StatusOr<int32_t> IdOf(std::string_view file, std::string_view content, int64_t id) {
  if (id >= 0 && id <= std::numeric_limits<int32_t>::max()) return static_cast<int32_t>(id);
  return Invalid(file, ": the id of ", Quoted(content), " is ", id, "; right is 0 or more");
}

absl::StatusOr<AddedToken> ReadDecoderToken(const std::string& key, const Json& json) {
  const std::string path = Cat(kConfig, ": ", kDecoder, "[", Quoted(key), "]");
  JsonFields fields(json, path);
  AddedToken token;
  token.content = fields.Text("content");
  token.single_word = fields.Bool("single_word", false);
  token.lstrip = fields.Bool("lstrip", false);
  token.rstrip = fields.Bool("rstrip", false);
  token.special = fields.Bool("special", false);
  token.normalized = fields.Bool("normalized", !token.special);
  fields.Ignore("__type");
  RETURN_IF_ERROR(fields.Done());
  int64_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size()) {
    return Invalid(path, ": the key is no id");
  }
  ASSIGN_OR_RETURN(token.id, IdOf(kConfig, token.content, id));
  return token;
}

}  // namespace

absl::Status AddListedTokens(const Json& config, const Json& added, const OrderedJson& variables,
                             TokenizerData* data) {
  Known known(*data);
  if (const auto listed = config.find(kDecoder); listed != config.end()) {
    if (!listed->is_object()) return Invalid(kConfig, ": ", kDecoder, " is no object");
    for (const auto& [key, json] : listed->items()) {
      ASSIGN_OR_RETURN(AddedToken token, ReadDecoderToken(key, json));
      token.special = token.special || IsNamed(variables, token.content);
      if (known.IsAdded(token.content)) continue;
      RETURN_IF_ERROR(known.Add(kConfig, std::move(token), data));
    }
  } else {
    for (const auto& [content, id] : added.items()) {
      if (!id.is_number_integer()) {
        return Invalid(kAddedTokens, ": the id of ", Quoted(content), " is no integer");
      }
      if (known.IsAdded(content)) continue;
      ASSIGN_OR_RETURN(const int32_t at, IdOf(kAddedTokens, content, id.get<int64_t>()));
      const bool special = IsNamed(variables, content);
      RETURN_IF_ERROR(known.Add(
          kAddedTokens, {.content = content, .id = at, .special = special, .normalized = !special},
          data));
    }
  }
  for (const OrderedJson& named : variables) {
    const auto content = named.get<std::string>();
    const int32_t id = known.IdOf(content);
    if (id < 0 || known.IsAdded(content)) continue;
    RETURN_IF_ERROR(known.Add(kConfig, {.content = content, .id = id, .special = true}, data));
  }
  return absl::OkStatus();
}

void NameByDefault(const Json& config, absl::Span<const DefaultName> names,
                   const TokenizerData& data, OrderedJson* variables) {
  const Known known(data);
  for (const auto& [name, content] : names) {
    if (!config.contains(name) && known.IdOf(content) >= 0) (*variables)[name] = content;
  }
}

absl::Status SetListedEnds(const Json& config, const OrderedJson& variables, TokenizerData* data) {
  const Known known(*data);
  for (const auto& [option, name, around] :
       {std::tuple("add_bos_token", "bos_token", &data->begin),
        std::tuple("add_eos_token", "eos_token", &data->end)}) {
    const auto wanted = config.find(option);
    if (wanted == config.end() || !wanted->is_boolean()) continue;
    around->clear();
    if (!wanted->get<bool>()) continue;
    const std::string content = variables.value(name, "");
    const int32_t id = known.IdOf(content);
    if (id < 0) {
      return Invalid(kConfig, ": ", option, " wants the ", name, " ", Quoted(content),
                     ", which is not in the vocabulary");
    }
    around->push_back(id);
  }
  return absl::OkStatus();
}

}  // namespace athanor
