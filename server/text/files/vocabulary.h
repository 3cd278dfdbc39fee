// Reads a tokenizer out of SentencePiece's .model files and out of the head of GGUF files.
//
//   ASSIGN_OR_RETURN(TokenizerData data, ReadSentencePiece(bytes));
//   ASSIGN_OR_RETURN(TokenizerData data, ReadVocabulary(gguf));
#ifndef ATHANOR_SERVER_TEXT_FILES_VOCABULARY_H_
#define ATHANOR_SERVER_TEXT_FILES_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/frontend/checkpoint/files/gguf.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Reads a .model of type BPE or UNIGRAM. Its control tokens are special; `begin` is its token for
// the beginning, if it has one, as HF's classes add it. Returns INVALID_ARGUMENT if it is no such
// file, UNIMPLEMENTED with the name of what is not supported.
absl::StatusOr<TokenizerData> ReadSentencePiece(std::string_view bytes);

// Reads the keys tokenizer.ggml.*: model "gpt2" (merges; `pre` names how text is split), "gemma4"
// (merges, spaces as U+2581), "llama" (merges by scores), "t5" (Unigram) or "bert" (WordPiece,
// U+2581 ahead of words; 100 characters a word at most, as in the model's own file). Returns as
// ReadSentencePiece.
absl::StatusOr<TokenizerData> ReadVocabulary(const checkpoint::Gguf& gguf);

// Lists what both say of a token; the numbers are those of the files.
enum class PieceType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

inline constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581, which pieces have for a space

// Added to the least score: that of a character that is no piece (SentencePiece, HF).
inline constexpr double kUnknownPenalty = -10;

// A vocabulary of scored pieces, as SentencePiece has it.
struct ScoredPieces {
  bool unigram = false;  // its type; else BPE
  std::vector<std::string> pieces;
  std::vector<double> scores;
  std::vector<PieceType> types;
  int32_t unk = -1;  // stands for unknown characters; -1: the one token of that type
  bool byte_fallback = false;
  bool prefix = true;    // text begins with a space
  bool strips = false;   // spaces are taken from the ends, and doubled ones become one
  std::string charsmap;  // "": none
};

// Makes a tokenizer of it; without tokens around a prompt.
absl::StatusOr<TokenizerData> DataOf(ScoredPieces scored);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_VOCABULARY_H_
