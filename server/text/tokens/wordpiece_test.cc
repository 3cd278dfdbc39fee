#include "server/text/tokens/wordpiece.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/files/bert.h"
#include "server/text/tokens/detokenizer.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

TokenizerData SmallData() {
  TokenizerData data;
  data.pieces = {"[UNK]", "ba", "##na", "##n", "b", "na", "##\u00e9", "\u00e9"};
  data.unk = 0;
  data.word_pieces.emplace();
  return data;
}

Ids Encode(const TokenizerData& data, std::string_view word) {
  const absl::StatusOr<WordPiece> pieces = WordPiece::Create(data);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  Ids ids;
  if (pieces.ok()) pieces->Encode(word, &ids);
  return ids;
}

TEST(WordPieceTest, TakesTheLongestPieces) {
  const TokenizerData data = SmallData();
  EXPECT_THAT(Encode(data, ""), IsEmpty());
  EXPECT_THAT(Encode(data, "ba"), ElementsAre(1));
  EXPECT_THAT(Encode(data, "banana"), ElementsAre(1, 2, 2));
  EXPECT_THAT(Encode(data, "bann"), ElementsAre(1, 3, 3));
  EXPECT_THAT(Encode(data, "na"), ElementsAre(5));
  EXPECT_THAT(Encode(data, "ba\u00e9"), ElementsAre(1, 6));
}

TEST(WordPieceTest, AWordWithAnUnknownRestIsUnknown) {
  const TokenizerData data = SmallData();
  EXPECT_THAT(Encode(data, "bananax"), ElementsAre(0));
  EXPECT_THAT(Encode(data, "bb"), ElementsAre(0)) << "b continues no word";
  EXPECT_THAT(Encode(data, "banab"), ElementsAre(0)) << "the longest piece is taken, right or not";
  EXPECT_THAT(Encode(data, "[UNK]"), ElementsAre(0));
  TokenizerData hidden = data;
  hidden.hidden = {false, true, false, false, false, false, false, false};
  EXPECT_THAT(Encode(hidden, "bana"), ElementsAre(0)) << "b has no a behind it";
}

TEST(WordPieceTest, CountsCharacters) {
  TokenizerData data = SmallData();
  data.word_pieces->max_characters = 3;
  EXPECT_THAT(Encode(data, "\u00e9\u00e9\u00e9"), ElementsAre(7, 6, 6));
  EXPECT_THAT(Encode(data, "\u00e9\u00e9\u00e9\u00e9"), ElementsAre(0));
  EXPECT_THAT(Encode(data, "bana"), ElementsAre(0));
  data.word_pieces->max_characters = 0;
  EXPECT_THAT(Encode(data, "b"), ElementsAre(0));
}

// Finds the pieces by their texts, as the definition says it.
Ids EncodeSlowly(const TokenizerData& data, const std::string& word) {
  std::map<std::string, int32_t> ids;
  for (size_t id = 0; id < data.pieces.size(); ++id) {
    if (!data.hidden[id]) ids[data.pieces[id]] = static_cast<int32_t>(id);
  }
  if (static_cast<int64_t>(word.size()) > data.word_pieces->max_characters) return {data.unk};
  Ids found;
  for (size_t at = 0; at < word.size();) {
    size_t end = word.size();
    const auto text = [&] {
      return (at > 0 ? data.word_pieces->prefix : "") + word.substr(at, end - at);
    };
    while (end > at && !ids.contains(text())) --end;
    if (end == at) return {data.unk};
    found.push_back(ids[text()]);
    at = end;
  }
  return found;
}

TEST(WordPieceTest, EqualsTheDefinition) {
  std::mt19937 random(1);
  int known = 0;
  for (int round = 0; round < 500; ++round) {
    TokenizerData data;
    data.pieces = {"?"};
    data.unk = 0;
    data.word_pieces = {.prefix = std::vector<std::string>{"##", "", "a"}[round % 3],
                        .max_characters = round % 5 == 0 ? 4 : 100};
    for (size_t n = 1 + random() % 15; n > 0; --n) {
      std::string piece(1 + random() % 4, 'a');
      for (char& c : piece) c = "abc#"[random() % 4];
      data.pieces.push_back(random() % 2 == 0 ? data.word_pieces->prefix + piece : piece);
    }
    data.hidden.resize(data.pieces.size());
    for (size_t id = 0; id < data.hidden.size(); ++id) data.hidden[id] = random() % 8 == 0;
    for (int i = 0; i < 40; ++i) {
      std::string word(1 + random() % 7, 'a');
      for (char& c : word) c = "abc#"[random() % 4];
      const Ids expected = EncodeSlowly(data, word);
      EXPECT_EQ(Encode(data, word), expected) << word;
      known += expected != Ids{0} ? 1 : 0;
    }
  }
  EXPECT_GT(known, 1000);
}

// Each byte of a word is looked at a bounded number of times; square work would not end here.
TEST(WordPieceTest, LongWords) {
  TokenizerData data = SmallData();
  const std::string word = "b" + std::string(20'000'000, 'n');
  EXPECT_THAT(Encode(data, word), ElementsAre(0));
  data.pieces.push_back("##" + std::string(400, 'n') + "x");
  data.pieces[1] = "bn";
  data.word_pieces->max_characters = int64_t{1} << 40;
  EXPECT_EQ(Encode(data, word.substr(0, 50'001)).size(), 50'000u);
}

TEST(WordPieceTest, RefusesWrongData) {
  const auto refusal = [](auto change) {
    TokenizerData data = SmallData();
    change(&data);
    return Tokenizer::Create(std::move(data)).status().ToString();
  };
  EXPECT_EQ(refusal([](TokenizerData*) {}), "OK");
  EXPECT_THAT(refusal([](TokenizerData* d) { d->unk = -1; }), HasSubstr("unknown token"));
  EXPECT_THAT(refusal([](TokenizerData* d) { d->unk = 8; }), HasSubstr("is 8, of 8"));
  EXPECT_THAT(refusal([](TokenizerData* d) { d->word_pieces->max_characters = -1; }),
              HasSubstr("-1 characters"));
  EXPECT_THAT(refusal([](TokenizerData* d) { d->pieces.emplace_back(4097, 'a'); }),
              HasSubstr("the token 8 has 4097 bytes"));
}

std::shared_ptr<const Tokenizer> BertOf(std::vector<std::string> pieces, const BertRules& rules) {
  TokenizerData data;
  data.pieces = std::move(pieces);
  data.unk = 0;
  data.added = {{.content = "[UNK]", .id = 0, .special = true},
                {.content = "[CLS]", .id = 1, .special = true},
                {.content = "[SEP]", .id = 2, .special = true}};
  data.begin = {1};
  data.end = {2};
  SetBert(rules, &data);
  auto made = Tokenizer::Create(std::move(data));
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : nullptr;
}

Ids EncodeText(const Tokenizer& tokenizer, const std::vector<Part>& parts, bool around = false) {
  Ids ids;
  const absl::Status status = tokenizer.Encode(parts, around, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

TEST(BertTest, NormalizesAsTheRulesSay) {
  const std::vector<std::string> pieces = {"[UNK]", "[CLS]",  "[SEP]",    "e",        "\u00e9",
                                           "E",     "\u4e2d", "##\u4e2d", "##\u00e9", "."};
  const auto uncased = BertOf(pieces, {});
  EXPECT_THAT(EncodeText(*uncased, {{"E\u00c9e\u0301"}}), ElementsAre(0)) << "eee has no ##e";
  EXPECT_THAT(EncodeText(*uncased, {{"E\t\u00c9\u00a0\u0001e\u0301"}}), ElementsAre(3, 3, 3));
  EXPECT_THAT(EncodeText(*uncased, {{"\u4e2d\u4e2d"}}), ElementsAre(6, 6));
  EXPECT_THAT(EncodeText(*uncased, {{"e\u00ad.\ue000..\ufffd\u200be"}}),
              ElementsAre(3, 9, 9, 9, 3));
  const auto cased = BertOf(pieces, {.lowercase = false, .strip_accents = false});
  EXPECT_THAT(EncodeText(*cased, {{"E\u00e9 \u00e9 e"}}), ElementsAre(5, 8, 4, 3));
  const auto accents = BertOf(pieces, {.han = false, .strip_accents = false});
  EXPECT_THAT(EncodeText(*accents, {{"E\u00c9 \u4e2d\u4e2d"}}), ElementsAre(3, 8, 6, 7));
  const auto dirty = BertOf(pieces, {.clean = false});
  EXPECT_THAT(EncodeText(*dirty, {{"e\u00ad e"}}), ElementsAre(0, 3)) << "the soft hyphen stays";
}

TEST(BertTest, PutsTokensAroundAndKeepsSpecialOnesFromUsers) {
  const auto bert = BertOf({"[UNK]", "[CLS]", "[SEP]", "a", "[", "]", "sep"}, {});
  EXPECT_THAT(EncodeText(*bert, {}, true), ElementsAre(1, 2));
  EXPECT_THAT(EncodeText(*bert, {{"a"}}, true), ElementsAre(1, 3, 2));
  EXPECT_THAT(EncodeText(*bert, {{"a[SEP]a"}}), ElementsAre(3, 4, 6, 5, 3));
  EXPECT_THAT(EncodeText(*bert, {{"a[SEP]a", true}}), ElementsAre(3, 2, 3));
}

std::string Decode(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids,
                   Detokenizer::Options options = {}) {
  std::string text;
  Detokenizer detokenizer(tokenizer, options);
  for (const int32_t id : ids) detokenizer.Add(id, &text);
  detokenizer.End(&text);
  return text;
}

TEST(BertTest, JoinsWords) {
  const auto bert =
      BertOf({"[UNK]", "[CLS]", "[SEP]", "a", "##b", "##", ".", "n't", "do not", "x ' y"}, {});
  EXPECT_EQ(Decode(bert, {}), "");
  EXPECT_EQ(Decode(bert, {1, 3, 4, 3, 6, 2}), "ab a.");
  EXPECT_EQ(Decode(bert, {1, 3, 2}, {.special = true}), "[CLS] a [SEP]");
  EXPECT_EQ(Decode(bert, {4, 4}), "##bb") << "the first token stays as it is";
  EXPECT_EQ(Decode(bert, {5, 5, 3}), "## a");
  EXPECT_EQ(Decode(bert, {3, 7, 8, 9}), "an't don't x'y");
  EXPECT_EQ(Decode(bert, {3, 4}, {.continues = true}), " ab");
  EXPECT_EQ(Decode(bert, {99, 3}), "a") << "no token is no first one";
}

}  // namespace
}  // namespace athanor
