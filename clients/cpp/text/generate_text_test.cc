#include "clients/cpp/text/generate_text.h"

#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using nlohmann::json;

v1::GenerateResponse Last() {
  v1::GenerateResponse last;
  last.set_finish(v1::FINISH_LENGTH);
  last.mutable_usage()->set_prompt_tokens(23);
  last.mutable_usage()->set_generated_tokens(64);
  last.mutable_usage()->set_seed(~uint64_t{0});
  last.mutable_times()->set_started_us(1'000);
  last.mutable_times()->set_first_token_us(213'000);
  last.mutable_times()->set_last_token_us(1'473'000);
  return last;
}

TEST(TerminalText, ShowsWhatWouldSteerTheTerminal) {
  EXPECT_EQ(TerminalText("a\tb\n"), "a\tb\n");
  EXPECT_EQ(TerminalText("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(TerminalText(absl::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(TerminalText("\xc2\x9bm"), "\\x9bm") << "U+009B begins an escape sequence, too";
  EXPECT_EQ(TerminalText("\xc2\xa0é中\U0001f525"), "\xc2\xa0é中\U0001f525");
  EXPECT_EQ(TerminalText(""), "");
}

TEST(SummaryText, TellsCountsTimesAndTheEnd) {
  v1::GenerateResponse last = Last();
  EXPECT_EQ(SummaryText(last),
            "64 tokens behind 23 of the prompt, the first after 0.213 s, then 50.0 tokens a "
            "second; ended at max_tokens or the model's context; seed 18446744073709551615");
  last.mutable_usage()->set_cached_tokens(16);
  last.mutable_usage()->set_generated_tokens(1);
  last.mutable_times()->set_last_token_us(213'000);
  last.set_finish(v1::FINISH_STOP);
  last.mutable_usage()->set_stop_text("\n\"é");
  EXPECT_EQ(SummaryText(last),
            "1 tokens behind 23 of the prompt (16 cached), the first after 0.213 s; ended by "
            "\"\\n\\\"é\"; seed 18446744073709551615");
  last.mutable_usage()->set_generated_tokens(0);
  last.mutable_usage()->clear_cached_tokens();
  last.mutable_usage()->clear_stop_text();
  EXPECT_EQ(SummaryText(last),
            "0 tokens behind 23 of the prompt; ended by token 0; seed 18446744073709551615");
}

TEST(GenerateJson, HasPiecesAndAtTheEndTheRest) {
  v1::GenerateResponse piece;
  piece.set_text("é\n");
  piece.add_tokens(7);
  EXPECT_EQ(GenerateJson(piece), json::parse(R"({"text": "é\n", "tokens": [7]})"));
  v1::Logprobs* logprobs = piece.add_logprobs();
  logprobs->mutable_chosen()->set_token(7);
  logprobs->mutable_chosen()->set_logprob(-0.5);
  logprobs->mutable_chosen()->set_text("\xc3");
  *logprobs->add_likeliest() = logprobs->chosen();
  EXPECT_EQ(GenerateJson(piece)["logprobs"],
            json::parse(R"([{"chosen": {"token": 7, "logprob": -0.5, "bytes": [195]},
                             "likeliest": [{"token": 7, "logprob": -0.5, "bytes": [195]}]}])"));
  v1::GenerateResponse last = Last();
  json told = GenerateJson(last);
  EXPECT_EQ(told["finish"], "length");
  EXPECT_EQ(told["usage"]["seed"], ~uint64_t{0});
  EXPECT_FALSE(told["usage"].contains("stop_token"));
  EXPECT_EQ(told["times"]["first_token_us"], 213'000);
  EXPECT_DOUBLE_EQ(told["tokens_per_second"], 50);
  last.set_finish(v1::FINISH_STOP);
  last.mutable_usage()->set_stop_token(0);
  told = GenerateJson(last);
  EXPECT_EQ(told["finish"], "stop");
  EXPECT_EQ(told["usage"]["stop_token"], 0) << "token 0 is a token";
  last.mutable_usage()->clear_stop_token();
  last.mutable_usage()->set_stop_text("x");
  told = GenerateJson(last);
  EXPECT_EQ(told["usage"]["stop_text"], "x");
  EXPECT_FALSE(told["usage"].contains("stop_token"));
}

}  // namespace
}  // namespace athanor::client
