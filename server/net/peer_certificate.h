// Reads the certificate that a client has shown, and that TLS has checked against --tls_client_ca.
//
//   PeerCertificates certificates;
//   const auto shown = certificates.OfPem(pem);  // of gRPC; CertificateOfX509 of an SSL connection
//   shown->names   // "sha256:9f86...", "subject:CN=edge,O=Example", "dns:edge.example.org"
#ifndef ATHANOR_SERVER_NET_PEER_CERTIFICATE_H_
#define ATHANOR_SERVER_NET_PEER_CERTIFICATE_H_

#include <openssl/x509.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// A certificate as its client has shown it, with those between it and its authority, to be checked
// again when the authorities have changed (TlsCertificate::Trusts). Immutable, but for
// `trusted_in`.
struct ShownChain {
  // Shares both; `others` may be null.
  ShownChain(X509* certificate, STACK_OF(X509) * others);
  ~ShownChain();
  ShownChain(const ShownChain&) = delete;
  ShownChain& operator=(const ShownChain&) = delete;

  X509* const certificate;
  STACK_OF(X509) * const others;
  mutable std::atomic<int64_t> trusted_in{0};  // the reading of the authorities that trusted it
};

// Immutable.
struct PeerCertificate {
  // Each of its names as --auth's file writes it: first "sha256:" and the 64 hexadecimal digits of
  // its DER form's digest; then "subject:" as RFC 2253 writes it, unless it is empty; then "dns:",
  // "uri:" and "email:" of its subject alternative names. DNS names are in small letters.
  std::vector<std::string> names;
  absl::Time from, until;  // it is valid from, and no more at
  std::shared_ptr<const ShownChain> chain = nullptr;
};

// `others`: what the client has shown beside it; may be null.
std::shared_ptr<const PeerCertificate> CertificateOfX509(X509* certificate,
                                                         STACK_OF(X509) * others);

// Returns `name` as PeerCertificate::names would have it. INVALID_ARGUMENT, saying what is wrong
// with it: it is none of the kinds above, or has no value.
absl::StatusOr<std::string> CertificateName(absl::string_view name);

// Remembers the certificates of clients, because gRPC tells them as text with each call. At most
// 1,024; then it begins anew. Thread-safe.
class PeerCertificates {
 public:
  // Takes a client's certificate, and behind it those between it and its authority. Returns null if
  // the first is no certificate.
  std::shared_ptr<const PeerCertificate> OfPem(absl::string_view pem);

 private:
  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<const PeerCertificate>> known_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_PEER_CERTIFICATE_H_
