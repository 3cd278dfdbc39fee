#include "server/tls.h"

#include "absl/strings/str_cat.h"

namespace athanor {

absl::StatusOr<TlsContext> MakeTls(const std::string& cert, const std::string& key) {
  TlsContext tls(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (tls == nullptr) return absl::ResourceExhaustedError("--tls_cert: no memory for TLS");
  SSL_CTX_set_min_proto_version(tls.get(), TLS1_2_VERSION);
  if (SSL_CTX_use_certificate_chain_file(tls.get(), cert.c_str()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls_cert: '", cert, "' holds no certificate chain (PEM)"));
  }
  if (SSL_CTX_use_PrivateKey_file(tls.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls_key: '", key, "' holds no private key (PEM) of --tls_cert"));
  }
  return tls;
}

}  // namespace athanor
