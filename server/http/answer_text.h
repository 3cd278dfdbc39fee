// Writes answers as HTTP/1.1 has them on the wire.
//
//   HeadText({200, "text/plain"}, {.length = 5})  // "HTTP/1.1 200 OK\r\nContent-Type: ...\r\n\r\n"
//   ChunkText("hello")                            // "5\r\nhello\r\n"
#ifndef ATHANOR_SERVER_HTTP_ANSWER_TEXT_H_
#define ATHANOR_SERVER_HTTP_ANSWER_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/http/exchange.h"

namespace athanor {

struct Framing {
  std::optional<uint64_t> length;  // of the body; null: a stream
  bool http_1_0 = false;           // of the request: its stream ends with the connection
  bool closes = false;             // the connection ends with the answer
};

// Adds "Cache-Control: no-store" unless the head has its own.
std::string HeadText(const HttpHead& head, const Framing& framing);

// Returns a chunk; empty for no bytes, because an empty chunk is the end.
std::string ChunkText(absl::string_view bytes);
inline constexpr absl::string_view kLastChunk = "0\r\n\r\n";

// Returns "Not Found" for 404; "Unknown" for a status that is not here.
absl::string_view ReasonOf(int status);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_ANSWER_TEXT_H_
