// The certificate that clients of both listeners see. It is checked when it is read: gRPC, when
// given accepted connections, finds a bad certificate only when the first client connects.
//
// With the certificates of an authority, clients are asked for a certificate too. Those who show
// one that is not the authority's, or is out of date, get no connection; who shows none is
// connected.
//
//   std::shared_ptr<TlsCertificate> tls = TlsCertificate::Load("cert.pem", "key.pem").value();
//   SSL* connection = SSL_new(tls->Now()->context.get());
//   absl::Status s = tls->Reload();  // new clients see what the files hold now
//
// Thread-safe.
#ifndef ATHANOR_SERVER_NET_TLS_H_
#define ATHANOR_SERVER_NET_TLS_H_

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/net/peer_certificate.h"

namespace athanor {

class TlsCertificate {
 public:
  // Contents of the files at one time.
  struct Loaded {
    std::string chain, key, client_ca;  // PEM; client_ca "": clients are asked for none
    std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{nullptr, &SSL_CTX_free};
    std::string valid_until;  // "2027-01-31T12:00:00Z": the first of the chain to expire
    int64_t reading = 0;      // its number, from 1 on
  };

  // Loads a certificate chain and its key from PEM files. Returns INVALID_ARGUMENT, naming the flag
  // and the file, if a file cannot be read, holds no certificate or key, is encrypted (there is no
  // prompt for a passphrase), has expired, is not valid yet, or if the two do not belong together.
  // `client_ca_file`: certificates that sign those of clients; "" for none.
  static absl::StatusOr<std::shared_ptr<TlsCertificate>> Load(std::string cert_file,
                                                              std::string key_file,
                                                              std::string client_ca_file = "");

  // Reads the files again. If they are wrong, keeps what was read before.
  absl::Status Reload();
  std::shared_ptr<const Loaded> Now() const;

  // Reports whether an authority of --tls_client_ca, as it was read last, has signed a client's
  // certificate, whenever its connection began. Leaves times to others. Checks it once a reading.
  bool Trusts(const PeerCertificate& certificate) const;

 private:
  struct Files {
    std::string cert, key, client_ca;
  };
  static absl::StatusOr<std::shared_ptr<const Loaded>> Read(const Files& files);
  explicit TlsCertificate(Files files) : files_(std::move(files)) {}

  const Files files_;
  mutable Mutex mu_;
  std::shared_ptr<const Loaded> loaded_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_TLS_H_
