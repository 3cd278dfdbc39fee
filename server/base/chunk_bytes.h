// Size checks for the chunks of an upload.
#ifndef ATHANOR_SERVER_BASE_CHUNK_BYTES_H_
#define ATHANOR_SERVER_BASE_CHUNK_BYTES_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/ir/value/message.h"

namespace athanor {

// The upload that a chunk belongs to: its announced size and the bytes received before the chunk.
struct ChunkedBytes {
  std::string_view kind;  // "tensor", "file"
  int64_t bytes = 0;
  int64_t written = 0;
};

// Checks a chunk of `bytes` bytes; `got` names it in messages. Returns INVALID_ARGUMENT if the
// chunk is empty or longer than what is left of `whole`, and RESOURCE_EXHAUSTED if it is longer
// than `most` (--max_chunk_bytes).
inline absl::Status CheckChunkBytes(std::string_view got, int64_t bytes, int64_t most,
                                    const ChunkedBytes& whole) {
  if (bytes == 0) return Invalid(got, " holds no bytes");
  if (bytes > most) {
    return absl::ResourceExhaustedError(
        Cat(got, ": ", bytes, " bytes; at most ", most, " are taken (--max_chunk_bytes)"));
  }
  const int64_t left = whole.bytes - whole.written;
  if (bytes <= left) return absl::OkStatus();
  return Invalid(got, ": ", bytes, " bytes; only ", left, " are left of the ", whole.kind, "'s ",
                 whole.bytes);
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_CHUNK_BYTES_H_
