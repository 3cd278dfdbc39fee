#include "server/text/files/ranks.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/byte_alphabet.h"
#include "server/text/files/json_fields.h"
#include "server/text/files/pre_rows.h"
#include "server/text/tokens/bpe.h"

namespace athanor {
namespace {

constexpr int64_t kMaxRanks = 4 << 20;
constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

// The 256 special tokens of Llama 3.1 and later, as llama-models 0.3.0 has them.
std::vector<std::string> LlamaSpecial() {
  std::vector<std::string> names = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>",
                                    "<|image|>"};
  for (int i = 2; names.size() < 256; ++i)
    names.push_back(Cat("<|reserved_special_token_", i, "|>"));
  return names;
}

std::vector<std::string> QwenSpecial() { return {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}; }

// Says how models with a list of ranks treat text.
struct RanksRow {
  std::string_view model_type;
  std::string_view pre;                   // of PreRows
  std::vector<std::string> (*special)();  // behind the ranks, in this order
  bool begins = false;                    // a prompt begins with the first of them
};
constexpr RanksRow kRows[] = {
    {"llama", "llama-bpe", LlamaSpecial, true},
    {"qwen", "qwen2", QwenSpecial},
    {"qwen2", "qwen2", QwenSpecial},
    {"qwen2_moe", "qwen2", QwenSpecial},
    {"qwen3", "qwen2", QwenSpecial},
    {"qwen3_moe", "qwen2", QwenSpecial},
};

absl::StatusOr<const RanksRow*> FindRow(std::string_view model_type) {
  std::string names;
  for (const RanksRow& row : kRows) {
    if (row.model_type == model_type) return &row;
    names += Cat(names.empty() ? "" : ", ", row.model_type);
  }
  return absl::UnimplementedError(
      Cat("the file is a list of ranks, which does not say how text is split; that is known for "
          "the model_type ",
          names, ", not for ", Quoted(model_type), "; right is a tokenizer.json"));
}

// Makes merges of pieces, which spell bytes; the ids are ordered as ranks are.
absl::Status SetRanks(TokenizerData* data) {
  absl::flat_hash_set<std::string_view> known;
  std::vector<double> scores;
  for (size_t id = 0; id < data->pieces.size(); ++id) {
    scores.push_back(-static_cast<double>(id));
    const std::string& piece = data->pieces[id];
    if (!piece.empty() && !known.insert(piece).second) {
      return absl::InvalidArgumentError(Cat("the token ", Quoted(piece), " is there twice"));
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (known.contains(AlphabetOf({&c, 1}))) continue;
    return absl::InvalidArgumentError(Cat("there is no token for the byte ", byte));
  }
  data->byte_level = true;
  data->ignore_merges = true;
  data->merges = MergesByScore(data->pieces, scores, std::vector<bool>(data->pieces.size()));
  return absl::OkStatus();
}

absl::Status ReadLine(std::string_view line, TokenizerData* data) {
  const size_t space = line.find(' ');
  std::string token;
  int64_t rank = -1;
  bool right = space != std::string_view::npos && space > 0;
  if (right) {
    const char* const end = line.data() + line.size();
    const auto [read, error] = std::from_chars(line.data() + space + 1, end, rank);
    right = error == std::errc() && read == end && rank >= 0 && rank < kMaxRanks &&
            absl::Base64Unescape(absl::string_view(line.data(), space), &token) && !token.empty();
  }
  if (!right) {
    return absl::InvalidArgumentError(
        Cat("the line ", Quoted(line), " is no token in base64 with its rank"));
  }
  const auto at = static_cast<size_t>(rank);
  if (at >= data->pieces.size()) data->pieces.resize(at + 1);
  if (!data->pieces[at].empty()) {
    return absl::InvalidArgumentError(Cat("the rank ", rank, " is there twice"));
  }
  data->pieces[at] = AlphabetOf(token);
  return absl::OkStatus();
}

// Adds special tokens from an id on, which must be behind pieces or where none is.
void AddSpecial(std::vector<std::string> names, size_t first, TokenizerData* data) {
  for (std::string& name : names) {
    data->added.push_back(
        {.content = std::move(name), .id = static_cast<int32_t>(first++), .special = true});
  }
}

// Returns what tekken.json's special tokens are called, by id; those that it does not name are
// <SPECIAL_n>. Files up to version v7 may leave them out (mistral-common 1.13.1, tekken.py).
absl::StatusOr<std::vector<std::string>> TekkenSpecial(const nlohmann::json* list, int64_t count) {
  std::vector<std::string> names;
  if (list == nullptr) {
    names = {"<unk>",
             "<s>",
             "</s>",
             "[INST]",
             "[/INST]",
             "[AVAILABLE_TOOLS]",
             "[/AVAILABLE_TOOLS]",
             "[TOOL_RESULTS]",
             "[/TOOL_RESULTS]",
             "[TOOL_CALLS]",
             "[IMG]",
             "<pad>",
             "[IMG_BREAK]",
             "[IMG_END]",
             "[PREFIX]",
             "[MIDDLE]",
             "[SUFFIX]",
             "[SYSTEM_PROMPT]",
             "[/SYSTEM_PROMPT]",
             "[TOOL_CONTENT]"};
  } else {
    if (!list->is_array()) return absl::InvalidArgumentError("special_tokens is no array");
    for (const nlohmann::json& entry : *list) {
      JsonFields fields(entry, Cat("special_tokens[", names.size(), "]"));
      const int64_t rank = fields.Int("rank");
      const std::string name = fields.Text("token_str");
      fields.Ignore("is_control");
      RETURN_IF_ERROR(fields.Done());
      if (rank != std::ssize(names) || name.empty()) {
        return absl::InvalidArgumentError(Cat(fields.path(), " ", Quoted(name), " has the rank ",
                                              rank, "; right is ", names.size()));
      }
      names.push_back(name);
    }
  }
  if (std::ssize(names) > count) {
    return absl::InvalidArgumentError(Cat(names.size(), " special tokens; config says ", count));
  }
  while (std::ssize(names) < count) names.push_back(Cat("<SPECIAL_", names.size(), ">"));
  return names;
}

struct TekkenConfig {
  std::string pattern;
  int64_t size = 0, special = 0;  // numbers of tokens
};

absl::StatusOr<TekkenConfig> ReadTekkenConfig(const nlohmann::json& json) {
  JsonFields fields(json, "config");
  TekkenConfig config;
  config.pattern = fields.Text("pattern");
  config.size = fields.Int("default_vocab_size");
  config.special = fields.Int("default_num_special_tokens");
  for (std::string_view name : {"num_vocab_tokens", "version"}) fields.Ignore(name);
  RETURN_IF_ERROR(fields.Done());
  if (config.special < 0 || config.special > config.size || config.size > kMaxRanks) {
    return absl::InvalidArgumentError(Cat("config has ", config.size, " tokens, of them special ",
                                          config.special, "; at most ", kMaxRanks));
  }
  return config;
}

}  // namespace

bool IsRanks(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  const auto all = [](std::string_view text, std::string_view of) {
    return !text.empty() && text.find_first_not_of(of) == std::string_view::npos;
  };
  return space != std::string_view::npos && all(line.substr(0, space), kBase64) &&
         all(line.substr(space + 1), "0123456789\r");
}

absl::StatusOr<TokenizerData> ReadRanks(std::string_view bytes, std::string_view model_type,
                                        bool special) {
  ASSIGN_OR_RETURN(const RanksRow* row, FindRow(model_type));
  TokenizerData data;
  while (!bytes.empty()) {
    std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) RETURN_IF_ERROR(ReadLine(line, &data));
  }
  RETURN_IF_ERROR(SetRanks(&data));
  const PreRow& pre = *FindPreRow(row->pre);
  if (pre.nfc) data.normalize.push_back({.kind = NormalizeStep::kNfc});
  for (const std::string& pattern : pre.patterns) data.split.push_back({.pattern = pattern});
  if (!special) return data;
  if (row->begins) data.begin = {static_cast<int32_t>(data.pieces.size())};
  AddSpecial(row->special(), data.pieces.size(), &data);
  return data;
}

absl::StatusOr<TokenizerData> ReadTekken(std::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json file, ParseJson(json, "tekken.json"));
  JsonFields fields(file, "tekken.json");
  ASSIGN_OR_RETURN(const TekkenConfig config, ReadTekkenConfig(fields.Any("config")));
  const nlohmann::json& vocabulary = fields.Any("vocab");
  ASSIGN_OR_RETURN(
      std::vector<std::string> names,
      TekkenSpecial(fields.Has("special_tokens") ? &fields.Any("special_tokens") : nullptr,
                    config.special));
  RETURN_IF_ERROR(fields.status());
  const int64_t ranks = config.size - config.special;
  if (!vocabulary.is_array() || std::ssize(vocabulary) < ranks) {
    return absl::InvalidArgumentError(Cat("vocab is no array of at least ", ranks, " tokens"));
  }
  TokenizerData data;
  data.pieces.resize(config.special);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    JsonFields token(vocabulary[rank], Cat("vocab[", rank, "]"));
    const int64_t stated = token.Int("rank");
    std::string bytes;
    const bool right = absl::Base64Unescape(token.Text("token_bytes"), &bytes) && !bytes.empty();
    token.Ignore("token_str");
    RETURN_IF_ERROR(token.Done());
    if (stated != rank || !right) {
      return absl::InvalidArgumentError(
          Cat(token.path(), " has the rank ", stated, ", or no bytes in base64"));
    }
    data.pieces.push_back(AlphabetOf(bytes));
  }
  RETURN_IF_ERROR(SetRanks(&data));
  data.split.push_back({.pattern = config.pattern});
  for (size_t id = 0; id < names.size(); ++id) {
    if (names[id] == "<s>") data.begin = {static_cast<int32_t>(id)};
  }
  AddSpecial(std::move(names), 0, &data);
  return data;
}

}  // namespace athanor
