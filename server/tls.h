// The certificate that clients of both listeners see, read and checked once more than gRPC does:
// with connections that others accept, it finds a wrong one only when the first client comes.
#ifndef ATHANOR_SERVER_TLS_H_
#define ATHANOR_SERVER_TLS_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace athanor {

using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// Of PEM files: a chain and its key. INVALID_ARGUMENT names the flag and the file.
absl::StatusOr<TlsContext> MakeTls(const std::string& cert, const std::string& key);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TLS_H_
