#include "clients/bench/tokens/conversation.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

PromptOptions Random(int turns) {
  PromptOptions options;
  options.input = Lengths(6);
  options.output = Lengths(3);
  options.vocabulary = 1000;
  options.turns = turns;
  return options;
}

std::vector<int32_t> Joined(std::vector<std::vector<int32_t>> parts) {
  std::vector<int32_t> whole;
  for (const std::vector<int32_t>& part : parts) {
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return whole;
}

TEST(ConversationTest, OneTurnIsAPromptOfItsOwn) {
  const PromptOptions options = Random(1);
  Conversation conversation(&options);
  EXPECT_EQ(conversation.Next(5, 1).tokens, MakePrompt(options, 5, 1).tokens);
  EXPECT_FALSE(conversation.keeps());
  conversation.Keep({"", {1, 2, 3}, 6, 3});
  EXPECT_EQ(conversation.Next(5, 2).tokens, MakePrompt(options, 5, 2).tokens);
}

TEST(ConversationTest, ATurnBeginsWithWhatWasSaid) {
  PromptOptions options = Random(3);
  options.prefix_tokens = 4;
  Conversation conversation(&options);
  const std::vector<int32_t> first = conversation.Next(5, 1).tokens;
  EXPECT_EQ(first, MakePrompt(options, 5, 1).tokens);
  EXPECT_EQ(first.size(), 10u);
  EXPECT_TRUE(conversation.keeps());
  conversation.Keep({"", {1, 2, 3}, 10, 3});
  const std::vector<int32_t> second = conversation.Next(5, 7).tokens;
  EXPECT_EQ(second, Joined({first, {1, 2, 3}, DrawPrompt(options, 5, 7).tokens}));
  conversation.Keep({"", {9}, 19, 1});
  const std::vector<int32_t> third = conversation.Next(5, 8).tokens;
  EXPECT_EQ(third, Joined({second, {9}, DrawPrompt(options, 5, 8).tokens}));
  EXPECT_FALSE(conversation.keeps());
  conversation.Keep({"", {9}, 26, 1});
  EXPECT_EQ(conversation.Next(5, 9).tokens, MakePrompt(options, 5, 9).tokens);
}

TEST(ConversationTest, ACallThatFailsEndsIt) {
  const PromptOptions options = Random(3);
  Conversation conversation(&options);
  conversation.Next(5, 1);
  EXPECT_EQ(conversation.Next(5, 2).tokens, MakePrompt(options, 5, 2).tokens);
  conversation.Keep({"", {1}, 6, 1});
  EXPECT_EQ(conversation.Next(5, 3).tokens.size(), 13u);
  EXPECT_EQ(conversation.Next(5, 4).tokens, MakePrompt(options, 5, 4).tokens);
}

// 6 + 3 tokens, then 9 + 6 + 3.
TEST(ConversationTest, WhatDoesNotFitBeginsAnother) {
  PromptOptions options = Random(3);
  for (const int64_t length : {17, 18}) {
    options.max_model_len = length;
    Conversation conversation(&options);
    conversation.Next(5, 1);
    conversation.Keep({"", {1, 2, 3}, 6, 3});
    EXPECT_EQ(conversation.Next(5, 2).tokens.size(), length == 17 ? 6u : 15u);
  }
}

TEST(ConversationTest, DrawnTokensStandForAnAnswerThatTellsNone) {
  const PromptOptions options = Random(2);
  Conversation conversation(&options);
  const std::vector<int32_t> first = conversation.Next(5, 1).tokens;
  conversation.Keep({"some words", {}, 6, 3});
  EXPECT_EQ(conversation.Next(5, 2).tokens,
            Joined({first, DrawAnswer(options, 5, 1, 3), DrawPrompt(options, 5, 2).tokens}));
  EXPECT_EQ(DrawAnswer(options, 5, 1, 3).size(), 3u);
}

TEST(ConversationTest, ChatsKeepTheirMessages) {
  PromptOptions options = Random(3);
  options.texts = {"one", "two", "three"};
  options.chat = true;
  Conversation conversation(&options);
  EXPECT_THAT(conversation.Next(5, 0).before, IsEmpty());
  conversation.Keep({"aha", {4, 5}, 9, 2});
  Prompt prompt = conversation.Next(5, 1);
  EXPECT_THAT(prompt.before, ElementsAre("one", "aha"));
  EXPECT_EQ(prompt.text, "two");
  EXPECT_THAT(prompt.tokens, IsEmpty());
  conversation.Keep({"so", {}, 9, 2});
  prompt = conversation.Next(5, 2);
  EXPECT_THAT(prompt.before, ElementsAre("one", "aha", "two", "so"));
  EXPECT_EQ(prompt.text, "three");
  EXPECT_THAT(conversation.Next(5, 3).before, IsEmpty());
}

TEST(ConversationTest, TextsGoOnWithTheAnswer) {
  PromptOptions options = Random(2);
  options.texts = {"one ", "two "};
  Conversation conversation(&options);
  conversation.Next(5, 0);
  conversation.Keep({"aha ", {}, 2, 1});
  EXPECT_EQ(conversation.Next(5, 1).text, "one aha two ");
}

// The server's counts of the turn before, the template's tokens, 4 bytes of text, 3 to ask for.
TEST(ConversationTest, ATextThatMightNotFitBeginsAnother) {
  PromptOptions options = Random(2);
  options.texts = {"one ", "two "};
  for (const int64_t length : {100, 101}) {
    options.max_model_len = length;
    Conversation conversation(&options);
    conversation.Next(5, 0);
    conversation.Keep({"aha ", {}, 20, 10});
    EXPECT_EQ(conversation.Next(5, 1).text, length == 100 ? "two " : "one aha two ");
  }
}

}  // namespace
}  // namespace athanor::bench
