#include "server/net/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>
#include <utility>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {
namespace {

// gRPC's C++ interface only has credentials whose certificate never changes and credentials that
// watch files. Its C interface asks a function for the certificate before each handshake. This
// class offers the C interface as C++ credentials.
class FetchedCredentials final : public grpc::ServerCredentials {
 public:
  explicit FetchedCredentials(std::shared_ptr<TlsCertificate> tls) : tls_(std::move(tls)) {
    grpc_ssl_server_credentials_options* options =
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            tls_->Now()->client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                           : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY,
            &Fetch, this);
    credentials_ = grpc_ssl_server_credentials_create_with_options(options);
  }
  ~FetchedCredentials() override {
    if (credentials_ != nullptr) grpc_server_credentials_release(credentials_);
  }

  bool ok() const { return credentials_ != nullptr; }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<FetchedCredentials*>(self)->FetchInto(config);
  }

  grpc_ssl_certificate_config_reload_status FetchInto(grpc_ssl_server_certificate_config** config) {
    std::shared_ptr<const TlsCertificate::Loaded> now = tls_->Now();
    MutexLock lock(mu_);
    if (now == fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {now->key.c_str(), now->chain.c_str()};
    // gRPC requires roots for clients' certificates with a fetched certificate, even where no
    // client is asked for one.
    const std::string& roots = now->client_ca.empty() ? now->chain : now->client_ca;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    fetched_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<TlsCertificate> tls_;
  grpc_server_credentials* credentials_ = nullptr;
  Mutex mu_;
  std::shared_ptr<const TlsCertificate::Loaded> fetched_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<TlsCertificate> tls) {
  auto credentials = std::make_shared<FetchedCredentials>(std::move(tls));
  return credentials->ok() ? credentials : nullptr;
}

}  // namespace athanor
