#include "server/text/tokens/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/tokens/piece_trie.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

std::vector<std::pair<size_t, int32_t>> FindIn(const PieceTrie& trie, std::string_view text) {
  std::vector<std::pair<size_t, int32_t>> found;
  trie.Find(text, [&](size_t bytes, int32_t value) { found.emplace_back(bytes, value); });
  return found;
}

TEST(PieceTrieTest, FindsAllBeginnings) {
  EXPECT_TRUE(PieceTrie::Create({}).empty());
  EXPECT_THAT(FindIn(PieceTrie::Create({{"", 3}}), "a"), IsEmpty());
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int letters = round % 2 == 0 ? 2 : 256;
    const auto text = [&](size_t most) {
      std::string text(random() % (most + 1), '\0');
      for (char& c : text) c = static_cast<char>(random() % letters);
      return text;
    };
    std::vector<std::string> texts;
    for (size_t n = random() % 40; n > 0; --n) texts.push_back(text(round % 3 == 0 ? 1 : 6));
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    for (size_t i = 0; i < texts.size(); ++i) pieces.emplace_back(texts[i], i);
    const PieceTrie trie = PieceTrie::Create(pieces);
    for (int i = 0; i < 30; ++i) {
      const std::string sought = text(8);
      std::vector<std::pair<size_t, int32_t>> expected;
      for (size_t bytes = 1; bytes <= sought.size(); ++bytes) {
        int32_t value = -1;  // of equal ones the last
        for (const auto& [piece, of] : pieces)
          value = piece == sought.substr(0, bytes) ? of : value;
        if (value >= 0) expected.emplace_back(bytes, value);
      }
      EXPECT_EQ(FindIn(trie, sought), expected);
    }
  }
}

Ids Encode(const TokenizerData& data, std::string_view word) {
  const absl::StatusOr<Unigram> unigram = Unigram::Create(data);
  EXPECT_TRUE(unigram.ok()) << unigram.status();
  Unigram::Scratch scratch;
  Ids ids;
  if (unigram.ok()) unigram->Encode(word, &scratch, &ids);
  return ids;
}

// Returns the best sum of all ways to write a word of characters of one byte.
double BestSum(const TokenizerData& data, std::string_view word) {
  if (word.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  bool known = false;
  for (size_t id = 0; id < data.pieces.size(); ++id) {
    if (!word.starts_with(data.pieces[id])) continue;
    known = known || data.pieces[id].size() == 1;
    best = std::max(best, data.scores[id] + BestSum(data, word.substr(data.pieces[id].size())));
  }
  return known ? best : std::max(best, data.unk_score + BestSum(data, word.substr(1)));
}

TEST(UnigramTest, FindsTheBestOfAllWays) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    TokenizerData data;
    data.unk_score = -20;
    data.unk = 0;
    data.pieces = {"<unk>", "a", "b", "c"};
    data.hidden = {true, false, false, false};
    for (size_t n = 1 + random() % 12; n > 0; --n) {
      std::string piece(2 + random() % 3, 'a');
      for (char& c : piece) c = static_cast<char>('a' + random() % 3);
      if (std::count(data.pieces.begin(), data.pieces.end(), piece) > 0) continue;
      data.pieces.push_back(piece);
      data.hidden.push_back(false);
    }
    for (size_t id = 0; id < data.pieces.size(); ++id) {
      data.scores.push_back(-static_cast<double>(random() % 1000) / 64);
    }
    std::string word(random() % 12, 'a');
    for (char& c : word) c = "abcx"[random() % 4];
    double sum = 0;
    size_t at = 0;
    for (const int32_t id : Encode(data, word)) {
      if (id == 0) {  // stands for all neighbours that are no pieces
        ASSERT_EQ(word[at], 'x');
        for (; at < word.size() && word[at] == 'x'; ++at) sum += data.unk_score;
        continue;
      }
      ASSERT_EQ(word.substr(at, data.pieces[id].size()), data.pieces[id]);
      at += data.pieces[id].size();
      sum += data.scores[id];
    }
    EXPECT_EQ(at, word.size());
    EXPECT_DOUBLE_EQ(sum, BestSum(data, word)) << word;
  }
}

TokenizerData SmallData() {
  TokenizerData data;
  data.pieces = {"<unk>", "a", "b", "ab", "<0xC3>", "<0xA9>"};
  data.scores = {0, -2, -2, -3, 0, 0};
  data.hidden = {true, false, false, false, true, true};
  data.unk = 0;
  data.unk_score = -13;
  return data;
}

TEST(UnigramTest, OfEqualSumsTheFirstFoundStays) {
  TokenizerData data = SmallData();
  EXPECT_THAT(Encode(data, "aab"), ElementsAre(1, 3));
  data.scores[3] = -4;
  EXPECT_THAT(Encode(data, "aab"), ElementsAre(1, 3)) << "found at the earlier place";
  data.scores[3] = -4.5;
  EXPECT_THAT(Encode(data, "aab"), ElementsAre(1, 1, 2));
}

TEST(UnigramTest, UnknownNeighboursAreOne) {
  TokenizerData data = SmallData();
  EXPECT_THAT(Encode(data, ""), IsEmpty());
  EXPECT_THAT(Encode(data, "x\u00e9y"), ElementsAre(0));
  EXPECT_THAT(Encode(data, "xaxy"), ElementsAre(0, 1, 0));
  data.byte_fallback = true;
  EXPECT_THAT(Encode(data, "a\u00e9b"), ElementsAre(1, 4, 5, 2));
  EXPECT_THAT(Encode(data, "\u00e9\u00e9"), ElementsAre(4, 5, 4, 5));
  EXPECT_THAT(Encode(data, "\u00e9x"), ElementsAre(0)) << "x has no piece";
  data.unk = -1;
  EXPECT_THAT(Encode(data, "xa\u00e9"), ElementsAre(1, 4, 5));
}

TEST(UnigramTest, SumsOfF32) {
  TokenizerData data;
  data.pieces = {"a", "b", "ab"};
  data.scores = {-16777216, -0.5, -16777217};
  EXPECT_THAT(Encode(data, "ab"), ElementsAre(0, 1));
  data.rounds_scores = true;
  EXPECT_THAT(Encode(data, "ab"), ElementsAre(2)) << "both are -16777216";
  // Sums begin again at 100,000: behind 262,144 they would lose a hundredth.
  data.scores = {-0.5, -0.5, static_cast<float>(-1.01)};
  std::string word;
  Ids expected;
  for (int i = 0; i < 300'000; ++i) {
    word += "ab";
    expected.insert(expected.end(), {0, 1});
  }
  EXPECT_TRUE(Encode(data, word) == expected);
}

TEST(UnigramTest, RefusesWrongData) {
  const auto refused = [](auto change) {
    TokenizerData data = SmallData();
    change(&data);
    return !Tokenizer::Create(std::move(data)).ok();
  };
  EXPECT_FALSE(refused([](TokenizerData*) {}));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->scores.pop_back(); }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->scores[1] = std::nan(""); }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->unk_score = -HUGE_VAL; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->unk = 6; }));
}

TEST(UnigramTest, TokenizerTakesIt) {
  TokenizerData data = SmallData();
  data.added = {{.content = "<unk>", .id = 0, .special = true}};
  const auto tokenizer = Tokenizer::Create(data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  Ids ids;
  const Part parts[] = {{"ab"}, {"<unk>", true}, {"<unk>a"}};
  ASSERT_TRUE((*tokenizer)->Encode(parts, false, &ids).ok());
  EXPECT_THAT(ids, ElementsAre(3, 0, 0, 1)) << "a user's is text: unknown characters";
}

}  // namespace
}  // namespace athanor
