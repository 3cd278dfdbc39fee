#include "server/text/files/tokenizer_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/files/bert.h"
#include "server/text/files/json_fields.h"
#include "server/text/files/tokenizer_json_steps.h"
#include "server/text/files/vocabulary.h"

namespace athanor {
namespace {

constexpr int64_t kMaxId = (4 << 20) - 1;

using Ids = absl::flat_hash_map<std::string, int32_t>;

absl::Status ReadVocabulary(const nlohmann::json& vocabulary, TokenizerData* data, Ids* ids) {
  if (!vocabulary.is_object()) return absl::InvalidArgumentError("model.vocab is no object");
  for (const auto& [piece, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxId)) {
      return absl::InvalidArgumentError(
          Cat("model.vocab: the id of ", Quoted(piece), " is none of 0 to ", kMaxId));
    }
    const auto at = id.get<size_t>();
    if (at >= data->pieces.size()) data->pieces.resize(at + 1);
    if (!data->pieces[at].empty()) {
      return absl::InvalidArgumentError(Cat("model.vocab: ", Quoted(data->pieces[at]), " and ",
                                            Quoted(piece), " have the id ", at));
    }
    data->pieces[at] = piece;
    (*ids)[piece] = static_cast<int32_t>(at);
  }
  return absl::OkStatus();
}

// Merges are written "left right" or ["left", "right"].
absl::Status ReadMerges(const nlohmann::json& merges, const Ids& ids, TokenizerData* data) {
  if (!merges.is_array()) return absl::InvalidArgumentError("model.merges is no array");
  const auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(Cat("model.merges[", data->merges.size(), "] ", what));
  };
  data->merges.reserve(merges.size());
  for (const nlohmann::json& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return bad("is not two pieces");
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      return bad("is not two pieces");
    }
    const auto a = ids.find(left), b = ids.find(right), both = ids.find(left + right);
    if (a == ids.end() || b == ids.end() || both == ids.end()) {
      return bad(Cat("joins ", Quoted(left), " and ", Quoted(right),
                     ", which are not all in the vocabulary"));
    }
    data->merges.push_back(
        {a->second, b->second, both->second, static_cast<int32_t>(data->merges.size())});
  }
  return absl::OkStatus();
}

// Returns a number as HF's library reads its text: its digits as one integer, times or by one power
// of ten (serde_json without float_roundtrip). That may be a bit off, and decides between equal
// sums, as of "aa" + "a" and "a" + "aa".
double AsHfReads(double value) {
  char text[64];
  const char* const end =
      std::to_chars(text, text + sizeof text, std::abs(value), std::chars_format::scientific).ptr;
  const char* const exponent = std::find<const char*>(text, end, 'e');
  uint64_t digits = 0;
  int power = 0;
  // from_chars takes no sign '+'.
  std::from_chars(exponent + (exponent + 1 < end && exponent[1] == '+' ? 2 : 1), end, power);
  for (const char* c = text; c < exponent; ++c) {
    if (*c == '.') continue;
    digits = digits * 10 + static_cast<uint64_t>(*c - '0');
    if (c > text) --power;
  }
  const double ten = std::pow(10.0, std::abs(power));
  const double read = static_cast<double>(digits);
  return std::copysign(power < 0 ? read / ten : read * ten, value);
}

// Reads pieces and their scores by id: [["a", -1.5], ...]. Of equal pieces the last counts.
absl::Status ReadScores(const nlohmann::json& vocabulary, TokenizerData* data, Ids* ids) {
  if (!vocabulary.is_array() || vocabulary.size() > static_cast<size_t>(kMaxId)) {
    return absl::InvalidArgumentError(Cat("model.vocab is no list of at most ", kMaxId));
  }
  double least = std::numeric_limits<double>::infinity();
  for (const nlohmann::json& entry : vocabulary) {
    const bool right =
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!right) {
      return absl::InvalidArgumentError(
          Cat("model.vocab[", data->pieces.size(), "] is no piece with its score"));
    }
    data->scores.push_back(AsHfReads(entry[1].get<double>()));
    least = std::min(least, data->scores.back());
    (*ids)[entry[0].get_ref<const std::string&>()] = static_cast<int32_t>(data->pieces.size());
    data->pieces.push_back(entry[0].get<std::string>());
  }
  data->unk_score = least + kUnknownPenalty;
  return absl::OkStatus();
}

absl::Status ReadUnigram(JsonFields* model, TokenizerData* data, Ids* ids) {
  data->byte_fallback = model->Bool("byte_fallback", false);
  const nlohmann::json& vocabulary = model->Any("vocab");
  const int64_t unk = model->Has("unk_id") ? model->Int("unk_id") : -1;
  RETURN_IF_ERROR(model->Done());
  RETURN_IF_ERROR(ReadScores(vocabulary, data, ids));
  if (unk < -1 || unk >= std::ssize(data->pieces)) {
    return absl::InvalidArgumentError(
        Cat("model.unk_id is ", unk, ", of ", data->pieces.size(), " tokens"));
  }
  data->unk = static_cast<int32_t>(unk);
  return absl::OkStatus();
}

absl::Status SetUnknown(const std::string& unk, const Ids& ids, TokenizerData* data) {
  const auto found = ids.find(unk);
  if (found == ids.end()) {
    return absl::InvalidArgumentError(
        Cat("model.unk_token ", Quoted(unk), " is not in the vocabulary"));
  }
  data->unk = found->second;
  return absl::OkStatus();
}

absl::Status ReadWordPiece(JsonFields* model, TokenizerData* data, Ids* ids) {
  WordPieceRules& rules = data->word_pieces.emplace();
  const std::string unk = model->Text("unk_token");
  rules.prefix = model->Text("continuing_subword_prefix");
  rules.max_characters = model->Int("max_input_chars_per_word");
  const nlohmann::json& vocabulary = model->Any("vocab");
  RETURN_IF_ERROR(model->Done());
  if (rules.max_characters < 0) {
    return absl::InvalidArgumentError(
        Cat("model.max_input_chars_per_word is ", rules.max_characters, "; right is 0 or more"));
  }
  RETURN_IF_ERROR(ReadVocabulary(vocabulary, data, ids));
  return SetUnknown(unk, *ids, data);
}

absl::Status ReadModel(const nlohmann::json& json, TokenizerData* data, Ids* ids) {
  JsonFields model(json, "model");
  // Older files leave the type out.
  const std::string_view implied = model.Has("max_input_chars_per_word") ? "WordPiece" : "BPE";
  const std::string type = model.Has("type") ? model.Text("type") : std::string(implied);
  if (type == "Unigram") return ReadUnigram(&model, data, ids);
  if (type == "WordPiece") return ReadWordPiece(&model, data, ids);
  if (type != "BPE" || !model.Has("merges")) {
    model.Unsupported(Cat("the type ", type));
    return model.Done();
  }
  for (std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.Has(name) && model.Text(name) != "") model.Unsupported(name);
  }
  if (model.Has("dropout") && model.Any("dropout") != 0) model.Unsupported("dropout");
  data->fuse_unk = model.Bool("fuse_unk", false);
  data->byte_fallback = model.Bool("byte_fallback", false);
  data->ignore_merges = model.Bool("ignore_merges", false);
  const nlohmann::json& vocabulary = model.Any("vocab");
  const nlohmann::json& merges = model.Any("merges");
  const std::string unk = model.Has("unk_token") ? model.Text("unk_token") : "";
  RETURN_IF_ERROR(model.Done());
  RETURN_IF_ERROR(ReadVocabulary(vocabulary, data, ids));
  RETURN_IF_ERROR(ReadMerges(merges, *ids, data));
  return unk.empty() ? absl::OkStatus() : SetUnknown(unk, *ids, data);
}

absl::Status ReadAdded(const nlohmann::json& list, TokenizerData* data, Ids* ids) {
  if (!list.is_array()) return absl::InvalidArgumentError("added_tokens is no array");
  for (const nlohmann::json& json : list) {
    JsonFields fields(json, Cat("added_tokens[", data->added.size(), "]"));
    AddedToken token;
    token.content = fields.Text("content");
    const int64_t id = fields.Int("id");
    token.single_word = fields.Bool("single_word", false);
    token.lstrip = fields.Bool("lstrip", false);
    token.rstrip = fields.Bool("rstrip", false);
    token.normalized = fields.Bool("normalized", true);
    token.special = fields.Bool("special", false);
    RETURN_IF_ERROR(fields.Done());
    if (id < 0 || id > kMaxId || token.content.empty()) {
      return absl::InvalidArgumentError(Cat(fields.path(), " ", Quoted(token.content),
                                            " has the id ", id, "; right is 0 to ", kMaxId));
    }
    token.id = static_cast<int32_t>(id);
    const auto [known, is_new] = ids->try_emplace(token.content, token.id);
    if (!is_new && known->second != token.id) {
      return absl::InvalidArgumentError(Cat(fields.path(), " ", Quoted(token.content),
                                            " has the id ", id, ", and in the vocabulary ",
                                            known->second));
    }
    data->added.push_back(std::move(token));
  }
  return absl::OkStatus();
}

// Reads one of tokenizer_config.json's tokens: a text, or an object with its content.
std::string TokenOf(const nlohmann::json& config, std::string_view name) {
  const auto found = config.find(name);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_object() || !found->contains("content")) return "";
  const nlohmann::json& content = (*found)["content"];
  return content.is_string() ? content.get<std::string>() : "";
}

absl::StatusOr<nlohmann::json> ReadConfig(std::string_view text) {
  if (text.empty()) return nlohmann::json::object();
  ASSIGN_OR_RETURN(nlohmann::json config, ParseJson(text, "tokenizer_config.json"));
  if (!config.is_object()) return Invalid("tokenizer_config.json is no object");
  return config;
}

// Some classes of transformers make the post-processor anew from these options.
absl::Status ApplyConfig(const nlohmann::json& config, const Ids& ids, TokenizerData* data) {
  const auto name = config.find("tokenizer_class");
  if (name == config.end() || !name->is_string()) return absl::OkStatus();
  const std::string kind = name->get<std::string>();
  bool replaces = false;
  for (std::string_view known : {"LlamaTokenizer", "GemmaTokenizer", "CodeLlamaTokenizer"}) {
    replaces = replaces || kind == known || kind == Cat(known, "Fast");
  }
  if (!replaces) return absl::OkStatus();
  for (const auto& [option, token, around] :
       {std::tuple("add_bos_token", "bos_token", &data->begin),
        std::tuple("add_eos_token", "eos_token", &data->end)}) {
    const auto wanted = config.find(option);
    if (wanted == config.end() || !wanted->is_boolean()) continue;
    around->clear();
    if (!wanted->get<bool>()) continue;
    const std::string content = TokenOf(config, token);
    const auto found = ids.find(content);
    if (found == ids.end()) {
      return absl::InvalidArgumentError(Cat("tokenizer_config.json: ", option, " wants the ", token,
                                            " ", Quoted(content),
                                            ", which is not in the vocabulary"));
    }
    around->push_back(found->second);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerData> ReadTokenizerJson(std::string_view json, std::string_view config) {
  ASSIGN_OR_RETURN(const nlohmann::json file, ParseJson(json, "tokenizer.json"));
  ASSIGN_OR_RETURN(const nlohmann::json beside, ReadConfig(config));
  JsonFields fields(file, "tokenizer.json");
  TokenizerData data;
  Ids ids;
  for (std::string_view name : {"version", "truncation", "padding"}) fields.Ignore(name);
  RETURN_IF_ERROR(ReadModel(fields.Any("model"), &data, &ids));
  if (fields.Has("added_tokens")) {
    RETURN_IF_ERROR(ReadAdded(fields.Any("added_tokens"), &data, &ids));
  }
  if (fields.Has("normalizer")) {
    nlohmann::json normalizer = fields.Any("normalizer");
    RETURN_IF_ERROR(OverrideBertNormalizer(beside, &normalizer));
    RETURN_IF_ERROR(ReadNormalizer(normalizer, "normalizer", &data));
  }
  if (fields.Has("pre_tokenizer")) {
    RETURN_IF_ERROR(ReadPreTokenizer(fields.Any("pre_tokenizer"), "pre_tokenizer", &data));
  }
  if (fields.Has("post_processor")) {
    RETURN_IF_ERROR(ReadPostProcessor(fields.Any("post_processor"), "post_processor", &data));
  }
  if (fields.Has("decoder")) {
    RETURN_IF_ERROR(ReadDecoder(fields.Any("decoder"), "decoder", &data));
  } else if (data.word_pieces) {
    data.word_join.emplace();  // the library puts spaces between tokens
  } else {
    fields.Unsupported("no decoder");
  }
  if (data.byte_level && !data.scores.empty()) fields.Unsupported("Unigram behind ByteLevel");
  RETURN_IF_ERROR(fields.Done());
  RETURN_IF_ERROR(ApplyConfig(beside, ids, &data));
  return data;
}

}  // namespace athanor
