// Checks the Host names by which clients may address the server. A page of another site can make
// its own name resolve to this machine once the browser trusts it (DNS rebinding) and would read
// the server's pages. But the browser then sends that other name in the request.
//
//   HostNames hosts("127.0.0.1:8080", {"box.example"});
//   if (auto refused = hosts.Check({"evil.example:8080"}, /*needed=*/true)) ... refused->status ...
//
// Accepts the host of the listening address, localhost and names under it, this machine's name, any
// numeric address (no name is involved), and the given names. Ignores ports, because they may be
// forwarded. Immutable.
#ifndef ATHANOR_SERVER_HTTP_HOST_NAMES_H_
#define ATHANOR_SERVER_HTTP_HOST_NAMES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

class HostNames {
 public:
  HostNames(absl::string_view listen, absl::Span<const std::string> names);

  struct Refused {
    int status;
    std::string text;
  };
  // Checks a request's Host headers. Refuses with 400 if there is more than one, none although
  // `needed`, or it is not a host; with 421 if it is an unknown host.
  std::optional<Refused> Check(absl::Span<const std::string> headers, bool needed) const;

 private:
  bool Knows(absl::string_view host) const;

  absl::flat_hash_set<std::string> names_;  // lower case
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_HOST_NAMES_H_
