#include "server/rpc/inflate.h"

#include <sys/mman.h>
#include <zlib.h>

#include <algorithm>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int kLargestWindow = 15;  // log2 of bytes
constexpr int kWithGzipHeader = 16;
constexpr int64_t kFirstStep = int64_t{16} << 10;
constexpr int64_t kLargestStep = int64_t{1} << 20;
// Bytes inflated between two yields: some 30 us.
constexpr int64_t kPiece = int64_t{64} << 10;

grpc_compression_algorithm AlgorithmOf(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy = bytes;  // shares the slices
  return WireReader(&copy).algorithm();
}

absl::Status Broken(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the compressed message cannot be inflated: ", why));
}

// Returns the error for a message that exceeds `limits`.
absl::Status Beyond(int64_t compressed, const InflateLimits& limits, bool by_times) {
  if (!by_times) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the compressed message inflates to more than ", limits.most, " bytes (",
                     limits.most_by, ")"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the compressed message of ", compressed, " bytes inflates to more than ", limits.times,
      " times its size (--max_inflation) and ", kFreeInflation, " bytes; send it uncompressed"));
}

}  // namespace

bool InflatesLong(const grpc::ByteBuffer& bytes) {
  return static_cast<int64_t>(bytes.Length()) > kFirstStep &&
         AlgorithmOf(bytes) != GRPC_COMPRESS_NONE;
}

InflatedBytes::~InflatedBytes() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(capacity_));
}

absl::StatusOr<InflatedBytes> InflatedBytes::Of(const grpc::ByteBuffer& compressed,
                                                const InflateLimits& limits, ServerLedger* ledger) {
  const auto length = static_cast<int64_t>(compressed.Length());
  const int64_t by_times = std::max(kFreeInflation, length * limits.times);
  InflatedBytes inflated;
  inflated.capacity_ = std::min(limits.most, by_times) + 1;
  // Reserves addresses only: a page is allocated when it is first written.
  void* pages = mmap(nullptr, static_cast<size_t>(inflated.capacity_), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", inflated.capacity_ - 1,
                     " bytes that a compressed message may inflate to"));
  }
  inflated.data_ = static_cast<char*>(pages);
  const bool gzip = AlgorithmOf(compressed) == GRPC_COMPRESS_GZIP;
  RETURN_IF_ERROR(inflated.Inflate(compressed, gzip, ledger));
  if (inflated.size_ == inflated.capacity_) {
    return Beyond(length, limits, by_times < limits.most);
  }
  return inflated;
}

// Stops at the first byte beyond the limit.
absl::Status InflatedBytes::Inflate(const grpc::ByteBuffer& compressed, bool gzip,
                                    ServerLedger* ledger) {
  std::vector<grpc::Slice> slices;
  if (!compressed.Dump(&slices).ok()) return Broken("it cannot be read");
  z_stream stream{};
  if (inflateInit2(&stream, kLargestWindow + (gzip ? kWithGzipHeader : 0)) != Z_OK) {
    return absl::ResourceExhaustedError("no memory to inflate a compressed message");
  }
  absl::Cleanup end = [&stream] { inflateEnd(&stream); };
  int state = Z_OK;
  for (const grpc::Slice& slice : slices) {
    stream.next_in = const_cast<Bytef*>(slice.begin());
    stream.avail_in = static_cast<uInt>(slice.size());
    do {
      if (state == Z_STREAM_END) {
        if (stream.avail_in == 0) break;
        return Broken("bytes follow its end");
      }
      if (size_ == capacity_) return absl::OkStatus();
      RETURN_IF_ERROR(MakeRoom(ledger));
      const auto room = static_cast<uInt>(std::min(kPiece, std::min(reserved_, capacity_) - size_));
      stream.next_out = reinterpret_cast<Bytef*>(data_ + size_);
      stream.avail_out = room;
      state = inflate(&stream, Z_NO_FLUSH);
      size_ += room - stream.avail_out;
      // A thread that answers a call waits for one piece at most, whichever core it is on.
      std::this_thread::yield();
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR) {
        return Broken(stream.msg != nullptr ? stream.msg : "it is damaged");
      }
    } while (stream.avail_in > 0 || stream.avail_out == 0);
  }
  return state == Z_STREAM_END || size_ == capacity_ ? absl::OkStatus() : Broken("it is cut off");
}

absl::Status InflatedBytes::MakeRoom(ServerLedger* ledger) {
  if (size_ < reserved_) return absl::OkStatus();
  const int64_t step = std::clamp(reserved_, kFirstStep, kLargestStep);
  ASSIGN_OR_RETURN(auto more, ledger->Reserve(HeldKind::kRequests, step, "a compressed message"));
  held_.push_back(std::move(more));
  reserved_ += step;
  return absl::OkStatus();
}

}  // namespace athanor
