// SHA-256 for all layers: the keys of graphs, kernels and plans, the names of tensors.
//
//   Sha256Hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
//   Sha256 hash;  hash.Update("ab");  hash.Update("c");  hash.Finish() == Sha256Of("abc")
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_SHA256_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace athanor {

inline constexpr int kSha256Bytes = 32;

// Hashes bytes that arrive in pieces. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& Update(absl::string_view bytes);
  // Returns the hash of the bytes so far followed by `suffix`; further Updates are allowed.
  // REQUIRES: no Finish() yet
  std::string With(absl::string_view suffix) const;
  std::string Finish();  // 32 bytes; call it once

 private:
  evp_md_ctx_st* context_;
};

std::string Sha256Of(absl::string_view bytes);   // 32 bytes
std::string Sha256Hex(absl::string_view bytes);  // 64 lower-case hex digits

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_SHA256_H_
