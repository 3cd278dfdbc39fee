// Compressed messages for tests, and buffers that say they hold one, as gRPC's clients send them.
#ifndef ATHANOR_SERVER_RPC_COMPRESSED_TESTING_H_
#define ATHANOR_SERVER_RPC_COMPRESSED_TESTING_H_

#include <grpc/byte_buffer.h>
#include <grpcpp/grpcpp.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>

namespace grpc::internal {
// The name that gRPC befriends for tests that access its buffers.
class GrpcByteBufferPeer {
 public:
  static grpc_byte_buffer** Of(ByteBuffer* buffer) { return buffer->c_buffer_ptr(); }
};
}  // namespace grpc::internal

namespace athanor {

// Returns `text` compressed as a zlib stream. It is repeated `times` times, flushed after each
// repetition, so that equal repetitions compress to equal bytes.
inline std::string Deflated(const std::string& text, int times = 1, bool gzip = true) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + (gzip ? 16 : 0), 8,
               Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1024, '\0');
  const auto run = [&](const std::string& in, int flush) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream.avail_in = static_cast<uInt>(in.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, flush);
    return out.substr(0, out.size() - stream.avail_out);
  };
  std::string all;
  if (times == 1) {
    all = run(text, Z_FINISH);
  } else {
    all = run(text, Z_FULL_FLUSH);
    const std::string each = run(text, Z_FULL_FLUSH);
    for (int i = 1; i < times; ++i) all += each;
  }
  deflateEnd(&stream);
  return all;
}

// Returns about 2 MB that inflate to 2 GiB of zeros.
inline std::string GzipBomb() { return Deflated(std::string(1 << 20, '\0'), 2048); }

// Returns a buffer as received or sent on the wire; `bytes` are already compressed.
inline grpc::ByteBuffer CompressedBuffer(const std::string& bytes, grpc_compression_algorithm how) {
  const grpc::Slice slice(bytes);
  grpc_slice raw = slice.c_slice();
  grpc::ByteBuffer buffer;
  *grpc::internal::GrpcByteBufferPeer::Of(&buffer) =
      grpc_raw_compressed_byte_buffer_create(&raw, 1, how);
  grpc_slice_unref(raw);
  return buffer;
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_COMPRESSED_TESTING_H_
