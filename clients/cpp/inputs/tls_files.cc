#include "clients/cpp/inputs/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* t) const { kFree(t); }
};
using OwnedBio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;
using OwnedCert = std::unique_ptr<X509, Freed<X509, X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;

OwnedBio BioOf(const std::string& pem) {
  return OwnedBio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// OpenSSL calls it for an encrypted key: notes that and gives no passphrase.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

template <typename... T>
absl::Status Wrong(const T&... what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// Checks here what gRPC would only tell as a connection that fails.
absl::Status CheckPair(const TlsFiles& files, const std::string& cert_pem,
                       const std::string& key_pem) {
  bool asked = false;
  const OwnedBio cert_bio = BioOf(cert_pem), key_bio = BioOf(key_pem);
  const OwnedCert cert(PEM_read_bio_X509(cert_bio.get(), nullptr, NoPassphrase, &asked));
  if (cert == nullptr) return Wrong("--tls_cert ", files.cert, ": holds no certificate (PEM)");
  asked = false;
  const OwnedKey key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, NoPassphrase, &asked));
  if (key == nullptr) {
    return asked ? Wrong("--tls_key ", files.key, ": is encrypted; openssl pkey -in ", files.key,
                         " -out KEY makes one without a passphrase")
                 : Wrong("--tls_key ", files.key, ": holds no private key (PEM)");
  }
  if (X509_check_private_key(cert.get(), key.get()) != 1) {
    return Wrong("--tls_key ", files.key, ": is not the key of the certificate in ", files.cert);
  }
  if (X509_cmp_current_time(X509_get0_notAfter(cert.get())) <= 0) {
    return Wrong("--tls_cert ", files.cert, ": has expired; ask for a new one");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(cert.get())) >= 0) {
    return Wrong("--tls_cert ", files.cert, ": is not valid yet, by this machine's clock");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTls(const TlsFiles& files, ClientOptions* options) {
  if (files.cert.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key are given together");
  }
  if (files.ca.empty()) {
    if (files.cert.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--tls_cert needs --tls_ca, the root certificates by which to know the server");
  }
  options->tls = true;
  ASSIGN_OR_RETURN(options->root_certificates, ReadFile(files.ca));
  if (files.cert.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string cert, ReadFile(files.cert));
  ASSIGN_OR_RETURN(std::string key, ReadFile(files.key));
  RETURN_IF_ERROR(CheckPair(files, cert, key));
  options->certificate = std::move(cert);
  options->key = std::move(key);
  return absl::OkStatus();
}

}  // namespace athanor::client
