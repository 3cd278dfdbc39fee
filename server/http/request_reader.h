// Parses the requests of a connection from bytes as they come, over Boost.Beast's parser.
//
//   RequestReader reader({});
//   reader.Feed(...);          // reader.room() bytes at most
//   switch (reader.Advance()) {
//     case Got::kMore: ...     // read more
//     case Got::kHead: ...     // reader.head() is there; go on with Advance
//     case Got::kWhole: ...    // so is reader.body(); what came behind is kept for Next()
//     case Got::kRefused: ...  // reader.refusal()
//   }
//
// Holds at most `header_bytes` that are not parsed yet, which bounds headers, chunk extensions and
// trailers. Does not bound the body: one Advance adds held() bytes to it at most. Drops trailers.
// A body of known length may be read to its place, past the parser, while nothing is held:
//
//   char* place = reader.GrowBody(bytes);  // reader.lacking() at most
//   reader.Came(read);                     // of these bytes
//
// Not thread-safe.
#ifndef ATHANOR_SERVER_HTTP_REQUEST_READER_H_
#define ATHANOR_SERVER_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/http/exchange.h"

namespace athanor {

struct HeaderLimits {
  size_t header_bytes = size_t{16} << 10;  // below 64 KiB: Beast throws at larger fields
  size_t target_bytes = size_t{8} << 10;
};

class RequestReader {
 public:
  enum class Got : uint8_t { kMore, kHead, kWhole, kRefused };
  struct Refusal {
    int status = 400;
    std::string message;
  };

  explicit RequestReader(const HeaderLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  size_t held() const;  // bytes that are not parsed yet
  size_t room() const { return limits_.header_bytes - held(); }
  bool begun() const;  // bytes of the next request have come
  // REQUIRES: bytes.size() <= room()
  void Feed(absl::string_view bytes);

  // Parses what is held. After kRefused, call nothing but refusal.
  Got Advance();
  const Refusal& refusal() const { return refusal_; }
  // Makes room for the next request, which may be held in part. Frees what is not needed.
  void Next();

  // From kHead on: the request but its body and peer, which may be moved out.
  HttpRequest& head() { return head_; }
  bool whole() const;  // nothing of it is missing
  bool keeps_alive() const;
  bool http_1_0() const;
  bool expects_continue() const;
  std::optional<uint64_t> body_bytes() const;  // null: chunked
  // The body, behind whose first came() bytes there may be room, until it is whole.
  std::string& body();
  size_t came() const;
  // Bytes that the body lacks; 0 if it is chunked.
  uint64_t lacking() const { return lacking_.value_or(0); }
  // Makes room in the body for so many bytes behind those that came, and returns where. Clears
  // each byte once, however often it is asked.
  char* GrowBody(size_t bytes);
  void Came(size_t bytes);

 private:
  class Parser;

  Got Refuse(int status, absl::string_view message);
  Got TakeHead();
  void TakeBody();
  absl::string_view HeadFault() const;

  const HeaderLimits limits_;
  std::unique_ptr<Parser> parser_;
  HttpRequest head_;
  bool head_taken_ = false;
  std::optional<uint64_t> lacking_;  // of a body of known length, which Beast does not see
  size_t came_ = 0;                  // of the same
  Refusal refusal_;
};

// Replaces "%2F" and the like. Returns null if `text` has a "%" without two hexadecimal digits or
// means a control character.
std::optional<std::string> PercentDecoded(absl::string_view text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_REQUEST_READER_H_
