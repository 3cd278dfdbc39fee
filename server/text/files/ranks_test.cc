#include "server/text/files/ranks.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/text/tokens/tokenizer.h"

namespace athanor {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

// All bytes by their ids, then these.
std::vector<std::string> Tokens(const std::vector<std::string>& more) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

std::string RanksOf(const std::vector<std::string>& tokens) {
  std::string ranks;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    ranks += absl::Base64Escape(tokens[rank]) + " " + std::to_string(rank) + "\n";
  }
  return ranks;
}

json TekkenOf(const std::vector<std::string>& tokens, int special) {
  json vocabulary = json::array();
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    vocabulary.push_back({{"rank", rank},
                          {"token_bytes", absl::Base64Escape(tokens[rank])},
                          {"token_str", nullptr}});
  }
  return {{"config",
           {{"pattern", R"(\p{L}+|\P{L})"},
            {"num_vocab_tokens", tokens.size() + 9},
            {"default_vocab_size", tokens.size() + special},
            {"default_num_special_tokens", special},
            {"version", "v3"}}},
          {"vocab", vocabulary},
          {"image", json::object()}};
}

Ids Encode(const absl::StatusOr<TokenizerData>& data, const std::vector<Part>& parts,
           bool begin = false) {
  if (!data.ok()) {
    ADD_FAILURE() << data.status();
    return {};
  }
  const auto tokenizer = Tokenizer::Create(*data);
  Ids ids;
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (tokenizer.ok()) EXPECT_TRUE((*tokenizer)->Encode(parts, begin, &ids).ok());
  return ids;
}

TEST(RanksTest, MergesByRankWithinWords) {
  const std::string ranks = RanksOf(Tokens({"ab", "bc", "abc", "\xC3\xA9", "ab1", "1"}));
  EXPECT_TRUE(IsRanks(ranks));
  EXPECT_FALSE(IsRanks("{}"));
  EXPECT_FALSE(IsRanks(""));
  EXPECT_FALSE(IsRanks("a b"));
  // "ab" and then "abc", which also is a word; "e" and an acute are one character in NFC.
  const auto data = ReadRanks(ranks.substr(0, ranks.find("MQ== 261")), "qwen3", true);
  EXPECT_THAT(Encode(data, {{"bcab1abc e\u0301"}}), ElementsAre(257, 256, '1', 258, ' ', 259));
}

TEST(RanksTest, MergesAnyTwoThatAreAToken) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> more;
    for (int n = 0; n < 12; ++n) {
      std::string token(2 + random() % 3, 'a');
      for (char& c : token) c = static_cast<char>('a' + random() % 3);
      if (std::find(more.begin(), more.end(), token) == more.end()) more.push_back(token);
    }
    const std::vector<std::string> tokens = Tokens(more);
    const auto rank = [&](const std::string& token) {
      return std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
    };
    std::string word(random() % 14, 'a');
    for (char& c : word) c = static_cast<char>('a' + random() % 3);
    std::vector<std::string> parts;  // as tiktoken merges: the lowest rank, the leftmost
    for (char c : word) parts.emplace_back(1, c);
    while (true) {
      size_t best = parts.size();
      int64_t least = static_cast<int64_t>(tokens.size());
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        if (const int64_t r = rank(parts[i] + parts[i + 1]); r < least) least = r, best = i;
      }
      if (best == parts.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    if (rank(word) < static_cast<int64_t>(tokens.size())) parts = {word};
    Ids expected;
    for (const std::string& part : parts) expected.push_back(static_cast<int32_t>(rank(part)));
    if (word.empty()) expected.clear();
    EXPECT_EQ(Encode(ReadRanks(RanksOf(tokens), "llama", false), {{word}}), expected) << word;
  }
}

TEST(RanksTest, SpecialTokensStandBehind) {
  const std::string ranks = RanksOf(Tokens({"hi"}));
  EXPECT_THAT(Encode(ReadRanks(ranks, "llama", true), {{"<|eot_id|>", true}, {"hi"}}, true),
              ElementsAre(257, 266, 256));
  const auto data = ReadRanks(ranks, "llama", true);
  EXPECT_EQ(data->added.size(), 256);
  EXPECT_EQ(data->added.back().content, "<|reserved_special_token_245|>");
  EXPECT_THAT(Encode(ReadRanks(ranks, "qwen2", true), {{"<|im_end|>", true}}, true),
              ElementsAre(259));
  EXPECT_TRUE(ReadRanks(ranks, "llama", false)->begin.empty());
}

TEST(RanksTest, RefusesByName) {
  const auto refusal = [](const std::string& ranks, std::string_view type = "llama") {
    return ReadRanks(ranks, type, true).status().ToString();
  };
  const std::string right = RanksOf(Tokens({}));
  EXPECT_THAT(refusal(right, "kimi"), HasSubstr("qwen3_moe, not for \"kimi\""));
  EXPECT_THAT(refusal(right, ""), HasSubstr("not for \"\""));
  EXPECT_THAT(refusal(right + "IQ==\n"), HasSubstr("\"IQ==\""));
  EXPECT_THAT(refusal(right + "IQ== x\n"), HasSubstr("\"IQ== x\""));
  EXPECT_THAT(refusal(right + "I! 256\n"), HasSubstr("\"I! 256\""));
  EXPECT_THAT(refusal(right + "YWI= -1\n"), HasSubstr("no token"));
  EXPECT_THAT(refusal(right + "YWI= 99999999\n"), HasSubstr("no token"));
  EXPECT_THAT(refusal(right + "YWI= 3\n"), HasSubstr("the rank 3 is there twice"));
  EXPECT_THAT(refusal(right + "IQ== 256\n"), HasSubstr("\"!\" is there twice"));
  EXPECT_THAT(refusal(right.substr(right.find('\n') + 1)), HasSubstr("the byte 0"));
  EXPECT_THAT(refusal(""), HasSubstr("the byte 0"));
}

TEST(TekkenTest, RanksStandBehindSpecialTokens) {
  json tekken = TekkenOf(Tokens({"hi"}), 25);
  EXPECT_THAT(Encode(ReadTekken(tekken.dump()), {{"[INST]", true}, {"hi["}}, true),
              ElementsAre(1, 3, 256 + 25, '[' + 25));
  EXPECT_THAT(Encode(ReadTekken(tekken.dump()), {{"<SPECIAL_24>", true}}), ElementsAre(24));
  tekken["special_tokens"] = {{{"rank", 0}, {"token_str", "<a>"}, {"is_control", true}},
                              {{"rank", 1}, {"token_str", "[INST]"}, {"is_control", true}}};
  EXPECT_THAT(Encode(ReadTekken(tekken.dump()), {{"[INST]", true}}, true), ElementsAre(1));
  // Ranks that do not fit into the vocabulary are left out.
  tekken["config"]["default_vocab_size"] = 256 + 25;
  EXPECT_THAT(Encode(ReadTekken(tekken.dump()), {{"hi"}}), ElementsAre('h' + 25, 'i' + 25));
}

TEST(TekkenTest, RefusesByName) {
  const auto refusal = [](auto change) {
    json tekken = TekkenOf(Tokens({}), 20);
    change(&tekken);
    const auto data = ReadTekken(tekken.dump());
    return (data.ok() ? Tokenizer::Create(*data).status() : data.status()).ToString();
  };
  EXPECT_EQ(refusal([](json*) {}), "OK");
  EXPECT_THAT(refusal([](json* t) { t->erase("config"); }), HasSubstr("config"));
  EXPECT_THAT(refusal([](json* t) { t->erase("vocab"); }), HasSubstr("vocab"));
  EXPECT_THAT(refusal([](json* t) { (*t)["config"]["shiny"] = 1; }), HasSubstr("shiny"));
  EXPECT_THAT(refusal([](json* t) { (*t)["config"]["default_vocab_size"] = 10; }),
              HasSubstr("of them special 20"));
  EXPECT_THAT(refusal([](json* t) { (*t)["config"]["default_vocab_size"] = 999; }),
              HasSubstr("at least 979"));
  EXPECT_THAT(refusal([](json* t) { (*t)["config"]["default_num_special_tokens"] = 19; }),
              HasSubstr("20 special tokens; config says 19"));
  EXPECT_THAT(refusal([](json* t) { (*t)["config"]["pattern"] = "("; }), HasSubstr("("));
  EXPECT_THAT(refusal([](json* t) { (*t)["vocab"][7]["rank"] = 8; }), HasSubstr("vocab[7]"));
  EXPECT_THAT(refusal([](json* t) { (*t)["vocab"][7]["token_bytes"] = "?"; }),
              HasSubstr("vocab[7]"));
  EXPECT_THAT(refusal([](json* t) { (*t)["vocab"][7]["token_bytes"] = "IQ=="; }),
              HasSubstr("twice"));
  EXPECT_THAT(refusal([](json* t) { (*t)["special_tokens"] = json::array({{{"rank", 0}}}); }),
              HasSubstr("special_tokens[0]"));
  EXPECT_THAT(ReadTekken("[]").status().ToString(), HasSubstr("no object"));
}

}  // namespace
}  // namespace athanor
