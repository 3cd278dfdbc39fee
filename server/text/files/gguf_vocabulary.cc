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
#include "server/text/base/utf8.h"
#include "server/text/files/bert.h"
#include "server/text/files/pre_rows.h"
#include "server/text/files/vocabulary.h"
#include "server/text/tokens/normalize.h"

namespace athanor {
namespace {

using checkpoint::Gguf;

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

// Sets what is put around a prompt: unless the file says so, what the arguments say.
absl::Status ReadEnds(const Gguf& gguf, bool add_bos, bool add_eos, TokenizerData* data) {
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
  const PreRow* const row = FindPreRow(pre);
  if (row == nullptr) {
    std::string names;
    for (const PreRow& known : PreRows()) names += Cat(names.empty() ? "" : ", ", known.name);
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
  RETURN_IF_ERROR(ReadEnds(gguf, row->add_bos, /*add_eos=*/false, &data));
  return data;
}

// Reads how SentencePiece normalises text; files list the charsmap's bytes.
absl::Status ReadCharsmap(const Gguf& gguf, ScoredPieces* scored) {
  std::vector<int64_t> bytes;
  RETURN_IF_ERROR(ReadKey(gguf, "precompiled_charsmap", &bytes));
  for (int64_t byte : bytes) scored->charsmap.push_back(static_cast<char>(byte & 0xFF));
  return ReadKey(gguf, "remove_extra_whitespaces", &scored->strips);
}

// Reports whether each of some pieces is as a normalizer's steps leave it: no text becomes one that
// is not.
absl::StatusOr<bool> AreNormal(const std::vector<std::string>& pieces,
                               std::vector<NormalizeStep> steps) {
  ASSIGN_OR_RETURN(const Normalizer normalizer, Normalizer::Create(std::move(steps)));
  for (const std::string& piece : pieces) {
    ASSIGN_OR_RETURN(const std::string normal, normalizer.Run(piece));
    if (normal != piece) return false;
  }
  return true;
}

bool IsBracketed(std::string_view piece) { return piece.starts_with('[') && piece.ends_with(']'); }

// Writes a piece as BERT's vocab.txt does. llama.cpp's converter (conversion/bert.py) takes "##"
// from those that have it and puts U+2581 ahead of others but control tokens; older ones left all
// in brackets alone.
std::string BertPiece(const std::string& piece, PieceType type) {
  if (type == PieceType::kControl) return piece;
  if (piece.starts_with(kSpace) && piece != kSpace) return piece.substr(sizeof kSpace - 1);
  return IsBracketed(piece) ? piece : Cat("##", piece);
}

// Sets a token's id to what a key says, else to the token of that text.
absl::Status ReadNamed(const Gguf& gguf, std::string_view key, std::string_view text,
                       const TokenizerData& data, int32_t* token) {
  int64_t id = std::find(data.pieces.begin(), data.pieces.end(), text) - data.pieces.begin();
  const auto count = static_cast<int64_t>(data.pieces.size());
  if (id == count && gguf.Find(Cat("tokenizer.ggml.", key)) == nullptr) {
    return absl::InvalidArgumentError(
        Cat("there is no tokenizer.ggml.", key, ", and no token ", Quoted(text)));
  }
  RETURN_IF_ERROR(ReadKey(gguf, key, &id));
  if (id < 0 || id >= count) {
    return absl::InvalidArgumentError(
        Cat("tokenizer.ggml.", key, " is ", id, ", of ", count, " tokens"));
  }
  *token = static_cast<int32_t>(id);
  return absl::OkStatus();
}

// Reads BERT's pieces. The file does not say whether case and accents go; pieces do: no text
// becomes a piece with capitals or accents if they go.
absl::StatusOr<TokenizerData> ReadBert(const Gguf& gguf, const std::vector<std::string>& pieces,
                                       const std::vector<PieceType>& types) {
  TokenizerData data;
  for (size_t id = 0; id < pieces.size(); ++id) {
    data.pieces.push_back(BertPiece(pieces[id], types[id]));
  }
  int32_t cls = 0, sep = 0;
  RETURN_IF_ERROR(ReadNamed(gguf, "unknown_token_id", "[UNK]", data, &data.unk));
  RETURN_IF_ERROR(ReadNamed(gguf, "cls_token_id", "[CLS]", data, &cls));
  RETURN_IF_ERROR(ReadNamed(gguf, "seperator_token_id", "[SEP]", data, &sep));
  data.begin = {cls};
  data.end = {sep};
  std::vector<std::string> words;  // pieces that text becomes
  for (int32_t id = 0; id < static_cast<int32_t>(pieces.size()); ++id) {
    const std::string& piece = data.pieces[id];
    const bool special = types[id] == PieceType::kControl || types[id] == PieceType::kUnknown ||
                         id == data.unk || id == cls || id == sep;
    const bool added = special || types[id] == PieceType::kUserDefined;
    const bool unused = types[id] == PieceType::kUnused;
    data.hidden.push_back(special || unused);
    if (added) data.added.push_back({.content = piece, .id = id, .special = special});
    if (!added && !unused && !IsBracketed(piece)) words.push_back(piece);
  }
  BertRules rules;
  ASSIGN_OR_RETURN(rules.lowercase, AreNormal(words, {{.kind = NormalizeStep::kLowercase}}));
  ASSIGN_OR_RETURN(
      rules.strip_accents,
      AreNormal(words, {{.kind = NormalizeStep::kNfd}, {.kind = NormalizeStep::kDropNonspacing}}));
  SetBert(rules, &data);
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
  if (model != "gpt2" && model != "llama" && model != "gemma4" && model != "t5" &&
      model != "bert") {
    return absl::UnimplementedError(
        Cat("tokenizer.ggml.model ", Quoted(model),
            " is not supported; supported are gpt2, llama, gemma4, t5, bert"));
  }
  RETURN_IF_ERROR(ReadTypes(gguf, pieces.size(), &types));
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty() && !FindBrokenUtf8(pieces[id])) continue;
    return absl::InvalidArgumentError(Cat("tokenizer.ggml.tokens[", id, "] is empty or no UTF-8"));
  }
  if (model == "bert") return ReadBert(gguf, pieces, types);
  if (model != "llama" && model != "t5") return ReadMerged(gguf, pre, std::move(pieces), types);
  ScoredPieces scored;
  const bool unigram = model == "t5";
  scored.unigram = unigram;
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
  if (scored.unigram) RETURN_IF_ERROR(ReadCharsmap(gguf, &scored));
  scored.byte_fallback =
      std::find(scored.types.begin(), scored.types.end(), PieceType::kByte) != scored.types.end();
  ASSIGN_OR_RETURN(TokenizerData data, DataOf(std::move(scored)));
  RETURN_IF_ERROR(ReadEnds(gguf, !unigram, unigram, &data));
  return data;
}

}  // namespace athanor
