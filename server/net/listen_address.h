// Checks the values of --listen and --http_listen before anything is opened.
//
//   absl::Status s = CheckListenAddress("--listen", "127.0.0.1:50051", /*paths=*/true);
//   IsLoopback("127.0.0.1:50051");   // true: others cannot reach it
#ifndef ATHANOR_SERVER_NET_LISTEN_ADDRESS_H_
#define ATHANOR_SERVER_NET_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};
// Returns INVALID_ARGUMENT unless `address` is "host:port" or "[::1]:port".
absl::StatusOr<HostPort> ParseHostPort(absl::string_view flag, absl::string_view address);

// Returns INVALID_ARGUMENT unless `address` is "host:port" or "[::1]:port" (port 0: any free port)
// or, with `paths`, "unix:path". Does not look the host up.
absl::Status CheckListenAddress(absl::string_view flag, absl::string_view address, bool paths);

// Reports whether `address` can be reached from this machine only, judged by its form alone.
// REQUIRES: CheckListenAddress is OK
bool IsLoopback(absl::string_view address);

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_LISTEN_ADDRESS_H_
