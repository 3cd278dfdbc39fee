// By which names a server may be asked for. A page of another site can have its own name lead to
// this machine once the browser trusts it (DNS rebinding), and would read what this server tells;
// but the browser then says that name in the request.
//
//   HostNames hosts("127.0.0.1:8080", {"box.example"});
//   if (auto refused = hosts.Check({"evil.example:8080"}, /*needed=*/true)) ... refused->status ...
//
// Known are: the host of the address it listens at, localhost and names below it, this machine's
// name, any numeric address (no name leads there), and those it is given. Ports do not matter, for
// they are forwarded. Immutable.
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
  // Of a request's Host headers, of which there is one: 400 where there is another number of them
  // or it is no host, 421 where it is another one. Without `needed` there may be none.
  std::optional<Refused> Check(absl::Span<const std::string> headers, bool needed) const;

 private:
  bool Knows(absl::string_view host) const;

  absl::flat_hash_set<std::string> names_;  // in lower case
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_HOST_NAMES_H_
