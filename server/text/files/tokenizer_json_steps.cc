#include "server/text/files/tokenizer_json_steps.h"

#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/files/bert.h"
#include "server/text/files/json_fields.h"

namespace athanor {
namespace {

// Rust's \w+|[^\w\s]+ for Oniguruma, whose \w has some digits and fractions more and no joiners.
constexpr char kRustWords[] = R"((?:(?![\u00B2\u00B3\u00B9\u00BC-\u00BE])[\w\u200C\u200D])+|)"
                              R"((?:[^\w\s\u200C\u200D]|[\u00B2\u00B3\u00B9\u00BC-\u00BE])+)";

using ReadStep = absl::Status(const nlohmann::json&, const std::string&, TokenizerData*);

// Reads the steps of a Sequence, listed under `name`.
absl::Status ReadSequence(JsonFields* fields, std::string_view name, ReadStep* read,
                          TokenizerData* data) {
  const nlohmann::json& list = fields->Any(name);
  if (fields->ok() && !list.is_array()) {
    fields->Fail(absl::InvalidArgumentError(Cat(fields->path(), ".", name, " is no array")));
  }
  RETURN_IF_ERROR(fields->Done());
  for (size_t i = 0; i < list.size(); ++i) {
    RETURN_IF_ERROR(read(list[i], Cat(fields->path(), ".", name, "[", i, "]"), data));
  }
  return absl::OkStatus();
}

// Reads {"String": text} or {"Regex": text}; returns whether it is an expression.
bool ReadPattern(JsonFields* fields, std::string* pattern) {
  JsonFields inner(fields->Any("pattern"), Cat(fields->path(), ".pattern"));
  const bool regex = inner.Has("Regex");
  *pattern = inner.Text(regex ? "Regex" : "String");
  fields->Fail(inner.Done());
  return regex;
}

SplitStep::Behavior ReadBehavior(JsonFields* fields) {
  return static_cast<SplitStep::Behavior>(fields->Choice(
      "behavior", {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

SplitStep::Prefix ReadPrefix(JsonFields* fields) {
  const bool adds = fields->Bool("add_prefix_space", true);
  if (!fields->Has("prepend_scheme")) return adds ? SplitStep::kAlways : SplitStep::kNever;
  return static_cast<SplitStep::Prefix>(
      fields->Choice("prepend_scheme", {"never", "first", "always"}));
}

SplitStep RegexStep(std::string pattern, SplitStep::Behavior behavior) {
  return {.kind = SplitStep::kRegex, .pattern = std::move(pattern), .behavior = behavior};
}

void ReadMetaspace(JsonFields* fields, TokenizerData* data) {
  SplitStep step = {.kind = SplitStep::kMetaspace, .pattern = fields->Text("replacement")};
  step.prefix = ReadPrefix(fields);
  fields->Ignore("str_rep");
  const bool split = fields->Bool("split", true);
  data->split.push_back(step);
  if (!split) return;
  data->split.push_back({.kind = SplitStep::kLiteral,
                         .pattern = step.pattern,
                         .behavior = SplitStep::kMergedWithNext});
}

void ReadByteLevel(JsonFields* fields, TokenizerData* data) {
  if (fields->Bool("add_prefix_space", true)) {
    data->split.push_back({.kind = SplitStep::kPrefixSpace});
  }
  fields->Ignore("trim_offsets");
  if (fields->Bool("use_regex", true)) {
    data->split.push_back(RegexStep(kGpt2Words, SplitStep::kIsolated));
  }
  data->byte_level = true;
}

// Reads the special tokens and the place of the prompt of TemplateProcessing.
void ReadTemplate(JsonFields* fields, TokenizerData* data) {
  fields->Ignore("pair");
  const nlohmann::json& tokens = fields->Any("special_tokens");
  const nlohmann::json& single = fields->Any("single");
  bool behind = false;
  for (const nlohmann::json& item : single) {
    if (item.contains("Sequence")) {
      if (behind) fields->Unsupported("a template with the prompt twice");
      behind = true;
      continue;
    }
    JsonFields piece(item, Cat(fields->path(), ".single"));
    JsonFields special(piece.Any("SpecialToken"), Cat(fields->path(), ".SpecialToken"));
    JsonFields all(tokens, Cat(fields->path(), ".special_tokens"));
    const std::string id = special.Text("id");
    JsonFields token(all.Any(id), Cat(fields->path(), ".special_tokens.", id));
    const nlohmann::json& ids = token.Any("ids");
    for (const JsonFields* inner : {&piece, &special, &all, &token}) {
      if (!inner->ok()) {
        return fields->Fail(
            absl::InvalidArgumentError(Cat(inner->path(), " is no part of a template")));
      }
    }
    for (const nlohmann::json& value : ids) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > INT32_MAX) {
        return fields->Fail(
            absl::InvalidArgumentError(Cat(token.path(), ".ids has what is no id")));
      }
      (behind ? data->end : data->begin).push_back(static_cast<int32_t>(value.get<int64_t>()));
    }
  }
  if (!behind) {
    fields->Fail(
        absl::InvalidArgumentError(Cat(fields->path(), ".single has no place for the prompt")));
  }
}

// Reads ["[CLS]", 101].
int32_t ReadNamedId(JsonFields* fields, std::string_view name) {
  const nlohmann::json& pair = fields->Any(name);
  const bool right = pair.is_array() && pair.size() == 2 && pair[0].is_string() &&
                     pair[1].is_number_unsigned() && pair[1].get<uint64_t>() <= INT32_MAX;
  if (right) return static_cast<int32_t>(pair[1].get<int64_t>());
  fields->Fail(
      absl::InvalidArgumentError(Cat(fields->path(), ".", name, " is no token with its id")));
  return 0;
}

void ReadBertNormalizer(JsonFields* fields, TokenizerData* data) {
  BertRules rules;
  rules.clean = fields->Bool("clean_text", true);
  rules.han = fields->Bool("handle_chinese_chars", true);
  rules.lowercase = fields->Bool("lowercase", true);
  rules.strip_accents = fields->Bool("strip_accents", rules.lowercase);
  AddBertNormalizer(rules, data);
}

// Reads the decoder WordPiece, which takes the tokens as they are.
void ReadWordJoin(JsonFields* fields, TokenizerData* data) {
  if (data->strip_left != 0 || data->strip_first_token || !data->replace.empty() ||
      data->word_join || data->byte_fallback) {
    fields->Unsupported("WordPiece behind another decoder");
  }
  data->word_join = {.prefix = fields->Text("prefix"), .cleans = fields->Bool("cleanup", true)};
}

}  // namespace

absl::Status ReadNormalizer(const nlohmann::json& json, const std::string& path,
                            TokenizerData* data) {
  JsonFields fields(json, path);
  const std::string type = fields.Text("type");
  if (type == "Sequence") return ReadSequence(&fields, "normalizers", ReadNormalizer, data);
  NormalizeStep step;
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.kind = type == "NFC"    ? NormalizeStep::kNfc
                : type == "NFD"  ? NormalizeStep::kNfd
                : type == "NFKC" ? NormalizeStep::kNfkc
                                 : NormalizeStep::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = NormalizeStep::kLowercase;
  } else if (type == "Prepend") {
    step.kind = NormalizeStep::kPrepend;
    step.to = fields.Text("prepend");
  } else if (type == "Replace") {
    step.kind =
        ReadPattern(&fields, &step.from) ? NormalizeStep::kReplaceRegex : NormalizeStep::kReplace;
    step.to = fields.Text("content");
  } else if (type == "Strip") {
    const bool right = fields.Bool("strip_right");
    if (fields.Bool("strip_left")) data->normalize.push_back({.kind = NormalizeStep::kStripLeft});
    if (right) data->normalize.push_back({.kind = NormalizeStep::kStripRight});
    return fields.Done();
  } else if (type == "Precompiled") {
    step.kind = NormalizeStep::kPrecompiled;
    if (!absl::Base64Unescape(fields.Text("precompiled_charsmap"), &step.from)) {
      fields.Fail(absl::InvalidArgumentError(Cat(path, ".precompiled_charsmap is no base64")));
    }
  } else if (type == "BertNormalizer") {
    ReadBertNormalizer(&fields, data);
    return fields.Done();
  } else if (type == "StripAccents") {
    step.kind = NormalizeStep::kDropMarks;
  } else {
    fields.Unsupported(Cat("the type ", type));
  }
  data->normalize.push_back(std::move(step));
  return fields.Done();
}

absl::Status ReadPreTokenizer(const nlohmann::json& json, const std::string& path,
                              TokenizerData* data) {
  JsonFields fields(json, path);
  const std::string type = fields.Text("type");
  if (data->byte_level) fields.Unsupported("a step behind ByteLevel");
  if (type == "Sequence") return ReadSequence(&fields, "pretokenizers", ReadPreTokenizer, data);
  if (type == "ByteLevel") {
    ReadByteLevel(&fields, data);
  } else if (type == "Metaspace") {
    ReadMetaspace(&fields, data);
  } else if (type == "Split") {
    SplitStep step;
    step.kind = ReadPattern(&fields, &step.pattern) ? SplitStep::kRegex : SplitStep::kLiteral;
    step.behavior = ReadBehavior(&fields);
    step.invert = fields.Bool("invert", false);
    data->split.push_back(std::move(step));
  } else if (type == "Digits") {
    const bool each = fields.Bool("individual_digits", false);
    data->split.push_back(
        RegexStep(R"(\p{N})", each ? SplitStep::kIsolated : SplitStep::kContiguous));
  } else if (type == "Punctuation") {
    const SplitStep::Behavior behavior =
        fields.Has("behavior") ? ReadBehavior(&fields) : SplitStep::kIsolated;
    data->split.push_back(RegexStep(R"([\p{P}!-/:-@\[-`{-~])", behavior));
  } else if (type == "Whitespace") {
    data->split.push_back(RegexStep(kRustWords, SplitStep::kRemoved));
    data->split.back().invert = true;
  } else if (type == "BertPreTokenizer") {
    data->split.push_back({.kind = SplitStep::kBert});
  } else if (type == "WhitespaceSplit") {
    data->split.push_back(RegexStep(R"(\s)", SplitStep::kRemoved));
  } else {
    fields.Unsupported(Cat("the type ", type));
  }
  return fields.Done();
}

absl::Status ReadPostProcessor(const nlohmann::json& json, const std::string& path,
                               TokenizerData* data) {
  JsonFields fields(json, path);
  const std::string type = fields.Text("type");
  if (type == "Sequence") return ReadSequence(&fields, "processors", ReadPostProcessor, data);
  if (type == "ByteLevel") {  // moves offsets only
    for (std::string_view name : {"add_prefix_space", "trim_offsets", "use_regex"}) {
      fields.Ignore(name);
    }
  } else if (type == "TemplateProcessing") {
    if (!data->begin.empty() || !data->end.empty()) fields.Unsupported("a second template");
    ReadTemplate(&fields, data);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    if (!data->begin.empty() || !data->end.empty()) fields.Unsupported("a second template");
    for (std::string_view name : {"add_prefix_space", "trim_offsets"}) fields.Ignore(name);
    data->begin.push_back(ReadNamedId(&fields, "cls"));
    data->end.push_back(ReadNamedId(&fields, "sep"));
  } else {
    fields.Unsupported(Cat("the type ", type));
  }
  return fields.Done();
}

absl::Status ReadDecoder(const nlohmann::json& json, const std::string& path, TokenizerData* data) {
  JsonFields fields(json, path);
  const std::string type = fields.Text("type");
  if (type == "Sequence") return ReadSequence(&fields, "decoders", ReadDecoder, data);
  if (type == "ByteLevel") {
    for (std::string_view name : {"add_prefix_space", "trim_offsets", "use_regex"}) {
      fields.Ignore(name);
    }
    if (!data->byte_level) fields.Unsupported("ByteLevel without a pre-tokenizer ByteLevel");
    return fields.Done();
  }
  if (data->byte_level) fields.Unsupported(Cat(type, " behind bytes"));
  if (data->word_join && type != "Fuse") fields.Unsupported(Cat(type, " behind WordPiece"));
  if (type == "WordPiece") {
    ReadWordJoin(&fields, data);
  } else if (type == "Replace") {
    std::string from;
    if (ReadPattern(&fields, &from)) fields.Unsupported("a regular expression");
    data->replace.emplace_back(std::move(from), fields.Text("content"));
  } else if (type == "ByteFallback") {
    if (!data->byte_fallback) fields.Unsupported("ByteFallback without the model's");
  } else if (type == "Strip") {
    if (fields.Text("content") != " " || fields.Int("stop") != 0) {
      fields.Unsupported("more than spaces at the beginning");
    }
    data->strip_left = fields.Int("start");
  } else if (type == "Metaspace") {
    data->replace.emplace_back(fields.Text("replacement"), " ");
    data->strip_first_token = ReadPrefix(&fields) != SplitStep::kNever;
    for (std::string_view name : {"split", "str_rep"}) fields.Ignore(name);
  } else if (type != "Fuse") {
    fields.Unsupported(Cat("the type ", type));
  }
  return fields.Done();
}

}  // namespace athanor
