// SHA-256 of bytes that come in pieces.
//
//   Sha256 hash;  hash.Update("ab");  hash.Update("c");  std::string digest = hash.Finish();  // 32
//   bytes
#ifndef ATHANOR_SERVER_SHA256_H_
#define ATHANOR_SERVER_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace athanor {

inline constexpr int kSha256Bytes = 32;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(absl::string_view bytes);
  std::string Finish();  // once

  static std::string Of(absl::string_view bytes);

 private:
  evp_md_ctx_st* context_;
};

// How messages and file names show a hash.
std::string ToHex(absl::string_view bytes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_SHA256_H_
