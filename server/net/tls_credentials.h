// A certificate as credentials of gRPC's server, which asks for it anew with each client that
// connects.
//
//   builder.AddListeningPort(address, TlsCredentials(tls));
#ifndef ATHANOR_SERVER_NET_TLS_CREDENTIALS_H_
#define ATHANOR_SERVER_NET_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/net/tls.h"

namespace athanor {

// The credentials outlive the server that uses them. Null: gRPC takes none.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<TlsCertificate> tls);

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_TLS_CREDENTIALS_H_
