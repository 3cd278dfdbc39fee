// Byte-pair encoding of one word: characters (or bytes) become pieces, then neighbours are merged,
// lowest rank first.
//
//   Bpe bpe = Bpe::Create(data).value();
//   Bpe::Scratch scratch;
//   bpe.Encode("hello", &scratch, &ids);
#ifndef ATHANOR_SERVER_TEXT_TOKENS_BPE_H_
#define ATHANOR_SERVER_TEXT_TOKENS_BPE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Immutable, so thread-safe; each thread has its own scratch.
class Bpe {
  struct Merged {
    int32_t rank = -1, result = 0;
  };

 public:
  class Scratch {
    friend class Bpe;
    struct Symbol {
      int32_t id;  // -1: merged into the one ahead
      int32_t ahead, behind;
      Merged merge;  // with the one behind; of rank -1 if there is none
    };
    std::vector<Symbol> symbols_;
    // Merges, the next one first: rank, then position. Those that their symbol has no more are
    // passed over.
    std::vector<uint64_t> heap_;
  };

  // Returns INVALID_ARGUMENT if an id of `data` is out of range, or a piece that it needs is
  // missing.
  static absl::StatusOr<Bpe> Create(const TokenizerData& data);

  // Appends the tokens of `word`, which is UTF-8 of less than 2 GiB.
  void Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  void AddSymbols(std::string_view word, Scratch* scratch) const;
  // Sets the merge of a symbol with the one behind it, and appends it to the heap's vector.
  // Returns false if there is none.
  bool FindMerge(Scratch* scratch, int32_t position) const;
  void MergeAll(Scratch* scratch) const;
  int32_t FindPiece(std::string_view text) const;

  bool byte_level_ = false, byte_fallback_ = false, ignore_merges_ = false, fuse_unk_ = false;
  int32_t unk_ = -1;
  std::array<int32_t, 256> byte_ids_{};  // of one byte (byte level: any; else ASCII), or -1
  std::array<int32_t, 256> fallback_{};  // of <0x00>.., or -1
  absl::flat_hash_map<std::string_view, int32_t> ids_;  // of views into texts_
  std::shared_ptr<const std::deque<std::string>> texts_;
  absl::flat_hash_map<uint64_t, Merged> merges_;  // by left << 32 | right
};

// Returns merges of every pair of pieces whose concatenation is a piece: of higher score first, of
// equal scores at once, as SentencePiece does. Hidden pieces take no part.
std::vector<Merge> MergesByScore(const std::vector<std::string>& pieces,
                                 const std::vector<double>& scores,
                                 const std::vector<bool>& hidden);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_BPE_H_
