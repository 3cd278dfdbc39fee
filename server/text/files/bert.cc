// The options are those of `BertTokenizer` and `BertTokenizerFast` of transformers 4.57.
#include "server/text/files/bert.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

constexpr char kConfig[] = "tokenizer_config.json: ";
// Options of a configuration, and of BertNormalizer.
constexpr std::pair<const char*, const char*> kOptions[] = {
    {"do_lower_case", "lowercase"},
    {"strip_accents", "strip_accents"},
    {"tokenize_chinese_chars", "handle_chinese_chars"}};

// Sets `value` to an option, if it is there and not null.
absl::Status ReadOption(const Json& config, std::string_view name, bool* value) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return absl::OkStatus();
  if (!found->is_boolean()) return Invalid(kConfig, name, " is neither true nor false");
  *value = found->get<bool>();
  return absl::OkStatus();
}

absl::StatusOr<BertRules> ReadRules(const Json& config) {
  BertRules rules;
  bool basic = true;
  RETURN_IF_ERROR(ReadOption(config, "do_basic_tokenize", &basic));
  if (!basic) return Unimplemented(kConfig, "do_basic_tokenize false is not supported");
  const auto kept = config.find("never_split");
  if (kept != config.end() && !kept->empty()) {
    return Unimplemented(kConfig,
                         "never_split is not supported; write the tokens to "
                         "added_tokens_decoder");
  }
  RETURN_IF_ERROR(ReadOption(config, "do_lower_case", &rules.lowercase));
  RETURN_IF_ERROR(ReadOption(config, "tokenize_chinese_chars", &rules.han));
  rules.strip_accents = rules.lowercase;
  RETURN_IF_ERROR(ReadOption(config, "strip_accents", &rules.strip_accents));
  return rules;
}

// Reads the lines as Python reads a text: each ends with \n, \r\n or \r.
absl::Status ReadLines(std::string_view bytes, TokenizerData* data) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    if (FindBrokenUtf8(line)) return Invalid("line ", data->pieces.size() + 1, " is no UTF-8");
    data->pieces.emplace_back(line);
    bytes.remove_prefix(end);
    bytes.remove_prefix(bytes.starts_with("\r\n") ? 2 : bytes.empty() ? 0 : 1);
  }
  return absl::OkStatus();
}

// Returns the text of a token that the configuration names: a text, or an object with its content.
std::string NameOf(const Json& config, std::string_view name, std::string_view fallback) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return std::string(fallback);
  const Json content = found->is_object() ? found->value("content", Json()) : *found;
  return content.is_string() ? content.get<std::string>() : "";
}

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

}  // namespace

void AddBertNormalizer(const BertRules& rules, TokenizerData* data) {
  if (rules.clean) data->normalize.push_back({.kind = NormalizeStep::kBertClean});
  if (rules.han) data->normalize.push_back({.kind = NormalizeStep::kBertHan});
  if (rules.strip_accents) {
    data->normalize.push_back({.kind = NormalizeStep::kNfd});
    data->normalize.push_back({.kind = NormalizeStep::kDropNonspacing});
  }
  if (rules.lowercase) data->normalize.push_back({.kind = NormalizeStep::kLowercase});
}

void SetBert(const BertRules& rules, TokenizerData* data) {
  AddBertNormalizer(rules, data);
  data->split.push_back({.kind = SplitStep::kBert});
  data->word_pieces.emplace();
  data->word_join = {.prefix = data->word_pieces->prefix, .cleans = true};
}

bool IsBertTokenizer(std::string_view tokenizer_class) {
  if (tokenizer_class.ends_with("Fast")) tokenizer_class.remove_suffix(4);
  return IsOneOf(tokenizer_class,
                 {"BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer",
                  "LayoutLMTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer"});
}

bool IsBertModel(std::string_view model_type) {
  return IsOneOf(model_type, {"bert", "convbert", "distilbert", "electra", "layoutlm", "mobilebert",
                              "squeezebert"});
}

absl::Status OverrideBertNormalizer(const Json& config, Json* normalizer) {
  const bool bert = IsBertTokenizer(NameOf(config, "tokenizer_class", "")) &&
                    normalizer->is_object() && NameOf(*normalizer, "type", "") == "BertNormalizer";
  if (!bert) return absl::OkStatus();
  for (const auto& [option, field] : kOptions) {
    const auto found = config.find(option);
    if (found == config.end()) continue;
    if (!found->is_boolean() && !found->is_null()) {
      return Invalid(kConfig, option, " is neither true nor false");
    }
    if (found->is_boolean() || std::string_view(field) == "strip_accents") {
      (*normalizer)[field] = *found;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerData> ReadWordList(std::string_view bytes, const Json& config) {
  TokenizerData data;
  ASSIGN_OR_RETURN(const BertRules rules, ReadRules(config));
  RETURN_IF_ERROR(ReadLines(bytes, &data));
  SetBert(rules, &data);
  absl::flat_hash_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < data.pieces.size(); ++id) {
    if (!data.pieces[id].empty()) ids[data.pieces[id]] = static_cast<int32_t>(id);
  }
  int32_t cls = 0, sep = 0;
  for (const auto& [name, fallback, id] :
       {std::tuple("unk_token", "[UNK]", &data.unk), std::tuple("cls_token", "[CLS]", &cls),
        std::tuple("sep_token", "[SEP]", &sep)}) {
    const std::string content = NameOf(config, name, fallback);
    const auto found = ids.find(content);
    if (found == ids.end()) {
      return Invalid("the ", name, " ", Quoted(content), " is none of its ", data.pieces.size(),
                     " lines");
    }
    *id = found->second;
  }
  data.begin = {cls};
  data.end = {sep};
  return data;
}

}  // namespace athanor
