// Makes gRPC server credentials of a certificate. gRPC asks them for the current certificate with
// each client that connects.
//
//   builder.AddListeningPort(address, TlsCredentials(tls));
#ifndef ATHANOR_SERVER_NET_TLS_CREDENTIALS_H_
#define ATHANOR_SERVER_NET_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/net/tls.h"

namespace athanor {

// The result outlives the server that uses it. Returns null if gRPC rejects the certificate.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<TlsCertificate> tls);

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_TLS_CREDENTIALS_H_
