#include "server/text/tokens/tokenizer.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/tokens/detokenizer.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

// Characters a, b, c, space; merges ab, abc; added tokens.
TokenizerData SmallData() {
  TokenizerData data;
  data.pieces = {"a", "b", "c", " ", "ab", "abc", "<s>"};
  data.merges = {{0, 1, 4, 0}, {4, 2, 5, 1}};
  data.added = {{.content = "<s>", .id = 6, .special = true},
                {.content = "<s>b", .id = 7},
                {.content = "cc", .id = 8}};
  data.begin = {6};
  return data;
}

std::shared_ptr<const Tokenizer> Make(TokenizerData data) {
  auto tokenizer = Tokenizer::Create(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, const std::vector<Part>& parts, bool begin = false) {
  Ids ids;
  const absl::Status status = tokenizer.Encode(parts, begin, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

std::string Decode(std::shared_ptr<const Tokenizer> tokenizer, const Ids& ids,
                   Detokenizer::Options options = {}) {
  std::string text;
  Detokenizer detokenizer(std::move(tokenizer), options);
  for (int32_t id : ids) detokenizer.Add(id, &text);
  detokenizer.End(&text);
  return text;
}

TEST(TokenizerTest, MergesByRank) {
  const auto tokenizer = Make(SmallData());
  EXPECT_EQ(tokenizer->size(), 9);
  EXPECT_THAT(Encode(*tokenizer, {}), IsEmpty());
  EXPECT_THAT(Encode(*tokenizer, {{""}}), IsEmpty());
  EXPECT_THAT(Encode(*tokenizer, {{"abcab"}}), ElementsAre(5, 4));
  EXPECT_THAT(Encode(*tokenizer, {{"bca"}}, true), ElementsAre(6, 1, 2, 0));
  // There is no unknown token: x is left out.
  EXPECT_THAT(Encode(*tokenizer, {{"axb"}}), ElementsAre(4));
}

TEST(TokenizerTest, PartsAreOneText) {
  const auto tokenizer = Make(SmallData());
  EXPECT_THAT(Encode(*tokenizer, {{"a", true}, {"b", false}, {"c", true}}), ElementsAre(5));
}

TEST(TokenizerTest, UsersTextHasNoSpecialTokens) {
  TokenizerData data = SmallData();
  data.pieces.insert(data.pieces.end(), {"", "", "<", "s", ">"});
  const auto tokenizer = Make(std::move(data));
  EXPECT_THAT(Encode(*tokenizer, {{"<s>", true}}), ElementsAre(6));
  EXPECT_THAT(Encode(*tokenizer, {{"<s>", false}}), ElementsAre(9, 10, 11));
  // Neither where a trusted part helps at one end, nor where it surrounds it.
  EXPECT_THAT(Encode(*tokenizer, {{"<", true}, {"s>", false}}), ElementsAre(9, 10, 11));
  EXPECT_THAT(Encode(*tokenizer, {{"<s", false}, {">", true}}), ElementsAre(9, 10, 11));
  EXPECT_THAT(Encode(*tokenizer, {{"<", true}, {"s", false}, {">", true}}), ElementsAre(9, 10, 11));
  // Two trusted parts are one, also around an empty one.
  EXPECT_THAT(Encode(*tokenizer, {{"<", true}, {"", false}, {"s>", true}}), ElementsAre(6));
  // Tokens that are not special are found anywhere; the longest wins.
  EXPECT_THAT(Encode(*tokenizer, {{"cc<s>b", false}}), ElementsAre(8, 7));
  // What a user writes does not hide the special token that follows.
  EXPECT_THAT(Encode(*tokenizer, {{"<s", false}, {"<s>", true}}), ElementsAre(9, 10, 6));
}

TEST(TokenizerTest, UsersWordsNeverBecomeSpecialTokens) {
  TokenizerData data;
  data.pieces = {"<s>", "<", "s", ">", "<s"};
  data.added = {{.content = "<s>", .id = 0, .special = true}};
  data.ignore_merges = true;
  EXPECT_THAT(Encode(*Make(data), {{"<s>", false}}), ElementsAre(1, 2, 3));
  EXPECT_THAT(Encode(*Make(data), {{"<s>", true}}), ElementsAre(0));
  EXPECT_THAT(Encode(*Make(data), {{"<s", false}}), ElementsAre(4));
  data.ignore_merges = false;
  data.merges = {{1, 2, 4, 0}, {4, 3, 0, 1}};
  EXPECT_THAT(Encode(*Make(data), {{"<s>", false}}), ElementsAre(4, 3));
  EXPECT_THAT(Encode(*Make(data), {{"<s>", true}}), ElementsAre(0));
  // Neither a special token of one character.
  data.added.push_back({.content = "s", .id = 2, .special = true});
  EXPECT_THAT(Encode(*Make(data), {{"<s", false}}), ElementsAre(1));
  EXPECT_THAT(Encode(*Make(data), {{"<s", true}}), ElementsAre(1, 2));
}

TEST(TokenizerTest, MergesAsOneByOne) {
  // A random vocabulary over two letters: the heap finds what looking for the best pair finds.
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    TokenizerData data;
    data.pieces = {"a", "b"};
    const int merges = 1 + static_cast<int>(random() % 12);
    for (int rank = 0; rank < merges; ++rank) {
      const auto left = static_cast<int32_t>(random() % data.pieces.size());
      const auto right = static_cast<int32_t>(random() % data.pieces.size());
      const std::string both = data.pieces[left] + data.pieces[right];
      if (std::find(data.pieces.begin(), data.pieces.end(), both) != data.pieces.end()) continue;
      data.merges.push_back({left, right, static_cast<int32_t>(data.pieces.size()), rank});
      data.pieces.push_back(both);
    }
    std::string text;
    for (int i = static_cast<int>(random() % 70); i > 0; --i) text += "ab"[random() % 2];
    Ids expected;
    for (char c : text) expected.push_back(c - 'a');
    for (const Merge* best = data.merges.data(); best != nullptr;) {
      best = nullptr;
      size_t at = 0;
      for (size_t i = 0; i + 1 < expected.size(); ++i) {
        for (const Merge& merge : data.merges) {
          if (merge.left != expected[i] || merge.right != expected[i + 1]) continue;
          if (best == nullptr || merge.rank < best->rank) best = &merge, at = i;
        }
      }
      if (best == nullptr) break;
      expected[at] = best->result;
      expected.erase(expected.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    EXPECT_EQ(Encode(*Make(data), {{text}}), expected) << text;
  }
}

TEST(TokenizerTest, UnknownCharactersAndBytes) {
  TokenizerData data;
  data.pieces = {"<unk>", "a", "<0xC3>", "<0xA9>"};
  data.unk = 0;
  data.byte_fallback = true;
  EXPECT_THAT(Encode(*Make(data), {{"a\xC3\xA9xya"}}), ElementsAre(1, 2, 3, 0, 0, 1));
  data.fuse_unk = true;
  EXPECT_THAT(Encode(*Make(data), {{"xyax"}}), ElementsAre(0, 1, 0));
  data.byte_fallback = false;
  EXPECT_THAT(Encode(*Make(data), {{"\xC3\xA9y"}}), ElementsAre(0));
}

TEST(TokenizerTest, RefusesBrokenText) {
  Ids ids;
  const Part parts[] = {{"ab"}, {"\xC3"}, {"\xA9"}};
  const absl::Status status = Make(SmallData())->Encode(parts, false, &ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("byte 2"));
}

TEST(TokenizerTest, RefusesWrongData) {
  const auto refused = [](auto change) {
    TokenizerData data = SmallData();
    change(&data);
    return !Tokenizer::Create(std::move(data)).ok();
  };
  EXPECT_FALSE(refused([](TokenizerData*) {}));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->pieces.clear(); }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->begin = {9}; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->end = {-1}; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->unk = 7; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->merges[0].left = 7; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->merges[0].rank = -1; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->hidden = {true}; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->added[0].id = -1; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->added[0].id = INT32_MAX; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->added[0].id = 1; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->added[2].content = ""; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->replace = {{"", "x"}}; }));
  EXPECT_FALSE(refused([](TokenizerData* d) { d->replace.assign(15, {"a", "aa"}); }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->replace.assign(40, {"a", "aa"}); }));
  EXPECT_TRUE(refused([](TokenizerData* d) {  // short each, but long together
    *d = {.pieces = std::vector<std::string>(2400, std::string(60'000, 'a'))};
  }));
  EXPECT_TRUE(refused([](TokenizerData* d) {
    d->added[2].normalized = true;
    d->normalize = {{NormalizeStep::kReplace, "c", std::string(70'000, 'c')}};
  }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->normalize = {{NormalizeStep::kReplace}}; }));
  EXPECT_TRUE(refused([](TokenizerData* d) { d->split = {{.pattern = "("}}; }));
}

TEST(DetokenizerTest, TextLeavesAtCodePoints) {
  TokenizerData data;
  data.pieces = {"a", "\xC3\x84", "\xC2\xA4", "<e>", "\xC4\xA0"};  // bytes a, C4, A4, -, space
  data.added = {{.content = "<e>", .id = 3, .special = true}};
  data.byte_level = true;
  const auto tokenizer = Make(data);
  EXPECT_EQ(tokenizer->BytesOf(1), "\xC4");
  EXPECT_EQ(tokenizer->BytesOf(4), " ");
  EXPECT_EQ(tokenizer->BytesOf(-1), "");
  EXPECT_EQ(tokenizer->BytesOf(5), "");
  Detokenizer detokenizer(tokenizer);
  std::string text;
  detokenizer.Add(1, &text);
  EXPECT_EQ(text, "");
  detokenizer.Add(3, &text);  // special tokens have no text
  detokenizer.Add(2, &text);
  EXPECT_EQ(text, "\xC4\xA4");
  EXPECT_EQ(Decode(tokenizer, {1, 0, 2, 1}),
            "\xEF\xBF\xBD"
            "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Decode(tokenizer, {3, 0}, {.special = true}), "<e>a");
}

TEST(DetokenizerTest, SpacesAtTheBeginning) {
  TokenizerData data;
  data.pieces = {"_a", "_", "<0xE2>", "<0x82>"};
  data.byte_fallback = true;
  data.replace = {{"_", " "}};
  data.strip_left = 1;
  EXPECT_EQ(Decode(Make(data), {1, 0, 0}), " a a");
  EXPECT_EQ(Decode(Make(data), {0}, {.continues = true}), " a");
  EXPECT_EQ(Decode(Make(data), {2, 3, 0}), "\xEF\xBF\xBD\xEF\xBF\xBD a");
  data.strip_left = 0;
  data.strip_first_token = true;
  EXPECT_EQ(Decode(Make(data), {1, 0, 0}), " a a");
  EXPECT_EQ(Decode(Make(data), {0, 0}), "a a");
}

}  // namespace
}  // namespace athanor
