#include "server/http/host_names.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

constexpr size_t kMostNameBytes = 253;
constexpr int kLastPort = 65535;

bool IsAddress(int family, const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return inet_pton(family, text.c_str(), address.data()) == 1;
}

// Ignores case and the dot that ends a full name.
std::string Folded(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StripSuffix(name, "."));
}

std::string OwnName() {
  std::array<char, kMostNameBytes + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? Folded(name.data()) : "";
}

bool IsNameByte(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_'; }

// Returns the host of "name", "name:port" or "[::1]:port" without the port, folded; nullopt if the
// header is none of these.
std::optional<std::string> HostOf(absl::string_view header) {
  const size_t bracket = header.rfind(']'), colon = header.rfind(':');
  const bool ported =
      colon != absl::string_view::npos && (bracket == absl::string_view::npos || colon > bracket);
  const absl::string_view host = ported ? header.substr(0, colon) : header;
  if (ported && colon + 1 < header.size()) {
    const absl::string_view port = header.substr(colon + 1);
    int number = 0;
    if (!std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
        !absl::SimpleAtoi(port, &number) || number > kLastPort) {
      return std::nullopt;
    }
  }
  if (absl::StartsWith(host, "[")) {
    if (!absl::EndsWith(host, "]")) return std::nullopt;
    std::string inner(host.substr(1, host.size() - 2));
    return IsAddress(AF_INET6, inner) ? std::optional(inner) : std::nullopt;
  }
  if (host.empty() || host.size() > kMostNameBytes ||
      !std::all_of(host.begin(), host.end(), IsNameByte)) {
    return std::nullopt;
  }
  return Folded(host);
}

}  // namespace

HostNames::HostNames(absl::string_view listen, absl::Span<const std::string> names) {
  if (std::optional<std::string> own = HostOf(listen)) names_.insert(*std::move(own));
  for (const std::string& name : names) names_.insert(Folded(name));
  names_.insert(OwnName());
}

bool HostNames::Knows(absl::string_view host) const {
  const std::string name(host);
  return names_.contains(name) || name == "localhost" || absl::EndsWith(name, ".localhost") ||
         IsAddress(AF_INET, name) || IsAddress(AF_INET6, name);
}

std::optional<HostNames::Refused> HostNames::Check(absl::Span<const std::string> headers,
                                                   bool needed) const {
  if (headers.empty() && !needed) return std::nullopt;
  if (headers.size() != 1) {
    return Refused{400, absl::StrCat(headers.size(), " Host headers; an HTTP/1.1 request has one")};
  }
  const std::optional<std::string> host = HostOf(headers[0]);
  if (!host) return Refused{400, "the Host header is not a host and port"};
  if (Knows(*host)) return std::nullopt;
  return Refused{
      421, absl::StrCat(
               *host, " is not a known name of this server; if it is one, add it to --http_hosts")};
}

}  // namespace athanor
