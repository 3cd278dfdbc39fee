// A graph with its parameters in one file, as the Python SDK's Graph.save writes it:
//
//   bytes 0-7    "ATHANOR1"
//   8 bytes      length of the graph, little-endian, as all lengths here
//   8 bytes      number of tensors
//   40 bytes     per tensor: its SHA-256 and its length
//   the graph    an athanor.v1.Graph
//   the tensors  in that order, nothing in between
//
//   absl::StatusOr<Bundle> bundle = ParseBundle(file_bytes);
#ifndef ATHANOR_CLIENTS_CPP_CLIENT_BUNDLE_H_
#define ATHANOR_CLIENTS_CPP_CLIENT_BUNDLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor::client {

// A parameter's bytes under their SHA-256 (32 bytes).
struct BundleTensor {
  std::string hash;
  absl::string_view bytes;
};

// Views into the parsed bytes, which must outlive this struct.
struct Bundle {
  absl::string_view graph;
  std::vector<BundleTensor> tensors;
};

// Parses a bundle without copying. INVALID_ARGUMENT names the place where the file ends too early
// or goes on too long, or the tensor whose bytes do not match its hash.
absl::StatusOr<Bundle> ParseBundle(absl::string_view file);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_CLIENT_BUNDLE_H_
