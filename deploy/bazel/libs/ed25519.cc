#include "deploy/bazel/libs/ed25519.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <limits>
#include <utility>

namespace athanor {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

const unsigned char* BytesOf(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// Suppresses OpenSSL's default, which asks for a passphrase on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

using ReadPem = EVP_PKEY*(BIO*, EVP_PKEY**, pem_password_cb*, void*);

// Returns null unless `pem` holds an Ed25519 key of the kind that `read` reads.
Owned<EVP_PKEY> ReadKey(absl::string_view pem, ReadPem* read) {
  if (pem.size() > size_t{std::numeric_limits<int>::max()}) return nullptr;
  Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Owned<EVP_PKEY> key(bio ? read(bio.get(), nullptr, NoPassphrase, nullptr) : nullptr);
  ERR_clear_error();
  if (key && EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_ED25519) return nullptr;
  return key;
}

std::string PublicBytes(EVP_PKEY* key) {
  std::string bytes(kEd25519KeyBytes, '\0');
  size_t size = bytes.size();
  EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(bytes.data()), &size);
  return bytes;
}

}  // namespace

absl::StatusOr<Ed25519Key> Ed25519Key::FromPem(absl::string_view pem) {
  std::shared_ptr<EVP_PKEY> key = ReadKey(pem, PEM_read_bio_PrivateKey);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        "no Ed25519 private key in PEM, unencrypted (\"openssl genpkey -algorithm ed25519\" makes "
        "one)");
  }
  std::string public_key = PublicBytes(key.get());
  return Ed25519Key(std::move(key), std::move(public_key));
}

absl::StatusOr<std::string> Ed25519Key::Sign(absl::string_view message) const {
  std::string signature(kEd25519SignatureBytes, '\0');
  size_t size = signature.size();
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     BytesOf(message), message.size()) != 1) {
    ERR_clear_error();
    return absl::InternalError("OpenSSL does not sign");
  }
  return signature;
}

absl::StatusOr<std::string> Ed25519PublicKey(absl::string_view pem) {
  const Owned<EVP_PKEY> key = ReadKey(pem, PEM_read_bio_PUBKEY);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        "no Ed25519 public key in PEM (\"openssl pkey -in KEY -pubout\" makes one)");
  }
  return PublicBytes(key.get());
}

bool Ed25519Verify(absl::string_view public_key, absl::string_view message,
                   absl::string_view signature) {
  if (public_key.size() != kEd25519KeyBytes || signature.size() != kEd25519SignatureBytes) {
    return false;
  }
  const Owned<EVP_PKEY> key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr,
                                                        BytesOf(public_key), public_key.size()));
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  const bool valid =
      key && context &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
      EVP_DigestVerify(context.get(), BytesOf(signature), signature.size(), BytesOf(message),
                       message.size()) == 1;
  ERR_clear_error();
  return valid;
}

}  // namespace athanor
