#include "server/text/tokens/bpe.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "compiler/ir/value/message.h"
#include "server/text/base/byte_alphabet.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

absl::StatusOr<Bpe> Bpe::Create(const TokenizerData& data) {
  Bpe bpe;
  bpe.byte_level_ = data.byte_level;
  bpe.byte_fallback_ = data.byte_fallback;
  bpe.ignore_merges_ = data.ignore_merges;
  bpe.fuse_unk_ = data.fuse_unk;
  bpe.unk_ = data.unk;
  const auto count = static_cast<int32_t>(data.pieces.size());
  if (data.unk < -1 || data.unk >= count) {
    return absl::InvalidArgumentError(
        Cat("the unknown token is ", data.unk, ", of ", count, " tokens"));
  }
  const auto texts = std::make_shared<std::deque<std::string>>();
  bpe.texts_ = texts;
  bpe.ids_.reserve(data.pieces.size());
  for (int32_t id = 0; id < count; ++id) {
    const std::string& piece = data.pieces[id];
    if (piece.empty() || (!data.hidden.empty() && data.hidden[id])) continue;
    if (!data.byte_level) {
      bpe.ids_[texts->emplace_back(piece)] = id;
    } else if (std::optional<std::string> bytes = BytesOfAlphabet(piece)) {
      bpe.ids_[texts->emplace_back(*std::move(bytes))] = id;
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    bpe.byte_ids_[byte] =
        data.byte_level || byte < 0x80 ? bpe.FindPiece(std::string_view(&c, 1)) : -1;
  }
  bpe.fallback_.fill(-1);
  for (int32_t id = 0; data.byte_fallback && id < count; ++id) {
    const std::optional<char> byte = ByteOfFallback(data.pieces[id]);
    if (byte) bpe.fallback_[static_cast<uint8_t>(*byte)] = id;
  }
  bpe.merges_.reserve(data.merges.size());
  for (const Merge& merge : data.merges) {
    for (int32_t id : {merge.left, merge.right, merge.result}) {
      if (id < 0 || id >= count) {
        return absl::InvalidArgumentError(Cat("a merge names the token ", id, ", of ", count));
      }
    }
    if (merge.rank < 0) return absl::InvalidArgumentError("a merge's rank is negative");
    bpe.merges_[PairOf(merge.left, merge.right)] = {merge.rank, merge.result};
  }
  return bpe;
}

int32_t Bpe::FindPiece(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

void Bpe::AddSymbols(std::string_view word, Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols_;
  symbols.clear();
  const auto add = [&](int32_t id) {
    const auto position = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, position - 1, position + 1, {}});
  };
  bool unknown = false;  // one that is not added yet
  for (size_t at = 0; at < word.size();) {
    const auto byte = static_cast<uint8_t>(word[at]);
    const bool one = byte_level_ || byte < 0x80;
    const size_t bytes = one ? 1 : StepUtf8(word.substr(at)).bytes;
    const std::string_view symbol = word.substr(at, bytes);
    at += bytes;
    const int32_t id = one ? byte_ids_[byte] : FindPiece(symbol);
    if (id >= 0) {
      if (unknown) add(unk_);
      unknown = false;
      add(id);
      continue;
    }
    const bool falls_back =
        byte_fallback_ && std::all_of(symbol.begin(), symbol.end(), [&](char c) {
          return fallback_[static_cast<uint8_t>(c)] >= 0;
        });
    if (falls_back) {
      for (char c : symbol) add(fallback_[static_cast<uint8_t>(c)]);
      continue;
    }
    if (unk_ < 0) continue;
    if (unknown && !fuse_unk_) add(unk_);
    unknown = true;
  }
  if (unknown) add(unk_);
  if (!symbols.empty()) symbols.back().behind = -1;
}

bool Bpe::FindMerge(Scratch* scratch, int32_t position) const {
  Scratch::Symbol& left = scratch->symbols_[position];
  left.merge = {};
  if (left.behind < 0) return false;
  const auto found = merges_.find(PairOf(left.id, scratch->symbols_[left.behind].id));
  if (found == merges_.end()) return false;
  left.merge = found->second;
  scratch->heap_.push_back(static_cast<uint64_t>(left.merge.rank) << 32 |
                           static_cast<uint32_t>(position));
  return true;
}

void Bpe::MergeAll(Scratch* scratch) const {
  constexpr std::greater<> kLater;
  std::vector<Scratch::Symbol>& symbols = scratch->symbols_;
  std::vector<uint64_t>& heap = scratch->heap_;
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) FindMerge(scratch, static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), kLater);
  while (!heap.empty()) {
    const uint64_t next = heap.front();
    std::pop_heap(heap.begin(), heap.end(), kLater);
    heap.pop_back();
    const auto position = static_cast<int32_t>(next & 0xFFFFFFFF);
    Scratch::Symbol& left = symbols[position];
    if (left.merge.rank != static_cast<int32_t>(next >> 32)) continue;
    Scratch::Symbol& right = symbols[left.behind];
    left.id = left.merge.result;
    left.behind = right.behind;
    right.id = -1;
    right.merge = {};
    if (left.behind >= 0) symbols[left.behind].ahead = position;
    for (const int32_t changed : {position, left.ahead}) {
      if (changed >= 0 && FindMerge(scratch, changed)) {
        std::push_heap(heap.begin(), heap.end(), kLater);
      }
    }
  }
}

void Bpe::Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const int32_t id = FindPiece(word); id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  AddSymbols(word, scratch);
  MergeAll(scratch);
  for (const Scratch::Symbol& symbol : scratch->symbols_) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
}

std::vector<Merge> MergesByScore(const std::vector<std::string>& pieces,
                                 const std::vector<double>& scores,
                                 const std::vector<bool>& hidden) {
  absl::flat_hash_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!hidden[id] && !pieces[id].empty()) ids[pieces[id]] = static_cast<int32_t>(id);
  }
  std::vector<double> ranks(scores.begin(), scores.end());
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<Merge> merges;
  for (const auto& [piece, id] : ids) {
    const auto rank = std::lower_bound(ranks.begin(), ranks.end(), scores[id], std::greater<>());
    for (size_t at = StepUtf8(piece).bytes; at < piece.size();
         at += StepUtf8(piece.substr(at)).bytes) {
      const auto left = ids.find(piece.substr(0, at));
      const auto right = ids.find(piece.substr(at));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back(
          {left->second, right->second, id, static_cast<int32_t>(rank - ranks.begin())});
    }
  }
  return merges;
}

}  // namespace athanor
