// The bytes of a message that its client compressed (gzip or deflate), inflated under limits and in
// the ledger. gRPC 1.51 would inflate before any limit and before our code hears of the call, so it
// is told not to (server.cc), and hands over what lay on the wire.
//
//   WireReader reader(&bytes);
//   if (reader.algorithm() != GRPC_COMPRESS_NONE) {
//     auto inflated = InflatedBytes::Of(bytes, {.most = 64 << 20, .times = 100}, &ledger);
//     ... inflated->view() ...
//   }                                                // its memory is the system's again
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
  // Its compressed size (--max_inflation), where that is more than kFreeInflation.
  int64_t times = 1;
  const char* most_by = "--max_message_bytes";  // who says so, for errors
};
// So much a message may inflate to whatever its size: a few milliseconds of work.
inline constexpr int64_t kFreeInflation = int64_t{1} << 20;

// Reads what lay on the wire. How that is compressed, gRPC tells to readers only.
class WireReader final : public grpc::ProtoBufferReader {
 public:
  using ProtoBufferReader::ProtoBufferReader;
  grpc_compression_algorithm algorithm() {
    return status().ok() ? reader()->buffer_in->data.raw.compression : GRPC_COMPRESS_NONE;
  }
};

// It may inflate to more than kFreeInflation, which is too much for a thread of gRPC.
bool InflatesLong(const grpc::ByteBuffer& bytes);

// Pages of their own, given back to the system, and to the ledger, by the destructor.
class InflatedBytes {
 public:
  // RESOURCE_EXHAUSTED beyond the limits, and where the ledger is; INVALID_ARGUMENT: the bytes are
  // not what they say they are.
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
  int64_t capacity_ = 0;  // what may come, and a byte more
  int64_t size_ = 0;
  int64_t reserved_ = 0;
  std::vector<ServerLedger::Reservation> held_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFLATE_H_
