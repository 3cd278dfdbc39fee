#include "deploy/bazel/libs/ed25519_testing.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

// DER prefixes of a PKCS #8 or SubjectPublicKeyInfo, up to the key's 32 bytes (RFC 8410).
constexpr char kEd25519Private[] = "302e020100300506032b657004220420";
constexpr char kX25519Private[] = "302e020100300506032b656e04220420";
constexpr char kEd25519Public[] = "302a300506032b6570032100";

std::string Pem(absl::string_view what, absl::string_view prefix, absl::string_view key) {
  return absl::StrCat("-----BEGIN ", what, " KEY-----\n",
                      absl::Base64Escape(absl::StrCat(absl::HexStringToBytes(prefix), key)),
                      "\n-----END ", what, " KEY-----\n");
}

}  // namespace

std::string Ed25519PrivatePem(absl::string_view seed) {
  return Pem("PRIVATE", kEd25519Private, seed);
}

std::string Ed25519PublicPem(absl::string_view public_key) {
  return Pem("PUBLIC", kEd25519Public, public_key);
}

std::string X25519PrivatePem(absl::string_view seed) {
  return Pem("PRIVATE", kX25519Private, seed);
}

}  // namespace athanor
