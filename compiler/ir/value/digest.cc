#include "compiler/ir/value/digest.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"

namespace athanor {

std::string Sha256Bytes(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr);
  return std::string(reinterpret_cast<const char*>(digest), length);
}

std::string Sha256Hex(std::string_view bytes) { return absl::BytesToHexString(Sha256Bytes(bytes)); }

}  // namespace athanor
