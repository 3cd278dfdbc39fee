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
  bool spaces = false;   // pieces are text whose spaces are U+2581; <0x00> and so on are bytes
};

constexpr char kDigit[] = R"(\p{N})";
constexpr char kThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kHan[] = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";  // all from U+0800 on
constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
// The letters that DeepSeek LLM's expression lists: cased ones, but not all.
constexpr char kDeepseekLetters[] =
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C"
    "\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5"
    "\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59"
    "\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC"
    "\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107"
    "\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE"
    "\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"
    "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A"
    "\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"
    "\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943";
// GPT-4's, but for the digits that stay together and what words are of.
std::string Gpt4(std::string_view digits, std::string_view letters = R"(\p{L})") {
  return Cat(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[)", letters, "]+|", digits,
             "| ?[^\\s", letters, R"(\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

const std::vector<PreRow>& PreRows() {
  static const auto* const kRows = new std::vector<PreRow>{
      {.name = "gpt-2", .patterns = {kGpt2}},
      {.name = "mpt", .patterns = {kGpt2}, .nfc = true},
      {.name = "smollm", .patterns = {kDigit, kGpt2}},
      {.name = "starcoder", .patterns = {kDigit, kGpt2}},
      {.name = "refact", .patterns = {kDigit, kGpt2}},
      {.name = "command-r", .patterns = {kDigit, kGpt2}, .nfc = true},
      {.name = "falcon", .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {.name = "deepseek-coder",
       .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHan, kDigit}},
      {.name = "deepseek-llm",
       .patterns = {"[\r\n]", Cat("\\s?[", kDeepseekLetters, "]+"),
                    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+", "\\s+$",
                    kHan, kDigit}},
      {.name = "deepseek-v3",
       .patterns = {kThreeDigits, "[\u4E00-\u9FA5\u3040-\u30FF]+",
                    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                    R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
                    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {.name = "llama-bpe",
       .patterns = {Gpt4(kThreeDigits)},
       .ignore_merges = true,
       .add_bos = true},
      {.name = "gemma4", .spaces = true},
      {.name = "qwen2", .patterns = {Gpt4(kDigit)}, .nfc = true},
      // Ids beside llama.cpp's vocabulary are without NFC, but transformers' class has it.
      {.name = "qwen35", .patterns = {Gpt4(kDigit, R"(\p{L}\p{M})")}, .nfc = true},
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

// Sets the token that stands for unknown characters, -1 unless the file names it. Beside it may be
// tokens of type "unknown" that only fill the vocabulary up.
absl::Status ReadUnknown(const Gguf& gguf, size_t count, int32_t* unk) {
  int64_t id = -1;
  RETURN_IF_ERROR(ReadKey(gguf, "unknown_token_id", &id));
  if (id < -1 || id >= static_cast<int64_t>(count)) {
    return absl::InvalidArgumentError(
        Cat("tokenizer.ggml.unknown_token_id is ", id, ", of ", count, " tokens"));
  }
  *unk = static_cast<int32_t>(id);
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

// Makes pieces what text becomes when its spaces are written as U+2581.
absl::Status SetSpaces(const Gguf& gguf, TokenizerData* data) {
  RETURN_IF_ERROR(ReadUnknown(gguf, data->pieces.size(), &data->unk));
  data->fuse_unk = true;
  data->byte_fallback = true;
  data->normalize.push_back({NormalizeStep::kReplace, " ", kSpace});
  data->replace.emplace_back(kSpace, " ");
  return absl::OkStatus();
}

absl::StatusOr<TokenizerData> ReadMerged(const Gguf& gguf, const std::string& pre,
                                         std::vector<std::string> pieces,
                                         const std::vector<PieceType>& types) {
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
  data.byte_level = !row->spaces;
  bool prefix = false;
  RETURN_IF_ERROR(ReadKey(gguf, "add_space_prefix", &prefix));
  if (prefix) {
    return absl::UnimplementedError("tokenizer.ggml.add_space_prefix with merges is not supported");
  }
  if (row->spaces) RETURN_IF_ERROR(SetSpaces(gguf, &data));
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
  std::string pre;
  RETURN_IF_ERROR(ReadKey(gguf, "pre", &pre));
  if (model == "gemma4") pre = model;
  if (model != "gpt2" && model != "llama" && model != "gemma4") {
    return absl::UnimplementedError(Cat("tokenizer.ggml.model ", Quoted(model),
                                        " is not supported; supported are gpt2, llama, gemma4"));
  }
  RETURN_IF_ERROR(ReadTypes(gguf, pieces.size(), &types));
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty() && !FindBrokenUtf8(pieces[id])) continue;
    return absl::InvalidArgumentError(Cat("tokenizer.ggml.tokens[", id, "] is empty or no UTF-8"));
  }
  if (model != "llama") return ReadMerged(gguf, pre, std::move(pieces), types);
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
  RETURN_IF_ERROR(ReadUnknown(gguf, scored.pieces.size(), &scored.unk));
  scored.byte_fallback =
      std::find(scored.types.begin(), scored.types.end(), PieceType::kByte) != scored.types.end();
  ASSIGN_OR_RETURN(TokenizerData data, DataOf(std::move(scored)));
  RETURN_IF_ERROR(ReadEnds(gguf, /*add_bos=*/true, &data));
  return data;
}

}  // namespace athanor
