#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "proto/sentencepiece/sentencepiece_model.pb.h"
#include "server/text/base/utf8.h"
#include "server/text/files/vocabulary.h"
#include "server/text/tokens/bpe.h"

namespace athanor {
namespace {

constexpr size_t kMaxPiece = 4096;  // bytes

absl::Status Unsupported(std::string_view what) {
  return absl::UnimplementedError(Cat("the vocabulary has ", what, ", which is not supported"));
}

absl::Status CheckPieces(const ScoredPieces& scored) {
  for (size_t id = 0; id < scored.pieces.size(); ++id) {
    const std::string& piece = scored.pieces[id];
    const auto bad = [&](std::string_view what) {
      return absl::InvalidArgumentError(Cat("the token ", id, " ", what));
    };
    if (piece.empty()) return bad("has no text");
    if (piece.size() > kMaxPiece) return bad(Cat("has ", piece.size(), " bytes"));
    if (FindBrokenUtf8(piece)) return bad("is no UTF-8");
    if (!std::isfinite(scored.scores[id])) return bad("has no finite score");
    if (scored.types[id] == PieceType::kUnused && !scored.unigram) {
      return Unsupported(Cat("the unused token ", id, " ", Quoted(piece)));
    }
  }
  return absl::OkStatus();
}

// A merge needs both parts to be pieces. A character that is none would be unknown before it could
// be part of one.
absl::Status CheckCharacters(const TokenizerData& data) {
  absl::flat_hash_map<std::string_view, bool> known;
  for (size_t id = 0; id < data.pieces.size(); ++id) {
    if (!data.hidden[id]) known[data.pieces[id]] = true;
  }
  for (const auto& [piece, unused] : known) {
    for (size_t at = 0; at < piece.size();) {
      const size_t bytes = StepUtf8(piece.substr(at)).bytes;
      if (!known.contains(piece.substr(at, bytes))) {
        return Unsupported(
            Cat("the token ", Quoted(piece), " but none for ", Quoted(piece.substr(at, bytes))));
      }
      at += bytes;
    }
  }
  return absl::OkStatus();
}

// Sets the scores of pieces, as unigram_model.cc of SentencePiece 0.2.3 has them.
void SetScores(const ScoredPieces& scored, TokenizerData* data) {
  float least = std::numeric_limits<float>::max();
  data->scores = scored.scores;
  data->rounds_scores = true;
  for (size_t id = 0; id < scored.pieces.size(); ++id) {
    if (scored.types[id] == PieceType::kNormal) {
      least = std::min(least, static_cast<float>(scored.scores[id]));
    } else if (scored.types[id] == PieceType::kUserDefined) {  // better than all of its parts
      data->scores[id] =
          static_cast<float>(0.1 * (static_cast<double>(scored.pieces[id].size()) - 1));
      data->hidden[id] = false;
    }
  }
  data->unk_score = least + static_cast<float>(kUnknownPenalty);
}

// Sets what is done to text ahead of pieces, and to their text.
void SetSpaces(const ScoredPieces& scored, TokenizerData* data) {
  if (scored.strips || !scored.charsmap.empty()) {
    NormalizeStep step = {.kind = NormalizeStep::kCharsmap, .from = scored.charsmap};
    step.strips = scored.strips;
    for (size_t id = 0; id < scored.pieces.size(); ++id) {
      if (scored.types[id] == PieceType::kUserDefined) step.kept.push_back(scored.pieces[id]);
    }
    data->normalize.push_back(std::move(step));
  }
  if (scored.prefix) data->normalize.push_back({NormalizeStep::kPrepend, "", kSpace});
  data->normalize.push_back({NormalizeStep::kReplace, " ", kSpace});
  if (scored.prefix) data->strip_left = 1;
  if (scored.strips) data->strip_left = std::numeric_limits<int64_t>::max();
  data->replace.emplace_back(kSpace, " ");
}

}  // namespace

absl::StatusOr<TokenizerData> DataOf(ScoredPieces scored) {
  RETURN_IF_ERROR(CheckPieces(scored));
  TokenizerData data;
  data.byte_fallback = scored.byte_fallback;
  data.fuse_unk = true;
  data.unk = scored.unk;
  for (size_t id = 0; id < scored.pieces.size(); ++id) {
    const PieceType type = scored.types[id];
    data.hidden.push_back(type != PieceType::kNormal);
    if (type == PieceType::kUnknown && scored.unk < 0) {
      if (data.unk >= 0) return Unsupported("two unknown tokens");
      data.unk = static_cast<int32_t>(id);
    }
    const bool special = type == PieceType::kControl || type == PieceType::kUnknown;
    // Unigram finds user-defined ones by their scores.
    if (!special && (type != PieceType::kUserDefined || scored.unigram)) continue;
    data.added.push_back(
        {.content = scored.pieces[id], .id = static_cast<int32_t>(id), .special = special});
  }
  SetSpaces(scored, &data);
  if (scored.unigram) SetScores(scored, &data);
  data.pieces = std::move(scored.pieces);
  if (scored.unigram) return data;
  RETURN_IF_ERROR(CheckCharacters(data));
  data.merges = MergesByScore(data.pieces, scored.scores, data.hidden);
  return data;
}

absl::StatusOr<TokenizerData> ReadSentencePiece(std::string_view bytes) {
  sentencepiece::Model model;
  if (!model.ParseFromString(std::string(bytes)) || model.pieces().empty()) {
    return absl::InvalidArgumentError("the file is no SentencePiece model");
  }
  const sentencepiece::Trainer& trainer = model.trainer_spec();
  const sentencepiece::Normalizer& normalizer = model.normalizer_spec();
  if (trainer.model_type() != sentencepiece::Trainer::BPE &&
      trainer.model_type() != sentencepiece::Trainer::UNIGRAM) {
    return Unsupported(
        Cat("the type ", sentencepiece::Trainer::ModelType_Name(trainer.model_type())));
  }
  if (trainer.treat_whitespace_as_suffix()) return Unsupported("treat_whitespace_as_suffix");
  if (!normalizer.escape_whitespaces()) return Unsupported("no escape_whitespaces");
  ScoredPieces scored;
  scored.unigram = trainer.model_type() == sentencepiece::Trainer::UNIGRAM;
  scored.strips = normalizer.remove_extra_whitespaces();
  scored.charsmap = normalizer.precompiled_charsmap();
  scored.byte_fallback = trainer.byte_fallback();
  scored.prefix = normalizer.add_dummy_prefix();
  for (const sentencepiece::Piece& piece : model.pieces()) {
    scored.pieces.push_back(piece.piece());
    scored.scores.push_back(piece.score());
    scored.types.push_back(static_cast<PieceType>(piece.type()));
  }
  ASSIGN_OR_RETURN(TokenizerData data, DataOf(std::move(scored)));
  for (AddedToken& token : data.added) {  // user-defined ones are written as pieces are
    token.normalized = token.as_written = !token.special;
  }
  const int32_t bos = trainer.bos_id();
  if (bos >= static_cast<int32_t>(data.pieces.size())) {
    return absl::InvalidArgumentError(Cat("bos_id is ", bos, ", of ", data.pieces.size()));
  }
  if (bos >= 0) data.begin = {bos};
  return data;
}

}  // namespace athanor
