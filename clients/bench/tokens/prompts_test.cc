#include "clients/bench/tokens/prompts.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "clients/bench/tokens/lengths.h"
#include "clients/cpp/inputs/text_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::HasSubstr;

std::string File(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name + std::to_string(getpid());
  EXPECT_TRUE(client::WriteFile(path, bytes).ok());
  return path;
}

Lengths Parsed(const std::string& text, absl::string_view key = kInputKey) {
  const absl::StatusOr<Lengths> lengths = Lengths::Parse("--input_tokens", text, key);
  EXPECT_TRUE(lengths.ok()) << text << ": " << lengths.status();
  return lengths.value_or(Lengths(1));
}

std::vector<int64_t> Drawn(const Lengths& lengths, int count) {
  std::mt19937_64 random(1);
  std::vector<int64_t> drawn;
  for (int i = 0; i < count; ++i) drawn.push_back(lengths.Draw(&random, i));
  return drawn;
}

double MeanOf(const std::vector<int64_t>& values) {
  double sum = 0;
  for (int64_t value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

TEST(LengthsTest, ANumberIsTheOnlyLength) {
  EXPECT_EQ(Parsed("17").fixed(), 17);
  EXPECT_EQ(Drawn(Parsed("17"), 3), (std::vector<int64_t>{17, 17, 17}));
}

TEST(LengthsTest, UniformHasBothEnds) {
  const std::vector<int64_t> drawn = Drawn(Parsed("uniform:3:5"), 300);
  EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()), (std::set<int64_t>{3, 4, 5}));
  EXPECT_EQ(Parsed("uniform:3:5").fixed(), 0);
  EXPECT_EQ(Drawn(Parsed("uniform:4:4"), 1), std::vector<int64_t>{4});
}

// The mean is that of the lengths, not that of their logarithms.
TEST(LengthsTest, LognormalHasItsMean) {
  EXPECT_NEAR(MeanOf(Drawn(Parsed("lognormal:200:0.5"), 20'000)), 200, 4);
  EXPECT_NEAR(MeanOf(Drawn(Parsed("chat"), 50'000)), 161, 6);
  EXPECT_NEAR(MeanOf(Drawn(Parsed("chat", kOutputKey), 50'000)), 338, 12);
  EXPECT_EQ(Drawn(Parsed("lognormal:50:0"), 2), (std::vector<int64_t>{50, 50}));
  const std::vector<int64_t> wide = Drawn(Parsed("lognormal:1:5"), 1000);
  EXPECT_GE(*std::min_element(wide.begin(), wide.end()), 1);
}

TEST(LengthsTest, AFilesLengthsAreUsedInRotation) {
  const std::string path = File("lengths", R"({"input_tokens": 4, "output_tokens": 9}

{"input_tokens": 6, "output_tokens": 2}
)");
  EXPECT_EQ(Drawn(Parsed("file:" + path), 3), (std::vector<int64_t>{4, 6, 4}));
  EXPECT_EQ(Drawn(Parsed("file:" + path, kOutputKey), 2), (std::vector<int64_t>{9, 2}));
  std::mt19937_64 random(1);
  EXPECT_EQ(Parsed("file:" + path).Draw(&random, -1), 6);
}

TEST(LengthsTest, WhatMakesNoLengthIsRefused) {
  for (const char* text : {"", "0", "-1", "1.5", "x", "1000001", "uniform:5:3", "uniform:0:3",
                           "uniform:1", "uniform:1:2:3", "lognormal:0:1", "lognormal:10:-1",
                           "lognormal:10:9", "lognormal:nan:1", "lognormal:10:nan", "chat:2"}) {
    const absl::Status status = Lengths::Parse("--output_tokens", text, kOutputKey).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--output_tokens"));
  }
  EXPECT_FALSE(Lengths::Parse("--f", "file:/no/such", kInputKey).ok());
  for (const char* bytes : {"", "[1]\n", "{\"output_tokens\": 3}\n", "{\"input_tokens\": 0}\n",
                            "{\"input_tokens\": 2.5}\n", "{\"input_tokens\": 3}\n{\n"}) {
    const absl::Status status =
        Lengths::Parse("--f", "file:" + File("bad", bytes), kInputKey).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

PromptOptions Random() {
  PromptOptions options;
  options.input = Lengths(40);
  options.output = Lengths(10);
  options.vocabulary = 5;
  options.not_drawn = {1, 3, -1, 900};
  return options;
}

TEST(PromptsTest, ACallsPromptDependsOnSeedAndNumberOnly) {
  const Prompt one = MakePrompt(Random(), 7, 3);
  EXPECT_EQ(one.tokens.size(), 40u);
  EXPECT_EQ(one.output_tokens, 10);
  EXPECT_EQ(MakePrompt(Random(), 7, 3).tokens, one.tokens);
  EXPECT_NE(MakePrompt(Random(), 7, 4).tokens, one.tokens);
  EXPECT_NE(MakePrompt(Random(), 8, 3).tokens, one.tokens);
  EXPECT_NE(MakePrompt(Random(), uint64_t{7} + (uint64_t{1} << 32), 3).tokens, one.tokens);
}

TEST(PromptsTest, EndTokensAreNotDrawn) {
  std::set<int32_t> seen;
  for (int i = 0; i < 20; ++i) {
    for (int32_t token : MakePrompt(Random(), 0, i).tokens) seen.insert(token);
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 2, 4}));
}

TEST(PromptsTest, LongOnesAreCutToTheModelsLength) {
  PromptOptions options = Random();
  options.max_model_len = 45;
  EXPECT_EQ(MakePrompt(options, 0, 0).tokens.size(), 40u);
  EXPECT_EQ(MakePrompt(options, 0, 0).output_tokens, 5);
  options.max_model_len = 20;
  EXPECT_EQ(MakePrompt(options, 0, 0).tokens.size(), 19u);
  EXPECT_EQ(MakePrompt(options, 0, 0).output_tokens, 1);
}

TEST(PromptsTest, TextsAreUsedInRotation) {
  PromptOptions options = Random();
  const auto texts = ReadPrompts(File("texts", "\"one\"\n\n{\"prompt\": \"two\", \"id\": 3}\n"));
  ASSERT_TRUE(texts.ok()) << texts.status();
  options.texts = *texts;
  EXPECT_EQ(MakePrompt(options, 0, 0).text, "one");
  EXPECT_EQ(MakePrompt(options, 0, 1).text, "two");
  EXPECT_EQ(MakePrompt(options, 0, 2).text, "one");
  EXPECT_TRUE(MakePrompt(options, 0, 2).tokens.empty());
  options.max_model_len = 6;
  EXPECT_EQ(MakePrompt(options, 0, 0).output_tokens, 5);
  options.texts.push_back("three");
  EXPECT_EQ(MakePrompt(options, 0, -1).text, "three");  // warm-up calls are numbered so
  EXPECT_EQ(MakePrompt(options, 0, -4).text, "three");
  for (const char* bytes : {"", "\"\"\n", "3\n", "plain text\n", "{\"text\": \"x\"}\n"}) {
    EXPECT_EQ(ReadPrompts(File("bad", bytes)).status().code(), absl::StatusCode::kInvalidArgument)
        << bytes;
  }
}

TEST(PromptsTest, PromptsOfAGroupBeginAlike) {
  PromptOptions options = Random();
  options.vocabulary = 1000;
  options.prefix_tokens = 30;
  options.prefix_groups = 2;
  const auto prefix = [&](uint64_t seed, int64_t number) {
    const std::vector<int32_t> tokens = MakePrompt(options, seed, number).tokens;
    EXPECT_EQ(tokens.size(), 70u);
    return std::vector<int32_t>(tokens.begin(), tokens.begin() + 30);
  };
  EXPECT_EQ(prefix(7, 0), prefix(7, 2));
  EXPECT_EQ(prefix(7, 0), prefix(8, -2));  // also of other runs, and of warm-up calls
  EXPECT_NE(prefix(7, 0), prefix(7, 1));
  EXPECT_NE(MakePrompt(options, 7, 0).tokens, MakePrompt(options, 7, 2).tokens);
  const std::vector<int32_t> before = prefix(7, 0);
  options.prefix_seed = 1;
  EXPECT_NE(prefix(7, 0), before);
  options.max_model_len = 79;
  EXPECT_THAT(std::string(CheckPrompts(options).message()), HasSubstr("--shared_prefix"));
  options.input = Lengths::Parse("", "uniform:1:100", kInputKey).value();
  EXPECT_TRUE(CheckPrompts(options).ok());
  options.max_model_len = 20;
  EXPECT_FALSE(CheckPrompts(options).ok());
}

TEST(PromptsTest, OptionsThatMakeNoPromptAreRefusedByTheirFlag) {
  EXPECT_TRUE(CheckPrompts(Random()).ok());
  PromptOptions options = Random();
  options.vocabulary = 0;
  EXPECT_THAT(std::string(CheckPrompts(options).message()), HasSubstr("--vocabulary"));
  options.vocabulary = 2;
  options.not_drawn = {0, 1, 1};
  EXPECT_THAT(std::string(CheckPrompts(options).message()), HasSubstr("ends a sequence"));
  options.not_drawn = {1, 1};
  EXPECT_TRUE(CheckPrompts(options).ok());
  options.max_model_len = 49;
  EXPECT_THAT(std::string(CheckPrompts(options).message()), HasSubstr("50 tokens together"));
  options.max_model_len = 1;
  EXPECT_THAT(std::string(CheckPrompts(options).message()), HasSubstr("--max_model_len"));
  options = Random();
  options.vocabulary = 0;
  options.texts = {"a text needs no vocabulary"};
  EXPECT_TRUE(CheckPrompts(options).ok());
}

}  // namespace
}  // namespace athanor::bench
