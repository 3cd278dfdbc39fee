// Chooses among files as does `_from_pretrained` of transformers 5.23 (tokenization_utils_base.py).
#include "server/text/model_text.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_join.h"
#include "compiler/frontend/checkpoint/files/gguf.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/utf8.h"
#include "server/text/files/bert.h"
#include "server/text/files/json_fields.h"
#include "server/text/files/listed_tokens.h"
#include "server/text/files/ranks.h"
#include "server/text/files/tokenizer_json.h"
#include "server/text/files/vocabulary.h"

namespace athanor {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr char kTokenizer[] = "tokenizer.json", kSentencePiece[] = "tokenizer.model",
               kConfig[] = "tokenizer_config.json", kSpecialMap[] = "special_tokens_map.json",
               kAddedTokens[] = "added_tokens.json", kTemplate[] = "chat_template.jinja",
               kDecoder[] = "added_tokens_decoder", kTekken[] = "tekken.json",
               kRanks[] = ".tiktoken", kModel[] = "config.json", kWordList[] = "vocab.txt";

// Variables of a template, and the keys of a GGUF file that have their ids.
struct NamedToken {
  std::string_view name, gguf_key;
};
constexpr NamedToken kNamedTokens[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id"},  // as the specification spells it
    {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"},
};

// Names that LlamaTokenizer, which reads SentencePiece's files, has where its files are silent, as
// has Mistral's library; and BertTokenizer.
constexpr DefaultName kLlamaNames[] = {
    {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
constexpr DefaultName kBertNames[] = {{"unk_token", "[UNK]"},
                                      {"sep_token", "[SEP]"},
                                      {"pad_token", "[PAD]"},
                                      {"cls_token", "[CLS]"},
                                      {"mask_token", "[MASK]"}};

// Names the file in an error, unless its message begins with the name of one.
absl::Status InFile(std::string_view path, const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  if (message.starts_with(path) || message.starts_with(kConfig)) return status;
  return Prefixed(Cat(path, ": "), status);
}

const TextFile* Find(absl::Span<const TextFile> files, std::string_view path) {
  const auto* found = std::find_if(files.begin(), files.end(),
                                   [&](const TextFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : found;
}

const TextFile* FindRanks(absl::Span<const TextFile> files) {
  const auto* found = std::find_if(
      files.begin(), files.end(), [](const TextFile& file) { return file.path.ends_with(kRanks); });
  return found == files.end() ? nullptr : found;
}

// Returns the object of a file; an empty one if it is not there.
absl::StatusOr<Json> ReadObject(absl::Span<const TextFile> files, std::string_view path) {
  const TextFile* file = Find(files, path);
  if (file == nullptr) return Json::object();
  ASSIGN_OR_RETURN(Json json, ParseJson(file->bytes, path));
  if (!json.is_object()) return Invalid(path, " is no object");
  return json;
}

// Returns the content of a token that is written as a text or as an object; empty: none.
std::string ContentOf(const Json& token) {
  const Json& content = token.is_object() ? token.value("content", Json()) : token;
  return content.is_string() ? content.get<std::string>() : "";
}

// Reads the configuration with what special_tokens_map.json overrides: older checkpoints only.
absl::StatusOr<Json> ReadConfig(absl::Span<const TextFile> files) {
  ASSIGN_OR_RETURN(Json config, ReadObject(files, kConfig));
  if (config.contains(kDecoder)) return config;
  ASSIGN_OR_RETURN(const Json map, ReadObject(files, kSpecialMap));
  for (const auto& [name, token] : map.items()) config[name] = token;
  return config;
}

OrderedJson NamedTokensOf(const Json& config) {
  OrderedJson variables = OrderedJson::object();
  for (const NamedToken& named : kNamedTokens) {
    const auto found = config.find(named.name);
    if (found == config.end()) continue;
    if (std::string content = ContentOf(*found); !content.empty()) {
      variables[std::string(named.name)] = std::move(content);
    }
  }
  return variables;
}

// Adds what tokenizer_config.json or added_tokens.json lists.
absl::Status AddListed(absl::Span<const TextFile> files, const Json& config,
                       const OrderedJson& variables, TokenizerData* data) {
  ASSIGN_OR_RETURN(const Json added, ReadObject(files, kAddedTokens));
  return AddListedTokens(config, added, variables, data);
}

absl::StatusOr<TokenizerData> ReadJsonData(absl::Span<const TextFile> files, const Json& config,
                                           const OrderedJson& variables) {
  const TextFile* file = Find(files, kTokenizer);
  const TextFile* beside = Find(files, kConfig);
  ASSIGN_OR_RETURN(TokenizerData data,
                   ReadTokenizerJson(file->bytes, beside == nullptr ? "" : beside->bytes));
  RETURN_IF_ERROR(AddListed(files, config, variables, &data));
  return data;
}

// Adds what the files beside a vocabulary say of its tokens.
absl::StatusOr<TokenizerData> WithListed(absl::Span<const TextFile> files, const Json& config,
                                         const OrderedJson& variables,
                                         absl::StatusOr<TokenizerData> data) {
  RETURN_IF_ERROR(data.status());
  RETURN_IF_ERROR(AddListed(files, config, variables, &*data));
  RETURN_IF_ERROR(SetListedEnds(config, variables, &*data));
  return data;
}

absl::StatusOr<TokenizerData> ReadRanksData(absl::Span<const TextFile> files,
                                            std::string_view ranks, const Json& config,
                                            const OrderedJson& variables) {
  ASSIGN_OR_RETURN(const Json model, ReadObject(files, kModel));
  const auto type = model.find("model_type");
  const bool named = type != model.end() && type->is_string();
  const bool listed = config.contains(kDecoder) || Find(files, kAddedTokens) != nullptr;
  return WithListed(
      files, config, variables,
      ReadRanks(ranks, named ? type->get_ref<const std::string&>() : "", /*special=*/!listed));
}

absl::StatusOr<TokenizerData> ReadModelData(absl::Span<const TextFile> files, const Json& config,
                                            OrderedJson* variables) {
  const std::string_view bytes = Find(files, kSentencePiece)->bytes;
  if (IsRanks(bytes)) return ReadRanksData(files, bytes, config, *variables);
  absl::StatusOr<TokenizerData> data = ReadSentencePiece(bytes);
  if (data.ok()) NameByDefault(config, kLlamaNames, *data, variables);
  return WithListed(files, config, *variables, std::move(data));
}

absl::StatusOr<TokenizerData> ReadTekkenData(absl::Span<const TextFile> files, const Json& config,
                                             OrderedJson* variables) {
  absl::StatusOr<TokenizerData> data = ReadTekken(Find(files, kTekken)->bytes);
  if (data.ok()) NameByDefault(config, kLlamaNames, *data, variables);
  return WithListed(files, config, *variables, std::move(data));
}

// A list of pieces does not say how text becomes words: the class or the model does.
absl::Status CheckWordListClass(absl::Span<const TextFile> files, const Json& config) {
  const std::string name = ContentOf(config.value("tokenizer_class", Json()));
  if (!name.empty()) {
    if (IsBertTokenizer(name)) return absl::OkStatus();
    return Unimplemented(kWordList, " of the tokenizer_class ", Quoted(name),
                         " is not supported; supported is BertTokenizer");
  }
  ASSIGN_OR_RETURN(const Json model, ReadObject(files, kModel));
  const std::string type = ContentOf(model.value("model_type", Json()));
  if (IsBertModel(type)) return absl::OkStatus();
  return Unimplemented(kWordList, " of the model_type ", Quoted(type),
                       " is not supported without a tokenizer_class; supported is bert");
}

absl::StatusOr<TokenizerData> ReadWordListData(absl::Span<const TextFile> files, const Json& config,
                                               OrderedJson* variables) {
  RETURN_IF_ERROR(CheckWordListClass(files, config));
  ASSIGN_OR_RETURN(TokenizerData data, ReadWordList(Find(files, kWordList)->bytes, config));
  NameByDefault(config, kBertNames, data, variables);
  RETURN_IF_ERROR(AddListed(files, config, *variables, &data));
  return data;
}

absl::Status SetTokenizer(std::string_view path, absl::StatusOr<TokenizerData> data,
                          ModelText* text) {
  if (!data.ok()) return InFile(path, data.status());
  auto tokenizer = Tokenizer::Create(*std::move(data));
  if (!tokenizer.ok()) return InFile(path, tokenizer.status());
  text->tokenizer = *std::move(tokenizer);
  return absl::OkStatus();
}

// Sets a template, or why it is none.
void ParseChat(std::string_view where, std::string_view source, std::optional<ChatTemplate>* chat,
               absl::Status* no_chat) {
  if (FindBrokenUtf8(source).has_value()) {
    *no_chat = Invalid(where, " is no UTF-8");
    return;
  }
  auto parsed = ChatTemplate::Parse(absl::string_view(source.data(), source.size()));
  if (parsed.ok()) {
    *chat = *std::move(parsed);
    *no_chat = absl::OkStatus();
  } else {
    *no_chat = Prefixed(Cat(where, ": "), parsed.status());
  }
}

void SetChat(std::string_view where, std::string_view source, ModelText* text) {
  ParseChat(where, source, &text->chat, &text->no_chat);
}

// Sets those of a list of templates that are named default and tool_use.
void SetNamedChats(const std::string& where, const Json& list, ModelText* text) {
  std::vector<std::string> names;
  for (const Json& one : list.is_array() ? list : Json::array()) {
    const bool named = one.is_object() && one.value("name", Json()).is_string() &&
                       one.value("template", Json()).is_string();
    if (!named) {
      if (text->chat) return;
      text->no_chat = Invalid(where, " has an entry without the texts \"name\" and \"template\"");
      return;
    }
    names.push_back(one["name"].get<std::string>());
    const auto& source = one["template"].get_ref<const std::string&>();
    if (names.back() == "tool_use") {
      ParseChat(Cat(where, " tool_use"), source, &text->tool_chat, &text->no_tool_chat);
    }
    if (names.back() == "default" && std::count(names.begin(), names.end(), "default") == 1) {
      SetChat(where, source, text);
    }
  }
  if (std::count(names.begin(), names.end(), "default") > 0) return;
  text->no_chat = names.empty()
                      ? Invalid(where, " is neither a text nor a list of named ones")
                      : absl::FailedPreconditionError(Cat(where, " has none named default, only ",
                                                          absl::StrJoin(names, ", ")));
}

// Sets the template that the configuration has: a text, or a list of named ones.
void SetConfigChat(const Json& config, ModelText* text) {
  const std::string where = Cat(kConfig, ": chat_template");
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) {
    text->no_chat = absl::FailedPreconditionError(
        Cat("the checkpoint has neither ", kTemplate, " nor a chat_template in ", kConfig));
    return;
  }
  if (found->is_string()) return SetChat(where, found->get_ref<const std::string&>(), text);
  SetNamedChats(where, *found, text);
}

absl::StatusOr<ModelText> ReadFolder(absl::Span<const TextFile> files) {
  ModelText text;
  ASSIGN_OR_RETURN(const Json config, ReadConfig(files));
  text.variables = NamedTokensOf(config);
  if (Find(files, kTokenizer) != nullptr) {
    RETURN_IF_ERROR(SetTokenizer(kTokenizer, ReadJsonData(files, config, text.variables), &text));
  } else if (Find(files, kSentencePiece) != nullptr) {
    RETURN_IF_ERROR(
        SetTokenizer(kSentencePiece, ReadModelData(files, config, &text.variables), &text));
  } else if (Find(files, kTekken) != nullptr) {
    RETURN_IF_ERROR(SetTokenizer(kTekken, ReadTekkenData(files, config, &text.variables), &text));
  } else if (const TextFile* ranks = FindRanks(files)) {
    RETURN_IF_ERROR(SetTokenizer(
        ranks->path, ReadRanksData(files, ranks->bytes, config, text.variables), &text));
  } else if (Find(files, kWordList) != nullptr) {
    RETURN_IF_ERROR(
        SetTokenizer(kWordList, ReadWordListData(files, config, &text.variables), &text));
  }
  if (const TextFile* file = Find(files, kTemplate)) {
    SetChat(kTemplate, file->bytes, &text);
  } else {
    SetConfigChat(config, &text);
  }
  return text;
}

template <typename T>
const T* KeyOf(const checkpoint::Gguf& gguf, std::string_view key) {
  const checkpoint::GgufValue* value = gguf.Find(key);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

// Reports whether a file says how text becomes tokens. One that was made to hold weights may only
// name its tokens.
bool HasVocabulary(const checkpoint::Gguf& gguf) {
  const auto* model = KeyOf<std::string>(gguf, "tokenizer.ggml.model");
  if (model == nullptr || *model == "none" || *model == "no_vocab") return false;
  return *model != "gpt2" || gguf.Find("tokenizer.ggml.pre") != nullptr ||
         gguf.Find("tokenizer.ggml.merges") != nullptr;
}

absl::StatusOr<ModelText> ReadGgufText(const TextFile& file) {
  checkpoint::GgufLimits limits;
  limits.max_head_bytes = static_cast<int64_t>(file.bytes.size());
  const auto gguf =
      checkpoint::ReadGguf(file.bytes, 0, std::numeric_limits<int64_t>::max(), limits);
  if (!gguf.ok()) return InFile(file.path, gguf.status());
  ModelText text;
  text.variables = OrderedJson::object();
  if (HasVocabulary(*gguf)) {
    RETURN_IF_ERROR(SetTokenizer(file.path, ReadVocabulary(*gguf), &text));
  }
  const auto* pieces = KeyOf<std::vector<std::string>>(*gguf, "tokenizer.ggml.tokens");
  for (const NamedToken& named : kNamedTokens) {
    const auto* id = KeyOf<int64_t>(*gguf, named.gguf_key);
    if (id == nullptr || pieces == nullptr) continue;
    if (*id < 0 || *id >= static_cast<int64_t>(pieces->size())) {
      return Invalid(file.path, ": ", named.gguf_key, " is ", *id, ", of ", pieces->size(),
                     " tokens");
    }
    if (FindBrokenUtf8((*pieces)[*id]).has_value()) {
      return Invalid(file.path, ": the token ", *id, " is no UTF-8");
    }
    text.variables[std::string(named.name)] = (*pieces)[*id];
  }
  if (const auto* source = KeyOf<std::string>(*gguf, "tokenizer.chat_template")) {
    SetChat(Cat(file.path, ": tokenizer.chat_template"), *source, &text);
  } else {
    text.no_chat =
        absl::FailedPreconditionError(Cat(file.path, " has no key tokenizer.chat_template"));
  }
  return text;
}

}  // namespace

absl::StatusOr<ModelText> ReadModelText(absl::Span<const TextFile> files) {
  for (const TextFile& file : files) {
    if (file.path.ends_with(".gguf")) return ReadGgufText(file);
  }
  return ReadFolder(files);
}

}  // namespace athanor
