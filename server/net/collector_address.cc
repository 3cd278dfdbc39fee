#include "server/net/collector_address.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/net/listen_address.h"

namespace athanor {
namespace {

constexpr int kDefaultPort = 4317;  // OTLP's over gRPC

}  // namespace

absl::StatusOr<CollectorAddress> ParseCollectorAddress(absl::string_view flag,
                                                       absl::string_view url) {
  // Errors show no secret: neither a user with a password nor a query.
  if (absl::StrContains(url, '@')) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": the address has a user or a password, which are not sent"));
  }
  const absl::string_view shown = url.substr(0, url.find_first_of("?#"));
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, "=", shown, ": ", what,
                     "; give http://HOST:PORT, or https:// for TLS, where a collector takes OTLP "
                     "over gRPC"));
  };
  CollectorAddress address;
  absl::string_view rest = url;
  address.tls = absl::ConsumePrefix(&rest, "https://");
  if (!address.tls && !absl::ConsumePrefix(&rest, "http://")) {
    return wrong("it begins with neither http:// nor https://");
  }
  absl::ConsumeSuffix(&rest, "/");
  if (rest.find_first_of("/?#") != absl::string_view::npos) return wrong("it has a path");
  const bool has_port = rest.rfind(':') != absl::string_view::npos && !absl::EndsWith(rest, "]");
  address.target = has_port ? std::string(rest) : absl::StrCat(rest, ":", kDefaultPort);
  const absl::StatusOr<HostPort> parsed = ParseHostPort(flag, address.target);
  if (!parsed.ok() || parsed->port == 0) return wrong("it does not name a host and a port");
  return address;
}

}  // namespace athanor
