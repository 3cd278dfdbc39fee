// What --listen and --http_listen may be, known before anything is opened there.
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
// INVALID_ARGUMENT unless `address` is "host:port" or "[::1]:port".
absl::StatusOr<HostPort> ParseHostPort(absl::string_view flag, absl::string_view address);

// INVALID_ARGUMENT unless `address` is "host:port" or "[::1]:port", port 0 being any free one, or,
// with `paths`, "unix:path". Whether there is such a host is not asked.
absl::Status CheckListenAddress(absl::string_view flag, absl::string_view address, bool paths);

// Whether only this machine can reach it, by its form alone. REQUIRES: CheckListenAddress is OK
bool IsLoopback(absl::string_view address);

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_LISTEN_ADDRESS_H_
