// Checks flags against each other and fills in defaults that depend on other flags.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/options.h"
#include "server/base/search_policy.h"
#include "server/net/collector_address.h"
#include "server/net/listen_address.h"

namespace athanor {
namespace {

// `asks`: callers say who they are there.
absl::Status CheckAddress(absl::string_view flag, const std::string& address, bool paths, bool asks,
                          const ServerOptions& options) {
  RETURN_IF_ERROR(CheckListenAddress(flag, address, paths));
  const bool tls = !options.tls_cert.empty();
  if (IsLoopback(address) || options.insecure || (tls && asks)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, "=", address, ": others can reach this address: give ",
                   tls ? "" : "--tls_cert and --tls_key", tls || asks ? "" : ", and ",
                   asks ? "" : "--auth", ", or --insecure to serve without ", tls ? "" : "TLS",
                   tls || asks ? "" : " and ", asks ? "" : "asking who calls"));
}

absl::Status CheckAddresses(const ServerOptions& options) {
  const bool asks = !options.auth.empty();
  const bool keys = !options.openai_keys.empty();
  RETURN_IF_ERROR(CheckAddress("--listen", options.listen, true, asks, options));
  if (!options.http_listen.empty() && options.http_listen != kAutoHttp) {
    RETURN_IF_ERROR(CheckAddress("--http_listen", options.http_listen, false, asks, options));
  }
  if (!options.openai_listen.empty()) {
    RETURN_IF_ERROR(
        CheckAddress("--openai_listen", options.openai_listen, false, asks || keys, options));
  } else if (keys || !options.openai_aliases.empty()) {
    return absl::InvalidArgumentError(
        "--openai_keys and --openai_aliases want --openai_listen, which is not given");
  }
  if (!asks || !keys) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--openai_keys and --auth exclude each other: --auth names who may call --openai_listen too");
}

absl::Status CheckModelRepository(const ServerOptions& options) {
  const std::string& control = options.model_control;
  if (control != "none" && control != "poll" && control != "explicit") {
    return absl::InvalidArgumentError(
        absl::StrCat("--model_control=", control, ": must be none, poll or explicit"));
  }
  if (control == "none" || !options.model_repository.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--model_control=", control, " wants --model_repository, which is not given"));
}

absl::Status CheckDevices(absl::string_view devices) {
  std::set<std::string> names;
  for (absl::string_view device : absl::StrSplit(devices, ',')) {
    const std::optional<int> gpu = GpuOrdinal(device);
    if (device != "auto" && device != "cpu" && !gpu) {
      const absl::string_view why =
          device == "metal" ? "this build has no such backend" : "unknown device";
      return absl::InvalidArgumentError(absl::StrCat(
          "--device=", device, ": ", why, "; must be auto, cpu or cuda:N with N from 0"));
    }
    if (!names.insert(gpu ? absl::StrCat(*gpu) : std::string(device)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device=", devices, ": names ", device, " twice"));
    }
  }
  if (names.size() > 1 && names.count("auto") > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", devices, ": auto chooses one device, and stands alone"));
  }
  return absl::OkStatus();
}

// Reads OpenTelemetry's own variables where the flag is not given, as other programs do.
absl::Status CheckCollector(const Environment& environment, std::string* endpoint) {
  if (!endpoint->empty()) return ParseCollectorAddress("--otlp_endpoint", *endpoint).status();
  const char* protocol = environment("OTEL_EXPORTER_OTLP_PROTOCOL");
  const char* url = environment("OTEL_EXPORTER_OTLP_ENDPOINT");
  if (url == nullptr || protocol == nullptr || std::string(protocol) != "grpc") {
    return absl::OkStatus();
  }
  *endpoint = url;
  return endpoint->empty() ? absl::OkStatus()
                           : ParseCollectorAddress("OTEL_EXPORTER_OTLP_ENDPOINT", url).status();
}

}  // namespace

std::optional<int> GpuOrdinal(absl::string_view device) {
  int ordinal = 0;
  const bool digits = absl::ConsumePrefix(&device, "cuda:") && !device.empty() &&
                      absl::c_all_of(device, absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(device, &ordinal)) return std::nullopt;
  return ordinal;
}

std::vector<std::string> DevicesOf(const ServerOptions& options) {
  return absl::StrSplit(options.device, ',');
}

absl::Status ValidateOptions(ServerOptions* options, const Environment& environment) {
  RETURN_IF_ERROR(CheckDevices(options->device));
  if (options->tls_cert.empty() != options->tls_key.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key are given together");
  }
  if (!options->tls_client_ca.empty() && (options->tls_cert.empty() || options->auth.empty())) {
    return absl::InvalidArgumentError(
        "--tls_client_ca needs --tls_cert and --tls_key, and --auth, whose file says who shows "
        "which "
        "certificate");
  }
  RETURN_IF_ERROR(CheckAddresses(*options));
  RETURN_IF_ERROR(CheckModelRepository(*options));
  RETURN_IF_ERROR(CheckCollector(environment, &options->otlp_endpoint));
  if (options->max_chunk_bytes > options->max_message_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_chunk_bytes=", options->max_chunk_bytes,
                     ": above --max_message_bytes=", options->max_message_bytes));
  }
  if (options->max_model_len == 1) {
    return absl::InvalidArgumentError(
        "--max_model_len=1: leaves no token for the answer to a prompt; must be 0 or at least 2");
  }
  static constexpr absl::string_view kLevels[] = {"debug", "info", "warn", "error"};
  if (std::find(std::begin(kLevels), std::end(kLevels), options->log_level) == std::end(kLevels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_level=", options->log_level, ": must be debug, info, warn or error"));
  }
  if (options->log_format != "text" && options->log_format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_format=", options->log_format, ": must be text or json"));
  }
  if (absl::Status s = ParseSearchBudget(options->search_budget).status(); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--search_budget: ", s.message()));
  }
  if (absl::Status s = ParseRuleNames(options->disable_rules).status(); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--disable_rules: ", s.message()));
  }
  if (options->state_dir.empty()) {
    const char* state = environment("XDG_STATE_HOME");
    const char* home = environment("HOME");
    if (state != nullptr && *state != '\0') {
      options->state_dir = absl::StrCat(state, "/athanor");
    } else if (home != nullptr && *home != '\0') {
      options->state_dir = absl::StrCat(home, "/.local/state/athanor");
    } else {
      return absl::InvalidArgumentError("--state_dir: needed, because HOME is not set");
    }
  }
  if (options->cache.empty()) options->cache = absl::StrCat(options->state_dir, "/cache.db");
  const std::string registry = absl::StrCat(options->state_dir, "/registry.db");
  std::error_code unknown;
  if (std::filesystem::weakly_canonical(options->cache, unknown) ==
      std::filesystem::weakly_canonical(registry, unknown)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--cache: ", options->cache, " is where the models are listed; give another path"));
  }
  return absl::OkStatus();
}

}  // namespace athanor
