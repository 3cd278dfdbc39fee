// Reads a stream of server-sent events (WHATWG HTML, "Server-sent events"): the data of each event.
//
//   SseReader reader;
//   absl::Status s = reader.Feed(bytes, [&](const std::string& data) { ... });   // any cut of
//   bytes
//
// Takes every kind of line end, joins an event's lines, skips comments and other fields. An event
// that the stream cuts off is dropped, as the standard says; `pending` tells. Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_SSE_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_SSE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace athanor::bench {

class SseReader {
 public:
  static constexpr size_t kMostEventBytes = size_t{1} << 20;

  // Calls `event` for each event that the bytes complete. RESOURCE_EXHAUSTED: an event longer than
  // kMostEventBytes.
  absl::Status Feed(absl::string_view bytes, absl::FunctionRef<void(const std::string&)> event);
  // Reports whether an event has begun and not ended.
  bool pending() const { return !line_.empty() || has_data_; }
  void Reset();

 private:
  void EndLine(absl::FunctionRef<void(const std::string&)> event);

  std::string line_, data_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was CR: a following LF belongs to it
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_SSE_H_
