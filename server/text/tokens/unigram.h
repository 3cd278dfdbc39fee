// Unigram's tokens of one word: of all ways to write it by pieces, that of the highest sum of
// scores (Viterbi). Source: T. Kudo, Subword Regularization, 2018; ties fall as in SentencePiece
// 0.2.3 and HF's tokenizers 0.23.
//
//   Unigram unigram = Unigram::Create(data).value();
//   Unigram::Scratch scratch;
//   unigram.Encode("hello", &scratch, &ids);
#ifndef ATHANOR_SERVER_TEXT_TOKENS_UNIGRAM_H_
#define ATHANOR_SERVER_TEXT_TOKENS_UNIGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/tokens/piece_trie.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Immutable, so thread-safe; each thread has its own scratch.
class Unigram {
 public:
  class Scratch {
    friend class Unigram;
    struct Best {  // the best way to the end of a piece
      double score = 0;
      int32_t begin = -1;  // of its last piece; -1: no piece ends here
      int32_t id = -1;     // of its last piece; -1: a character that is none
    };
    std::vector<Best> best_;  // by byte
    std::vector<int32_t> ids_;
  };

  // Returns INVALID_ARGUMENT if a score or an id of `data` is wrong.
  static absl::StatusOr<Unigram> Create(const TokenizerData& data);

  // Appends the tokens of `word`, which is UTF-8 of less than 2 GiB. Neighbours that are unknown
  // are one: by the pieces of their bytes, or one unknown token.
  void Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  void FindBest(std::string_view word, std::vector<Scratch::Best>* best) const;
  void AddUnknown(std::string_view text, std::vector<int32_t>* reversed) const;
  double Rounded(double sum) const { return rounds_ ? static_cast<float>(sum) : sum; }

  PieceTrie trie_;
  std::vector<double> scores_;  // by id
  double unk_score_ = 0;
  bool rounds_ = false, byte_fallback_ = false;
  int32_t unk_ = -1;
  std::array<int32_t, 256> fallback_{};  // of <0x00>.., or -1
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_UNIGRAM_H_
