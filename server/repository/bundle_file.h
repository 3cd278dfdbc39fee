// The head of a bundle, a graph with its tensors in one file as the Python SDK's Graph.save writes
// it (clients/python/athanor/bundle.py says how it is laid out).
//
//   BundleHead head = ReadBundle(file, {.graph_bytes = 32 << 20, .tensors = 1'000}).value();
//   file.ReadAt(head.tensors[0].offset, head.tensors[0].bytes);
#ifndef ATHANOR_SERVER_REPOSITORY_BUNDLE_FILE_H_
#define ATHANOR_SERVER_REPOSITORY_BUNDLE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/repository/folder.h"

namespace athanor {

struct BundleTensor {
  std::string hash;  // 32 bytes, as stated
  int64_t offset = 0, bytes = 0;
};

struct BundleHead {
  std::string graph;  // a serialised athanor.v1.Graph
  std::vector<BundleTensor> tensors;
};

struct BundleLimits {
  int64_t graph_bytes = 0, tensors = 0;
};

// INVALID_ARGUMENT: the file is no bundle, ends inside something, or goes on behind its last
// tensor. RESOURCE_EXHAUSTED: a limit. Does not read the tensors.
absl::StatusOr<BundleHead> ReadBundle(const SourceFile& file, const BundleLimits& limits);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_BUNDLE_FILE_H_
