// The files of a command line that make its connection TLS.
//
//   TlsFiles files{.ca = "ca.pem", .cert = "client.pem", .key = "client.key"};
//   RETURN_IF_ERROR(ReadTls(files, &client_options));
#ifndef ATHANOR_CLIENTS_CPP_INPUTS_TLS_FILES_H_
#define ATHANOR_CLIENTS_CPP_INPUTS_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "clients/cpp/client/client.h"

namespace athanor::client {

inline constexpr char kTlsCaHelp[] =
    "file with the root certificates to trust (PEM); connects with TLS; default: no TLS";
inline constexpr char kTlsCertHelp[] =
    "file with the certificate that says who calls, and its chain (PEM), where the server knows "
    "its "
    "clients by certificates; needs --tls_key and --tls_ca; default: none";
inline constexpr char kTlsKeyHelp[] = "file with the private key of --tls_cert (PEM)";

// Paths; empty: not given.
struct TlsFiles {
  std::string ca, cert, key;
};

// Reads the files into `options`. INVALID_ARGUMENT, naming the option and the file: one of them
// cannot be read or holds no PEM of its kind, cert and key are not given together or do not belong
// together, the key is encrypted, the certificate has expired or is not valid yet, or there is one
// without --tls_ca.
absl::Status ReadTls(const TlsFiles& files, ClientOptions* options);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_INPUTS_TLS_FILES_H_
