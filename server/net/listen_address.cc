#include "server/net/listen_address.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr absl::string_view kUnix = "unix:";
constexpr int kLastPort = 65535;

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

absl::Status Wrong(absl::string_view flag, absl::string_view address, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      flag, "=", address, ": ", what,
      "; give host:port, such as 127.0.0.1:8080 or [::1]:8080 (port 0: any free one)"));
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view flag, absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return Wrong(flag, address, "it has no port");
  const absl::string_view host = address.substr(0, colon), port = address.substr(colon + 1);
  int number = 0;
  if (!AllDigits(port) || !absl::SimpleAtoi(port, &number) || number > kLastPort) {
    return Wrong(flag, address, absl::StrCat("'", port, "' is not a port from 0 to ", kLastPort));
  }
  if (host.empty()) return Wrong(flag, address, "it has no host");
  const bool brackets = host.front() == '[' && host.back() == ']' && host.size() > 2;
  const absl::string_view inner = brackets ? host.substr(1, host.size() - 2) : host;
  if (inner.find_first_of("[]/ ") != absl::string_view::npos ||
      brackets != absl::StrContains(inner, ':')) {
    return Wrong(flag, address,
                 absl::StrCat("'", host,
                              "' is not a host; put IPv6 addresses, and only those, in brackets"));
  }
  return HostPort{std::string(inner), number};
}

absl::Status CheckListenAddress(absl::string_view flag, absl::string_view address, bool paths) {
  const bool path = paths && absl::StartsWith(address, kUnix);
  if (path && address.size() > kUnix.size()) return absl::OkStatus();
  const absl::Status s =
      path ? Wrong(flag, address, "it has no path") : ParseHostPort(flag, address).status();
  if (s.ok() || !paths) return s;
  return absl::InvalidArgumentError(absl::StrCat(s.message(), ", or unix:path"));
}

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, kUnix)) return true;
  const absl::string_view host = address.substr(0, address.rfind(':'));
  // Names may begin with 127. too.
  const bool numbers = host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return host == "localhost" || host == "[::1]" || (numbers && absl::StartsWith(host, "127."));
}

}  // namespace athanor
