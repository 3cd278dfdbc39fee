// Collects the tokens of one stream and judges its end.
//
//   StreamCollector stream;
//   stream.Begin({.sent_tokens = 128, .asked = 16, .exact = true});
//   stream.Chunk(Clock::now(), 1);                      // for each chunk with tokens
//   stream.Usage({.input_tokens = 128, .output_tokens = 16});
//   absl::Status status = stream.End();                 // DATA_LOSS: fewer tokens than asked for
//
// Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_STREAM_COLLECTOR_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_STREAM_COLLECTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "clients/bench/load/call.h"

namespace athanor::bench {

// The server's own counts.
struct StreamUsage {
  int64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;
  bool length = false;  // a limit of length ended it, not a token
};

// Keeps what a call brought, for a call that goes on with it.
struct Answer {
  std::string text;
  std::vector<int32_t> tokens;  // empty: the protocol does not tell
  // The server's counts, of prompt and answer.
  int64_t input_tokens = 0, output_tokens = 0;
};

class StreamCollector {
 public:
  struct Request {
    int64_t sent_tokens = 0;  // of the prompt; 0: a text
    int64_t asked = 0;
    bool exact = true;  // fewer tokens than `asked` are an error
    // The model's most tokens of prompt and output: a stream that ends there is whole. 0: not
    // known.
    int64_t max_model_len = 0;
    bool keep = false;  // text and tokens are wanted
  };
  static constexpr int32_t kNotTold = -1;

  void Begin(const Request& request);
  // REQUIRES: `tokens` is above 0, or kNotTold in every chunk of the stream.
  void Chunk(Clock::time_point at, int32_t tokens);
  // A piece of the answer: kept if that is wanted.
  void Piece(absl::string_view text, absl::Span<const int32_t> tokens = {});
  void Usage(const StreamUsage& usage) { usage_ = usage; }
  int64_t asked() const { return request_.asked; }
  bool exact() const { return request_.exact; }
  // Returns how many tokens came; as many as chunks while the server has not told.
  int64_t output_tokens() const;

  // DATA_LOSS: no token came, or another number than was asked for, or than the server says.
  absl::Status End() const;
  // Sets the record's tokens and when the last of them came. REQUIRES: End() is OK.
  void Tell(Clock::time_point start, CallRecord* record) const;
  // Gives the answer away. REQUIRES: End() is OK.
  Answer TakeAnswer();

 private:
  int64_t told() const;  // sum of the chunks' tokens; kNotTold if they do not tell

  Request request_;
  std::vector<Clock::time_point> at_;
  std::vector<int32_t> tokens_;
  std::optional<StreamUsage> usage_;
  Answer answer_;
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_STREAM_COLLECTOR_H_
