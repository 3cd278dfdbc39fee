#include "clients/bench/tokens/trace.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "clients/bench/tokens/prompts.h"
#include "clients/cpp/inputs/text_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string File(const std::string& bytes) {
  const std::string path = testing::TempDir() + "/trace" + std::to_string(getpid());
  EXPECT_TRUE(client::WriteFile(path, bytes).ok());
  return path;
}

TEST(TraceTest, CallsAreReadInOrder) {
  const auto trace = ReadTrace(File(
      R"({"timestamp": 500, "input_length": 513, "output_length": 7, "hash_ids": [0, 14]}

{"timestamp": 500, "input_length": 512, "output_length": 1, "hash_ids": [0], "more": "x"}
{"timestamp": 3052.5, "input_length": 1, "output_length": 2, "hash_ids": [28]})"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->size(), 3u);
  EXPECT_EQ((*trace)[0].seconds, 0);
  EXPECT_EQ((*trace)[1].seconds, 0);
  EXPECT_DOUBLE_EQ((*trace)[2].seconds, 2.5525);
  EXPECT_EQ((*trace)[0].input_tokens, 513);
  EXPECT_EQ((*trace)[0].output_tokens, 7);
  EXPECT_THAT((*trace)[0].blocks, ElementsAre(0, 14));
}

TEST(TraceTest, WhatIsNoTraceIsRefusedByItsLine) {
  const std::string good =
      R"({"timestamp": 9, "input_length": 5, "output_length": 7, "hash_ids": [0]})";
  struct Case {
    const char* line;
    const char* why;
  };
  for (const Case& c : {
           Case{"[]", "must be a JSON object"},
           Case{"{", "must be a JSON object"},
           Case{"{}", "\"timestamp\""},
           Case{R"({"timestamp": "9"})", "\"timestamp\""},
           Case{R"({"timestamp": 9, "input_length": 5})", "\"output_length\""},
           Case{R"({"timestamp": 9, "input_length": 0, "output_length": 1, "hash_ids": []})",
                "\"input_length\""},
           Case{R"({"timestamp": 9, "input_length": 2.5, "output_length": 1, "hash_ids": [0]})",
                "\"input_length\""},
           Case{R"({"timestamp": 9, "input_length": 513, "output_length": 1, "hash_ids": [0]})",
                "here 2"},
           Case{R"({"timestamp": 9, "input_length": 5, "output_length": 1})", "\"hash_ids\""},
           Case{R"({"timestamp": 9, "input_length": 5, "output_length": 1, "hash_ids": ["a"]})",
                "whole numbers"},
           Case{R"({"timestamp": 8, "input_length": 5, "output_length": 1, "hash_ids": [0]})",
                "not before it"},
           Case{R"({"timestamp": 1e300, "input_length": 5, "output_length": 1, "hash_ids": [0]})",
                "within a week"},
       }) {
    const absl::Status status = ReadTrace(File(absl::StrCat(good, "\n", c.line))).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2")) << c.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why)) << c.line;
  }
  const std::string late =
      R"({"timestamp": 30, "input_length": 5, "output_length": 7, "hash_ids": [0]})";
  EXPECT_THAT(
      std::string(ReadTrace(File(absl::StrCat(good, "\n", late, "\n", good))).status().message()),
      HasSubstr("line 3 must be due no sooner"));
  EXPECT_THAT(std::string(ReadTrace(File("\n")).status().message()), HasSubstr("holds no call"));
  EXPECT_FALSE(ReadTrace("/no/such/trace").ok());
}

PromptOptions Traced(Trace trace) {
  PromptOptions options;
  options.vocabulary = 1000;
  options.trace = std::make_shared<const Trace>(std::move(trace));
  return options;
}

TEST(TraceTest, EqualBlocksAreEqualTokens) {
  const PromptOptions options = Traced({{0, 1200, 9, {0, 1, 2}}, {0, 1100, 5, {0, 1, 3}}});
  const Prompt one = MakePrompt(options, 7, 0), other = MakePrompt(options, 7, 1);
  EXPECT_EQ(one.tokens.size(), 1200u);
  EXPECT_EQ(other.tokens.size(), 1100u);
  EXPECT_EQ(one.output_tokens, 9);
  EXPECT_EQ(other.output_tokens, 5);
  EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.begin() + 1024, other.tokens.begin()));
  EXPECT_FALSE(std::equal(one.tokens.begin() + 1024, one.tokens.begin() + 1100,
                          other.tokens.begin() + 1024));
  EXPECT_NE(std::vector(one.tokens.begin(), one.tokens.begin() + 512),
            std::vector(one.tokens.begin() + 512, one.tokens.begin() + 1024));
  EXPECT_EQ(MakePrompt(options, 7, 2).tokens, one.tokens);  // in rotation
  EXPECT_EQ(MakePrompt(options, 7, -1).tokens, other.tokens);
  EXPECT_NE(MakePrompt(options, 8, 0).tokens, one.tokens);
}

TEST(TraceTest, LongCallsAreCutToTheModelsLength) {
  PromptOptions options = Traced({{0, 1200, 90, {0, 1, 2}}, {0, 100, 90, {0}}});
  options.max_model_len = 150;
  EXPECT_TRUE(CheckPrompts(options).ok());
  EXPECT_EQ(MakePrompt(options, 7, 0).tokens.size(), 149u);
  EXPECT_EQ(MakePrompt(options, 7, 0).output_tokens, 1);
  EXPECT_EQ(MakePrompt(options, 7, 1).output_tokens, 50);
}

}  // namespace
}  // namespace athanor::bench
