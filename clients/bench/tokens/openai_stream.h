// Reads a stream of OpenAI's protocol, of /v1/completions or /v1/chat/completions.
//
//   OpenAiStream stream(&collector);
//   stream.Feed(bytes, Clock::now());          // false: no more is wanted
//   absl::Status status = stream.End();        // what was wrong, or OK
//
// A chunk counts if it has a choice, even one with an empty text (a part of a code point), except
// the opening one of a chat, which only names the role, and the closing one, which only gives the
// reason. Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_OPENAI_STREAM_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_OPENAI_STREAM_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "clients/bench/tokens/sse.h"
#include "clients/bench/tokens/stream_collector.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

class OpenAiStream {
 public:
  // `collector` must have begun, and outlive this.
  explicit OpenAiStream(StreamCollector* collector) : collector_(*collector) {}

  // Takes bytes that came at `at`. Returns false once the stream is known to be wrong.
  bool Feed(absl::string_view bytes, Clock::time_point at);
  // INVALID_ARGUMENT and other codes: the error that the stream held. DATA_LOSS: it is no such
  // stream, or ended before its end, or as StreamCollector::End says.
  absl::Status End() const;
  // Reports whether an event was wrong or held an error.
  bool wrong() const { return !status_.ok(); }

 private:
  void Event(const std::string& data, Clock::time_point at);
  void Choice(const nlohmann::json& choice, Clock::time_point at);

  StreamCollector& collector_;
  SseReader reader_;
  bool done_ = false;                        // [DONE] came
  bool length_ = false;                      // the choice closed because of its length
  std::optional<Clock::time_point> closed_;  // when a choice closed without text
  absl::Status status_;
};

// Returns the status for an answer of HTTP without a stream: its code by `http_status`, its message
// from the body, {"error": {"message": "..."}} or any text.
absl::Status HttpError(int http_status, absl::string_view body);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_OPENAI_STREAM_H_
