#include "server/text/tokens/unigram.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "compiler/ir/value/message.h"
#include "server/text/base/byte_alphabet.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

// Sums in f32 lose digits as they grow; SentencePiece begins again from 0 at such a one.
constexpr double kMaxRoundedSum = 100'000;

}  // namespace

absl::StatusOr<Unigram> Unigram::Create(const TokenizerData& data) {
  Unigram unigram;
  const auto count = static_cast<int32_t>(data.pieces.size());
  if (data.scores.size() != data.pieces.size()) {
    return absl::InvalidArgumentError(
        Cat(data.scores.size(), " scores for ", data.pieces.size(), " tokens"));
  }
  if (data.unk < -1 || data.unk >= count) {
    return absl::InvalidArgumentError(
        Cat("the unknown token is ", data.unk, ", of ", count, " tokens"));
  }
  if (!std::isfinite(data.unk_score)) {
    return absl::InvalidArgumentError("the score of unknown characters is not finite");
  }
  unigram.fallback_.fill(-1);
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  for (int32_t id = 0; id < count; ++id) {
    const std::string& piece = data.pieces[id];
    if (!std::isfinite(data.scores[id])) {
      return absl::InvalidArgumentError(Cat("the token ", id, " has no finite score"));
    }
    if (const std::optional<char> byte = ByteOfFallback(piece)) {
      unigram.fallback_[static_cast<uint8_t>(*byte)] = id;
    }
    if (data.hidden.empty() || !data.hidden[id]) pieces.emplace_back(piece, id);
  }
  unigram.trie_ = PieceTrie::Create(std::move(pieces));
  unigram.scores_ = data.scores;
  unigram.unk_score_ = data.unk_score;
  unigram.rounds_ = data.rounds_scores;
  unigram.byte_fallback_ = data.byte_fallback;
  unigram.unk_ = data.unk;
  return unigram;
}

void Unigram::FindBest(std::string_view word, std::vector<Scratch::Best>* best) const {
  best->assign(word.size() + 1, {});
  size_t reached = 0;  // the last byte that a piece ends at
  for (size_t at = 0, bytes = 0; at < word.size(); at += bytes) {
    bytes = StepUtf8(word.substr(at)).bytes;
    if (rounds_ && std::abs((*best)[at].score) > kMaxRoundedSum) {
      const double offset = (*best)[at].score;
      for (size_t i = at; i <= reached; ++i) {
        if ((*best)[i].begin >= 0) (*best)[i].score = Rounded((*best)[i].score - offset);
      }
    }
    const double here = (*best)[at].score;
    bool known = false;  // its first character is a piece
    const auto reach = [&](size_t length, int32_t id, double score) {
      Scratch::Best& to = (*best)[at + length];
      const double sum = Rounded(here + score);
      reached = std::max(reached, at + length);
      if (to.begin >= 0 && sum <= to.score) return;
      to = {sum, static_cast<int32_t>(at), id};
    };
    trie_.Find(word.substr(at), [&](size_t length, int32_t id) {
      reach(length, id, scores_[id]);
      known = known || length == bytes;
    });
    if (!known) reach(bytes, -1, unk_score_);
  }
}

void Unigram::AddUnknown(std::string_view text, std::vector<int32_t>* reversed) const {
  const bool falls_back = byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) {
                            return fallback_[static_cast<uint8_t>(c)] >= 0;
                          });
  if (falls_back) {
    for (auto c = text.rbegin(); c != text.rend(); ++c) {
      reversed->push_back(fallback_[static_cast<uint8_t>(*c)]);
    }
  } else if (unk_ >= 0) {
    reversed->push_back(unk_);
  }
}

void Unigram::Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const {
  FindBest(word, &scratch->best_);
  std::vector<int32_t>& reversed = scratch->ids_;
  reversed.clear();
  size_t end = word.size();  // of what is not added yet
  for (size_t at = word.size(); at > 0;) {
    const Scratch::Best& best = scratch->best_[at];
    const auto begin = static_cast<size_t>(best.begin);
    if (best.id >= 0) {
      if (at < end) AddUnknown(word.substr(at, end - at), &reversed);
      reversed.push_back(best.id);
      end = begin;
    }
    at = begin;
  }
  if (end > 0) AddUnknown(word.substr(0, end), &reversed);
  ids->insert(ids->end(), reversed.rbegin(), reversed.rend());
}

}  // namespace athanor
