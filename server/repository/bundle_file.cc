#include "server/repository/bundle_file.h"

#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr std::string_view kMagic = "ATHANOR1";
constexpr int64_t kHashBytes = 32, kRowBytes = kHashBytes + 8, kHeadBytes = 24;

// Returns the largest number there is for one that does not fit, which no file has.
int64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(value < kMost ? value : kMost);
}

}  // namespace

absl::StatusOr<BundleHead> ReadBundle(const SourceFile& file, const BundleLimits& limits) {
  int64_t at = 0;
  const auto skip = [&](int64_t bytes, const std::string& what) {
    if (bytes > file.bytes() - at) {
      return Invalid("bundle: ends inside ", what, ", which needs ", bytes, " bytes at offset ",
                     at);
    }
    at += bytes;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(skip(kHeadBytes, "the header"));
  ASSIGN_OR_RETURN(const std::string head, file.ReadAt(0, kHeadBytes));
  if (!head.starts_with(kMagic)) {
    return Invalid("bundle: is not an Athanor bundle (Graph.save makes one)");
  }
  const int64_t graph_bytes = LittleEndian(std::string_view(head).substr(8));
  const int64_t count = LittleEndian(std::string_view(head).substr(16));
  if (count > limits.tensors) {
    return absl::ResourceExhaustedError(
        Cat("bundle: ", count, " tensors; at most ", limits.tensors, " are taken (--max_nodes)"));
  }
  if (graph_bytes > limits.graph_bytes) {
    return absl::ResourceExhaustedError(Cat("bundle: a graph of ", graph_bytes, " bytes; at most ",
                                            limits.graph_bytes, " are taken (--max_graph_bytes)"));
  }
  RETURN_IF_ERROR(skip(count * kRowBytes, "the rows"));
  ASSIGN_OR_RETURN(const std::string rows, file.ReadAt(kHeadBytes, count * kRowBytes));
  BundleHead bundle;
  const int64_t graph_at = at;
  RETURN_IF_ERROR(skip(graph_bytes, "the graph"));
  ASSIGN_OR_RETURN(bundle.graph, file.ReadAt(graph_at, graph_bytes));
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view row = std::string_view(rows).substr(i * kRowBytes, kRowBytes);
    const int64_t bytes = LittleEndian(row.substr(kHashBytes));
    const int64_t offset = at;
    RETURN_IF_ERROR(skip(bytes, Cat("tensor ", i)));
    bundle.tensors.push_back({std::string(row.substr(0, kHashBytes)), offset, bytes});
  }
  if (at < file.bytes()) {
    return Invalid("bundle: ", file.bytes() - at, " bytes after the last tensor");
  }
  return bundle;
}

}  // namespace athanor
