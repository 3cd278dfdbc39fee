// Parses the address that spans are sent to.
//
//   ParseCollectorAddress("--otlp_endpoint", "https://collector.example")->target;
//   // "collector.example:4317"
#ifndef ATHANOR_SERVER_NET_COLLECTOR_ADDRESS_H_
#define ATHANOR_SERVER_NET_COLLECTOR_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

struct CollectorAddress {
  std::string target;  // "host:port", as gRPC dials it
  bool tls = false;
};

// Returns INVALID_ARGUMENT unless `url` is http:// or https:// with a host, perhaps a port, and no
// path. The port is 4317 where none is given.
absl::StatusOr<CollectorAddress> ParseCollectorAddress(absl::string_view flag,
                                                       absl::string_view url);

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_COLLECTOR_ADDRESS_H_
