#include "clients/cpp/text/error_text.h"

#include <cctype>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "clients/cpp/client/client.h"
#include "clients/cpp/client/retry_after.h"

namespace athanor::client {
namespace {

// Fields of requests whose option has another name; those that no option sets are the file's.
constexpr std::pair<absl::string_view, absl::string_view> kFields[] = {
    {"search_budget", "--budget"}, {"dims", "--dim"},      {"values", "--value"},
    {"search_seed", "--seed"},     {"use", "--keep"},      {"graph", "the file"},
    {"files", "the file"},         {"tensors", "the file"}};

// Groups of fields that a request has and a command line has not.
constexpr absl::string_view kGroups[] = {"header.decoder.", "header.", "sampling.", "decoder."};

// Returns the option of a field, or how else to call it; empty if it is not known.
std::string OptionOf(absl::string_view field, bool grouped, const CallScene& scene) {
  const std::string same = absl::StrCat("--", field);
  if (absl::c_linear_search(scene.options, same)) return same;
  for (const auto& [name, option] : kFields) {
    if (name != field) continue;
    const bool is_option = absl::StartsWith(option, "--");
    if (is_option ? absl::c_linear_search(scene.options, std::string(option)) : grouped) {
      return std::string(option);
    }
  }
  return "";
}

// Replaces the field with which a message begins: "header.search_budget: ..." is "--budget: ...".
std::string WithOption(absl::string_view message, const CallScene& scene) {
  absl::string_view rest = message;
  bool grouped = false;
  for (absl::string_view group : kGroups) {
    if ((grouped = absl::ConsumePrefix(&rest, group))) break;
  }
  size_t end = 0;
  while (end < rest.size() && (absl::ascii_islower(rest[end]) || rest[end] == '_')) ++end;
  const bool is_field = end < rest.size() && (rest[end] == ':' || (grouped && rest[end] != '.'));
  const std::string option = is_field ? OptionOf(rest.substr(0, end), grouped, scene) : "";
  const std::string text =
      option.empty() ? std::string(rest) : absl::StrCat(option, rest.substr(end));
  return absl::StrReplaceAll(text, {{"header.", ""}});
}

// Returns gRPC's own reason for not reaching a server, without the addresses around it.
absl::string_view Cause(absl::string_view message) {
  for (absl::string_view known :
       {"Connection refused", "Connection reset by peer", "No route to host",
        "Network is unreachable", "Socket closed", "Connection timed out", "No such file"}) {
    if (absl::StrContains(message, known)) return known;
  }
  return "";
}

// Says why no server was reached; empty if a server refused the call with this message.
std::string Unreachable(absl::string_view message, const CallScene& scene) {
  if (absl::StrContains(message, "DNS resolution failed") ||
      absl::StrContains(message, "name resolution")) {
    return absl::StrCat("the host of --address ", scene.address, " is not known");
  }
  if (absl::StrContains(absl::AsciiStrToLower(message), "handshake") ||
      absl::StrContains(message, "SSL")) {
    return absl::StrCat("no secure connection to ", scene.address,
                        ": the server has another certificate than --tls_ca, or no TLS",
                        scene.certificate ? ", or does not trust --tls_cert" : "", " (", message,
                        ")");
  }
  const absl::string_view cause = Cause(message);
  // TLS 1.3 tells a client that its certificate is refused after the handshake, as an end.
  if (scene.certificate && (cause == "Socket closed" || cause == "Connection reset by peer")) {
    return absl::StrCat("the server at ", scene.address, " ended the connection (", cause,
                        "): it may not trust --tls_cert, whose authority must be in its "
                        "--tls_client_ca");
  }
  if (cause.empty() && !absl::StrContains(message, "failed to connect")) return "";
  return absl::StrCat("no server answers at ", scene.address,
                      cause.empty() ? "" : absl::StrCat(" (", cause, ")"),
                      "; start one with athanord, or say where it is with --address");
}

std::string Text(const absl::Status& status, const CallScene& scene) {
  const absl::string_view message = status.message();
  if (absl::IsUnavailable(status)) {
    const std::string text = Unreachable(message, scene);
    if (!text.empty()) return text;
  }
  if (absl::IsDeadlineExceeded(status) && message == "Deadline Exceeded") {
    return absl::StrCat("no answer from ", scene.address, " within --timeout ", scene.timeout_s,
                        " seconds");
  }
  if (absl::IsUnimplemented(status) && (message.empty() || message == "Method not found!")) {
    return absl::StrCat("the server at ", scene.address,
                        " does not know this call; it is older than this tool, or no Athanor");
  }
  if (absl::IsUnauthenticated(status)) {
    return absl::StrCat("the server wants to know who calls; give --token_file or ATHANOR_TOKEN",
                        scene.certificate ? "" : ", or --tls_cert",
                        message.empty() ? "" : absl::StrCat(" (", message, ")"));
  }
  if (const absl::Duration after = RetryAfter(status); after > absl::ZeroDuration()) {
    return absl::StrCat(WithOption(message, scene), " (the server says: come again in ",
                        absl::FormatDuration(after), ")");
  }
  if (!message.empty()) return WithOption(message, scene);
  return absl::StrCat("the call failed without a reason (",
                      absl::AsciiStrToLower(absl::StatusCodeToString(status.code())), ")");
}

}  // namespace

std::string ErrorText(const absl::Status& status, const CallScene& scene) {
  const std::string text = Text(status, scene);
  const absl::optional<absl::Cord> id = status.GetPayload(kRequestIdKey);
  return id.has_value() ? absl::StrCat(text, " (request ", std::string(*id), ")") : text;
}

}  // namespace athanor::client
