// Streams from given bytes at given times: nothing here waits.
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/bench/tokens/openai_stream.h"
#include "clients/bench/tokens/sse.h"
#include "clients/bench/tokens/stream_collector.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Clock::time_point At(int ms) { return Clock::time_point() + std::chrono::milliseconds(ms); }

std::vector<std::string> Events(const std::vector<std::string>& pieces, bool* pending) {
  SseReader reader;
  std::vector<std::string> events;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(reader.Feed(piece, [&](const std::string& data) { events.push_back(data); }).ok());
  }
  *pending = reader.pending();
  return events;
}

TEST(SseTest, EventsAreTheSameWhereverBytesAreCut) {
  const std::string bytes =
      ": comment\r\ndata: one\r\n\r\nevent: x\nid: 3\ndata:two\ndata: three\n\ndata\n\n\n"
      "data:  four\r\rretry: 1\n\ndatum: no\n\n";
  bool pending = false;
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_THAT(Events({bytes.substr(0, cut), bytes.substr(cut)}, &pending),
                ElementsAre("one", "two\nthree", " four"))
        << cut;
    EXPECT_FALSE(pending);
  }
}

TEST(SseTest, AnEventThatIsCutOffIsDropped) {
  bool pending = false;
  EXPECT_THAT(Events({"data: one\n\ndata: tw"}, &pending), ElementsAre("one"));
  EXPECT_TRUE(pending);
  EXPECT_THAT(Events({"data: one\n"}, &pending), ElementsAre());
  EXPECT_TRUE(pending);
}

TEST(SseTest, AnEndlessEventIsRefused) {
  SseReader reader;
  const std::string piece(100'000, 'x');
  absl::Status status;
  for (int i = 0; i < 11 && status.ok(); ++i) {
    status = reader.Feed(piece, [](const std::string&) { FAIL(); });
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

StreamCollector Begun(int64_t asked, bool exact = true) {
  StreamCollector stream;
  stream.Begin({.sent_tokens = 8, .asked = asked, .exact = exact});
  return stream;
}

TEST(StreamCollectorTest, TimesCountFromTheRunsBeginning) {
  StreamCollector stream = Begun(5);
  stream.Chunk(At(130), 2);
  stream.Chunk(At(150), 3);
  stream.Usage({.input_tokens = 0, .cached_tokens = 4, .output_tokens = 5});
  ASSERT_TRUE(stream.End().ok()) << stream.End();
  CallRecord record;
  stream.Tell(At(100), &record);
  EXPECT_EQ(record.done_ns, 50'000'000);
  ASSERT_NE(record.tokens, nullptr);
  EXPECT_EQ(record.tokens->input_tokens, 8);  // as sent: the server did not tell
  EXPECT_EQ(record.tokens->cached_tokens, 4);
  EXPECT_EQ(record.tokens->output_tokens, 5);
  EXPECT_THAT(record.tokens->chunk_ns, ElementsAre(30'000'000, 50'000'000));
  EXPECT_THAT(record.tokens->chunk_tokens, ElementsAre(2, 3));
}

TEST(StreamCollectorTest, AStreamThatIsNotWhatWasAskedForSaysWhy) {
  struct Case {
    std::vector<int32_t> chunks;
    int64_t usage;  // -1: none
    bool exact;
    const char* why;  // null: answered
  };
  for (const Case& c :
       {Case{{1, 1, 1}, 3, true, nullptr}, Case{{}, 0, true, "without a token; 3 were asked for"},
        Case{{}, 0, false, "without a token"}, Case{{1, 1}, -1, true, "without its usage"},
        Case{{1, 1}, 2, true, "2 of 3 tokens: it ended early"}, Case{{1, 1}, 2, false, nullptr},
        Case{{2, 2}, 4, true, "4 of 3 tokens"}, Case{{2, 2}, 4, false, "4 of 3 tokens"},
        Case{{1, 1}, 3, true, "brought 2 tokens, but its usage says 3"},
        Case{{-1, -1}, 3, true, nullptr}, Case{{-1, -1}, 2, true, "ended early"}}) {
    StreamCollector stream = Begun(3, c.exact);
    for (int32_t tokens : c.chunks) stream.Chunk(At(1), tokens);
    if (c.usage >= 0) stream.Usage({.output_tokens = c.usage});
    const absl::Status status = stream.End();
    if (c.why == nullptr) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

// A prompt of 6 tokens leaves 2 of 8 for its output.
TEST(StreamCollectorTest, AStreamMayEndAtTheModelsContext) {
  struct Case {
    int64_t input, max_model_len;
    bool length, ok;
  };
  for (const Case& c : {Case{6, 8, true, true}, Case{6, 8, false, false}, Case{5, 8, true, false},
                        Case{6, 0, true, false}}) {
    StreamCollector stream;
    stream.Begin({.asked = 7, .max_model_len = c.max_model_len});
    for (int i = 0; i < 2; ++i) stream.Chunk(At(1), 1);
    stream.Usage({.input_tokens = c.input, .output_tokens = 2, .length = c.length});
    EXPECT_EQ(stream.End().ok(), c.ok) << c.input << " of " << c.max_model_len << c.length;
  }
}

// A stream begun again knows nothing of the one before.
TEST(StreamCollectorTest, IsUsedAgain) {
  StreamCollector stream = Begun(1);
  stream.Chunk(At(1), 1);
  stream.Usage({.output_tokens = 1});
  EXPECT_TRUE(stream.End().ok());
  stream.Begin({.asked = 1});
  EXPECT_EQ(stream.output_tokens(), 0);
  EXPECT_FALSE(stream.End().ok());
}

std::string Data(const std::string& json) { return absl::StrCat("data: ", json, "\n\n"); }
std::string Text(const std::string& text, const std::string& reason = "null") {
  return Data(
      absl::StrCat(R"({"choices":[{"text":")", text, R"(","finish_reason":)", reason, "}]}"));
}
const char kUsage2[] = R"({"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}})";

absl::Status Ended(StreamCollector* collector, const std::vector<std::string>& pieces) {
  OpenAiStream stream(collector);
  int ms = 0;
  for (const std::string& piece : pieces) {
    if (!stream.Feed(piece, At(ms += 10))) break;
  }
  return stream.End();
}

TEST(OpenAiStreamTest, CompletionsHaveAChunkPerChoice) {
  StreamCollector collector = Begun(2);
  const absl::Status status = Ended(
      &collector, {Text("a"), Text(""), Text("", "\"length\""), Data(kUsage2), Data("[DONE]")});
  ASSERT_TRUE(status.ok()) << status;
  CallRecord record;
  collector.Tell(At(0), &record);
  EXPECT_THAT(record.tokens->chunk_ns, ElementsAre(10'000'000, 20'000'000));
  EXPECT_EQ(record.tokens->input_tokens, 4);
  EXPECT_EQ(record.tokens->output_tokens, 2);
  EXPECT_TRUE(record.tokens->chunk_tokens.empty());
}

TEST(OpenAiStreamTest, AChatsOpeningAndClosingAreNoChunks) {
  StreamCollector collector = Begun(2);
  const auto delta = [](const std::string& delta, const std::string& reason = "null") {
    return Data(
        absl::StrCat(R"({"choices":[{"delta":)", delta, R"(,"finish_reason":)", reason, "}]}"));
  };
  const absl::Status status =
      Ended(&collector, {delta(R"({"role":"assistant","content":null})"),
                         delta(R"({"content":"a"})"), delta(R"({"content":"b"})", "\"length\""),
                         delta("{}", "\"length\""), Data(kUsage2) + Data("[DONE]")});
  ASSERT_TRUE(status.ok()) << status;
  CallRecord record;
  collector.Tell(At(0), &record);
  EXPECT_THAT(record.tokens->chunk_ns, ElementsAre(20'000'000, 30'000'000));
}

TEST(OpenAiStreamTest, OnlyAReasonOfLengthIsTheContextsEnd) {
  for (const bool length : {true, false}) {
    StreamCollector collector;
    collector.Begin({.asked = 5, .max_model_len = 6});
    const absl::Status status =
        Ended(&collector, {Text("a"), Text("b"), Text("", length ? "\"length\"" : "\"stop\""),
                           Data(kUsage2), Data("[DONE]")});
    EXPECT_EQ(status.ok(), length) << status;
  }
}

// Its only token, the end, has no text: the closing event is its chunk.
TEST(OpenAiStreamTest, AnAnswerOfTheEndTokenHasAChunk) {
  const std::string role = Data(R"({"choices":[{"delta":{"role":"assistant"}}]})");
  const std::string one = Data(R"({"choices":[],"usage":{"completion_tokens":1}})");
  const std::string none = Data(R"({"choices":[],"usage":{"completion_tokens":0}})");
  struct Case {
    std::vector<std::string> pieces;
    bool exact, ok;
  };
  for (const Case& c :
       {Case{{role, Text("", "\"stop\""), one}, false, true},
        Case{{role, Text("", "\"stop\""), one}, true, false},
        Case{{role, Text("", "\"stop\""), none}, false, false}, Case{{role, one}, false, false}}) {
    StreamCollector collector = Begun(2, c.exact);
    std::vector<std::string> pieces = c.pieces;
    pieces.push_back(Data("[DONE]"));
    const absl::Status status = Ended(&collector, pieces);
    EXPECT_EQ(status.ok(), c.ok) << status;
    if (!c.ok) continue;
    CallRecord record;
    collector.Tell(At(0), &record);
    EXPECT_THAT(record.tokens->chunk_ns, ElementsAre(20'000'000));
  }
}

TEST(OpenAiStreamTest, WrongStreamsAreNamed) {
  struct Case {
    std::vector<std::string> pieces;
    absl::StatusCode code;
    const char* why;
  };
  const Case cases[] = {
      {{}, absl::StatusCode::kDataLoss, "cut after 0 of 2 tokens"},
      {{Text("a")}, absl::StatusCode::kDataLoss, "cut after 1 of 2 tokens"},
      {{Text("a"), Text("b"), Data(kUsage2)}, absl::StatusCode::kDataLoss, "without [DONE]"},
      {{Text("a"), Text("b"), Data("[DONE]")}, absl::StatusCode::kDataLoss, "without its usage"},
      {{Data("[DONE]")}, absl::StatusCode::kDataLoss, "without a token"},
      {{Data("{\"choices\":")}, absl::StatusCode::kDataLoss, "no JSON object: {\"choices\":"},
      {{Data("[1]")}, absl::StatusCode::kDataLoss, "no JSON object"},
      {{Text("a"), Data(R"({"error":{"code":503,"message":"busy"}})")},
       absl::StatusCode::kUnavailable,
       "an error after 1 of 2 tokens: busy"},
      {{Data(R"({"error":{"code":"rate_limit_exceeded","type":"requests","message":"full"}})")},
       absl::StatusCode::kResourceExhausted,
       "full"},
      {{Data(R"({"error":{"code":null,"type":"overloaded_error","message":"m"}})")},
       absl::StatusCode::kUnavailable,
       "m"},
      {{Data(R"({"error":{"code":"429","type":"server_error","message":"m"}})")},
       absl::StatusCode::kResourceExhausted,
       "m"},
      {{Data(R"({"error":{"code":7,"type":"timeout","message":"late"}})")},
       absl::StatusCode::kDeadlineExceeded,
       "late"},
      {{Data(R"({"error":{"code":"x","type":3,"message":"odd"}})")},
       absl::StatusCode::kInternal,
       "odd"},
      {{Data(R"({"error":"bad"})")}, absl::StatusCode::kInternal, "bad"},
      {{Text("a"), Data(R"({"choices":[],"usage":{"completion_tokens":1}})"), Data("[DONE]")},
       absl::StatusCode::kDataLoss,
       "1 of 2 tokens: it ended early"},
  };
  for (const Case& c : cases) {
    StreamCollector collector = Begun(2);
    const absl::Status status = Ended(&collector, c.pieces);
    EXPECT_EQ(status.code(), c.code) << c.why << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.why));
  }
}

TEST(OpenAiStreamTest, TheAnswerIsKeptIfItIsWanted) {
  for (const bool keep : {true, false}) {
    StreamCollector collector;
    collector.Begin({.asked = 2, .keep = keep});
    const std::string chat = R"({"choices":[{"delta":{"content":"b"},"finish_reason":null}]})";
    const std::string usage = absl::StrCat(R"({"choices":[],"usage":{"prompt_tokens":4,)",
                                           R"("completion_tokens":2,"prompt_tokens_details":)",
                                           R"({"cached_tokens":3}}})");
    ASSERT_TRUE(Ended(&collector, {Text("a"), Data(chat), Data(usage), Data("[DONE]")}).ok());
    CallRecord record;
    collector.Tell(At(0), &record);
    EXPECT_EQ(record.tokens->cached_tokens, 3);
    const Answer answer = collector.TakeAnswer();
    EXPECT_EQ(answer.text, keep ? "ab" : "");
    EXPECT_THAT(answer.tokens, ElementsAre());
    EXPECT_EQ(answer.input_tokens, 4);
    EXPECT_EQ(answer.output_tokens, 2);
  }
}

// Members of other types than expected are as good as absent.
TEST(OpenAiStreamTest, OddMembersAreNoCrash) {
  for (const char* chunk :
       {R"({"choices":3})", R"({"choices":[3]})", R"({"choices":[{"delta":"x","text":4}]})",
        R"({"usage":"x"})", R"({"usage":{"completion_tokens":"2"}})", "{}"}) {
    StreamCollector collector = Begun(2);
    EXPECT_FALSE(Ended(&collector, {Data(chunk), Data("[DONE]")}).ok()) << chunk;
  }
}

TEST(HttpErrorTest, CodesFollowTheStatus) {
  EXPECT_EQ(HttpError(400, "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HttpError(404, "").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(HttpError(429, "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(HttpError(500, "").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(HttpError(503, "").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(HttpError(302, "").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(HttpError(400, R"({"error":{"message":"too long"}})").message(), "HTTP 400: too long");
  EXPECT_EQ(HttpError(500, "plain words").message(), "HTTP 500: plain words");
  EXPECT_EQ(HttpError(500, "").message(), "HTTP 500");
}

}  // namespace
}  // namespace athanor::bench
