// Ed25519 signatures (RFC 8032) with keys in PEM files, as `openssl genpkey -algorithm ed25519`
// writes them.
//
//   absl::StatusOr<Ed25519Key> key = Ed25519Key::FromPem(text);
//   const std::string signature = key->Sign("message").value();
//   Ed25519Verify(key->public_key(), "message", signature) == true
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_ED25519_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_ED25519_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct evp_pkey_st;

namespace athanor {

inline constexpr int kEd25519KeyBytes = 32;
inline constexpr int kEd25519SignatureBytes = 64;

// A private key. Immutable, so thread-safe; copies share it.
class Ed25519Key {
 public:
  // Returns INVALID_ARGUMENT if `pem` holds no PEM private key, an encrypted one, or one of another
  // algorithm. No message contains any part of `pem`.
  static absl::StatusOr<Ed25519Key> FromPem(absl::string_view pem);

  const std::string& public_key() const { return public_key_; }  // 32 bytes
  // Returns 64 bytes. Returns INTERNAL if OpenSSL fails for lack of memory.
  absl::StatusOr<std::string> Sign(absl::string_view message) const;

 private:
  Ed25519Key(std::shared_ptr<evp_pkey_st> key, std::string public_key)
      : key_(std::move(key)), public_key_(std::move(public_key)) {}

  std::shared_ptr<evp_pkey_st> key_;
  std::string public_key_;
};

// Returns the 32 bytes of a PEM public key. Returns INVALID_ARGUMENT if there is none, or one of
// another algorithm.
absl::StatusOr<std::string> Ed25519PublicKey(absl::string_view pem);

// Reports whether the signature is valid; false also for a key or signature of the wrong length.
bool Ed25519Verify(absl::string_view public_key, absl::string_view message,
                   absl::string_view signature);

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_ED25519_H_
