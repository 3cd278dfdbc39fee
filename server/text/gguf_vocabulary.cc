#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/utf8.h"
#include "server/text/vocabulary.h"

namespace athanor {
namespace {

using checkpoint::Gguf;

// Says what a name in tokenizer.ggml.pre stands for: how the tokenizers of such models treat text,
// for the file has only their vocabulary. What each expression matches and what lies between
// becomes words, one expression behind the other. Where a model's own tokenizer.json normalises
// text, so do we; llama.cpp (llama-vocab.cpp), whose names these are, does not.
struct PreRow {
  std::string_view name;
  std::vector<std::string> patterns;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

constexpr char kDigit[] = R"(\p{N})";
constexpr char kThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
// GPT-4's, but for the digits that stay together.
std::string Gpt4(std::string_view digits) {
  return Cat(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)", digits,
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

const std::vector<PreRow>& PreRows() {
  static const auto* const kRows = new std::vector<PreRow>{
      {.name = "gpt-2", .patterns = {kGpt2}},
      {.name = "mpt", .patterns = {kGpt2}},
      {.name = "smollm", .patterns = {kDigit, kGpt2}},
      {.name = "starcoder", .patterns = {kDigit, kGpt2}},
      {.name = "refact", .patterns = {kDigit, kGpt2}},
      {.name = "command-r", .patterns = {kDigit, kGpt2}, .nfc = true},
      {.name = "falcon", .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {.name = "deepseek-coder",
       .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                    "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+", kDigit}},
      {.name = "deepseek-v3",
       .patterns = {kThreeDigits, "[\u4E00-\u9FA5\u3040-\u30FF]+",
                    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                    R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
                    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {.name = "llama-bpe",
       .patterns = {Gpt4(kThreeDigits)},
       .ignore_merges = true,
       .add_bos = true},
      {.name = "qwen2", .patterns = {Gpt4(kDigit)}, .nfc = true},
  };
  return *kRows;
}

// Reads a key of one type; the fallback if it is not there.
template <typename T>
absl::Status ReadKey(const Gguf& gguf, std::string_view name, T* value) {
  const std::string key = Cat("tokenizer.ggml.", name);
  const checkpoint::GgufValue* found = gguf.Find(key);
  if (found == nullptr) return absl::OkStatus();
  const T* typed = std::get_if<T>(found);
  if (typed == nullptr) {
    return absl::InvalidArgumentError(Cat("the key ", key, " is of another type"));
  }
  *value = *typed;
  return absl::OkStatus();
}

absl::Status ReadTypes(const Gguf& gguf, size_t count, std::vector<PieceType>* types) {
  std::vector<int64_t> numbers(count, static_cast<int64_t>(PieceType::kNormal));
  RETURN_IF_ERROR(ReadKey(gguf, "token_type", &numbers));
  if (numbers.size() != count) {
    return absl::InvalidArgumentError(
        Cat("tokenizer.ggml.token_type has ", numbers.size(), " values for ", count, " tokens"));
  }
  for (int64_t number : numbers) {
    if (number < 1 || number > 6) {
      return absl::InvalidArgumentError(
          Cat("tokenizer.ggml.token_type has the value ", number, "; right is 1 to 6"));
    }
    types->push_back(static_cast<PieceType>(number));
  }
  return absl::OkStatus();
}

// Sets what is put around a prompt.
absl::Status ReadEnds(const Gguf& gguf, bool add_bos, TokenizerData* data) {
  bool add_eos = false;
  RETURN_IF_ERROR(ReadKey(gguf, "add_bos_token", &add_bos));
  RETURN_IF_ERROR(ReadKey(gguf, "add_eos_token", &add_eos));
  for (const auto& [wanted, name, around] : {std::tuple(add_bos, "bos_token_id", &data->begin),
                                             std::tuple(add_eos, "eos_token_id", &data->end)}) {
    if (!wanted) continue;
    int64_t id = -1;
    RETURN_IF_ERROR(ReadKey(gguf, name, &id));
    if (id < 0 || id >= static_cast<int64_t>(data->pieces.size())) {
      return absl::InvalidArgumentError(
          Cat("tokenizer.ggml.", name, " is ", id, ", of ", data->pieces.size(), " tokens"));
    }
    around->push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const Gguf& gguf, TokenizerData* data) {
  std::vector<std::string> merges;
  RETURN_IF_ERROR(ReadKey(gguf, "merges", &merges));
  absl::flat_hash_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < data->pieces.size(); ++id) {
    ids[data->pieces[id]] = static_cast<int32_t>(id);
  }
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    const std::string_view left = std::string_view(merge).substr(0, space);
    const std::string_view right =
        space == std::string::npos ? "" : std::string_view(merge).substr(space + 1);
    const auto a = ids.find(left), b = ids.find(right), both = ids.find(Cat(left, right));
    if (a == ids.end() || b == ids.end() || both == ids.end()) {
      return absl::InvalidArgumentError(Cat("tokenizer.ggml.merges[", data->merges.size(), "] ",
                                            Quoted(merge), " does not join tokens to a token"));
    }
    data->merges.push_back(
        {a->second, b->second, both->second, static_cast<int32_t>(data->merges.size())});
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerData> ReadGpt2(const Gguf& gguf, std::vector<std::string> pieces,
                                       const std::vector<PieceType>& types) {
  std::string pre;
  RETURN_IF_ERROR(ReadKey(gguf, "pre", &pre));
  const std::vector<PreRow>& rows = PreRows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const PreRow& r) { return r.name == pre; });
  if (row == rows.end()) {
    std::string names;
    for (const PreRow& known : rows) names += Cat(names.empty() ? "" : ", ", known.name);
    return absl::UnimplementedError(
        Cat("tokenizer.ggml.pre ", Quoted(pre), " is not supported; supported are ", names));
  }
  TokenizerData data;
  data.pieces = std::move(pieces);
  data.byte_level = true;
  bool prefix = false;
  RETURN_IF_ERROR(ReadKey(gguf, "add_space_prefix", &prefix));
  if (prefix) {
    return absl::UnimplementedError("tokenizer.ggml.add_space_prefix of bytes is not supported");
  }
  data.ignore_merges = row->ignore_merges;
  if (row->nfc) data.normalize.push_back({.kind = NormalizeStep::kNfc});
  for (const std::string& pattern : row->patterns) data.split.push_back({.pattern = pattern});
  for (size_t id = 0; id < types.size(); ++id) {
    const bool special = types[id] == PieceType::kControl || types[id] == PieceType::kUnknown;
    if (!special && types[id] != PieceType::kUserDefined) continue;
    data.added.push_back(
        {.content = data.pieces[id], .id = static_cast<int32_t>(id), .special = special});
  }
  RETURN_IF_ERROR(ReadMerges(gguf, &data));
  RETURN_IF_ERROR(ReadEnds(gguf, row->add_bos, &data));
  return data;
}

}  // namespace

absl::StatusOr<TokenizerData> ReadVocabulary(const Gguf& gguf) {
  std::string model;
  std::vector<std::string> pieces;
  std::vector<PieceType> types;
  RETURN_IF_ERROR(ReadKey(gguf, "model", &model));
  RETURN_IF_ERROR(ReadKey(gguf, "tokens", &pieces));
  if (model != "gpt2" && model != "llama") {
    return absl::UnimplementedError(Cat("tokenizer.ggml.model ", Quoted(model),
                                        " is not supported; supported are gpt2, llama"));
  }
  RETURN_IF_ERROR(ReadTypes(gguf, pieces.size(), &types));
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty() && !FindBrokenUtf8(pieces[id])) continue;
    return absl::InvalidArgumentError(Cat("tokenizer.ggml.tokens[", id, "] is empty or no UTF-8"));
  }
  if (model == "gpt2") return ReadGpt2(gguf, std::move(pieces), types);
  ScoredPieces scored;
  scored.pieces = std::move(pieces);
  scored.types = std::move(types);
  scored.scores.resize(scored.pieces.size());
  RETURN_IF_ERROR(ReadKey(gguf, "scores", &scored.scores));
  if (scored.scores.size() != scored.pieces.size()) {
    return absl::InvalidArgumentError(Cat("tokenizer.ggml.scores has ", scored.scores.size(),
                                          " values for ", scored.pieces.size(), " tokens"));
  }
  RETURN_IF_ERROR(ReadKey(gguf, "add_space_prefix", &scored.prefix));
  // Beside it may be tokens of type "unknown" that only fill the vocabulary up.
  int64_t unk = -1;
  RETURN_IF_ERROR(ReadKey(gguf, "unknown_token_id", &unk));
  if (unk < -1 || unk >= static_cast<int64_t>(scored.pieces.size())) {
    return absl::InvalidArgumentError(
        Cat("tokenizer.ggml.unknown_token_id is ", unk, ", of ", scored.pieces.size(), " tokens"));
  }
  scored.unk = static_cast<int32_t>(unk);
  scored.byte_fallback =
      std::find(scored.types.begin(), scored.types.end(), PieceType::kByte) != scored.types.end();
  ASSIGN_OR_RETURN(TokenizerData data, DataOf(std::move(scored)));
  RETURN_IF_ERROR(ReadEnds(gguf, /*add_bos=*/true, &data));
  return data;
}

}  // namespace athanor
