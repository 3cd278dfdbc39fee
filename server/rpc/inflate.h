// Inflates a message that its client compressed (gzip or deflate), under limits and with its memory
// in the ledger. gRPC 1.51 would inflate it before any limit and before our code learns of the
// call. So inflating is switched off in gRPC (server.cc), and it hands over the bytes of the wire.
//
//   WireReader reader(&bytes);
//   if (reader.algorithm() != GRPC_COMPRESS_NONE) {
//     auto inflated = InflatedBytes::Of(bytes, {.most = 64 << 20, .times = 100}, &ledger);
//     ... inflated->view() ...
// }                                                // its memory is returned to the system
#ifndef ATHANOR_SERVER_RPC_INFLATE_H_
#define ATHANOR_SERVER_RPC_INFLATE_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/memory/server_ledger.h"

namespace athanor {

struct InflateLimits {
  int64_t most = 0;  // bytes
  // Limit as a multiple of the compressed size (--max_inflation); applies above kFreeInflation.
  int64_t times = 1;
  const char* most_by = "--max_message_bytes";  // the flag that sets `most`, for errors
};
// Every message may inflate to this many bytes, whatever its size: a few milliseconds of work.
inline constexpr int64_t kFreeInflation = int64_t{1} << 20;

// Reads the bytes of the wire. gRPC tells the compression algorithm only to readers.
class WireReader final : public grpc::ProtoBufferReader {
 public:
  using ProtoBufferReader::ProtoBufferReader;
  grpc_compression_algorithm algorithm() {
    return status().ok() ? reader()->buffer_in->data.raw.compression : GRPC_COMPRESS_NONE;
  }
};

// Reports whether it may inflate to more than kFreeInflation, which takes too long for one of
// gRPC's threads.
bool InflatesLong(const grpc::ByteBuffer& bytes);

// Memory pages of its own, which the destructor returns to the system and to the ledger.
class InflatedBytes {
 public:
  // Returns RESOURCE_EXHAUSTED beyond the limits or if the ledger has no room, INVALID_ARGUMENT if
  // the bytes are not valid compressed data.
  static absl::StatusOr<InflatedBytes> Of(const grpc::ByteBuffer& compressed,
                                          const InflateLimits& limits, ServerLedger* ledger);
  InflatedBytes(InflatedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        capacity_(other.capacity_),
        size_(other.size_),
        reserved_(other.reserved_),
        held_(std::move(other.held_)) {}
  InflatedBytes& operator=(InflatedBytes&&) = delete;
  ~InflatedBytes();

  std::string_view view() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  InflatedBytes() = default;
  absl::Status Inflate(const grpc::ByteBuffer& compressed, bool gzip, ServerLedger* ledger);
  absl::Status MakeRoom(ServerLedger* ledger);

  char* data_ = nullptr;
  int64_t capacity_ = 0;  // the most it may inflate to, plus one byte
  int64_t size_ = 0;
  int64_t reserved_ = 0;
  std::vector<ServerLedger::Reservation> held_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFLATE_H_
