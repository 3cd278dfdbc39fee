#include "deploy/bazel/libs/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"

namespace athanor {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(context_, EVP_sha256(), nullptr);
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

Sha256& Sha256::Update(absl::string_view bytes) {
  EVP_DigestUpdate(context_, bytes.data(), bytes.size());
  return *this;
}

std::string Sha256::With(absl::string_view suffix) const {
  Sha256 copy;
  EVP_MD_CTX_copy_ex(copy.context_, context_);
  return copy.Update(suffix).Finish();
}

std::string Sha256::Finish() {
  std::string digest(kSha256Bytes, '\0');
  EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string Sha256Of(absl::string_view bytes) { return Sha256().Update(bytes).Finish(); }

std::string Sha256Hex(absl::string_view bytes) { return absl::BytesToHexString(Sha256Of(bytes)); }

}  // namespace athanor
