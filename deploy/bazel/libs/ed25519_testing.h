// Ed25519 keys for tests, made from a 32-byte seed: the standard's test keys, or made-up ones.
//
//   Ed25519Key::FromPem(Ed25519PrivatePem(std::string(32, 'a')))->public_key()
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_ED25519_TESTING_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_ED25519_TESTING_H_

#include <string>

#include "absl/strings/string_view.h"

namespace athanor {

// Return PEM texts as OpenSSL writes them.
std::string Ed25519PrivatePem(absl::string_view seed);
std::string Ed25519PublicPem(absl::string_view public_key);
std::string X25519PrivatePem(absl::string_view seed);  // of an algorithm that cannot sign

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_ED25519_TESTING_H_
