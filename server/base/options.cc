#include "server/base/options.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using O = ServerOptions;
constexpr int64_t kTop = std::numeric_limits<int64_t>::max();
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kMillion = 1'000'000;
// gRPC keeps message sizes in an int.
constexpr int64_t kMaxMessage = std::numeric_limits<int32_t>::max();

constexpr bool kLimit = true;

constexpr FlagRow kFlags[] = {
    {"listen", FlagType::kString, &O::listen, 0, 0,
     "address to serve gRPC on, as host:port; a host that other machines can reach needs TLS and "
     "--auth, or --insecure"},
    {"auth", FlagType::kString, &O::auth, 0, 0,
     "file of the identities that may call, with their tokens, roles, models and quotas "
     "(docs/security.md), read again when it changes; empty: ask nobody"},
    {"http_listen", FlagType::kString, &O::http_listen, 0, 0,
     "address to serve HTTP on, as host:port: a status page at /, its JSON at /status.json, "
     "Prometheus metrics at /metrics; hosts and certificate as for --listen; auto: 127.0.0.1:8080, "
     "or no HTTP where that is taken, and the log says so; empty: no HTTP"},
    {"http_hosts", FlagType::kString, &O::http_hosts, 0, 0,
     "host names that HTTP requests may address, separated by commas, besides the host of "
     "--http_listen and --openai_listen, localhost, this machine's name and numeric addresses"},
    {"openai_listen", FlagType::kString, &O::openai_listen, 0, 0,
     "address to serve OpenAI's HTTP interface on, as host:port: /v1/models, /v1/completions, "
     "/v1/chat/completions, /health; hosts and certificate as for --listen; empty: none"},
    {"openai_keys", FlagType::kString, &O::openai_keys, 0, 0,
     "file of the keys that --openai_listen accepts, one a line as NAME KEY, for servers without "
     "--auth, whose tokens it accepts too; empty: ask for none"},
    {"openai_aliases", FlagType::kString, &O::openai_aliases, 0, 0,
     "further names of models on --openai_listen, as ALIAS=MODEL, separated by commas"},
    {"insecure", FlagType::kBool, &O::insecure, 0, 0,
     "serve without TLS, or without --auth, on an address that other machines can reach"},
    {"tls_cert", FlagType::kString, &O::tls_cert, 0, 0,
     "file with the server's certificate chain (PEM); empty: no TLS"},
    {"tls_key", FlagType::kString, &O::tls_key, 0, 0,
     "file with the private key of --tls_cert (PEM)"},
    {"tls_client_ca", FlagType::kString, &O::tls_client_ca, 0, 0,
     "file with the certificates of the authorities that sign those of clients (PEM); who shows "
     "one "
     "that --auth's file names needs no token; empty: ask clients for no certificate"},
    {"state_dir", FlagType::kString, &O::state_dir, 0, 0,
     "directory for models and tensors, used by one server at a time; empty: "
     "$XDG_STATE_HOME/athanor or ~/.local/state/athanor"},
    {"verify_weights", FlagType::kBool, &O::verify_weights, 0, 0,
     "hash all weights before they serve, not only those whose files changed since they were last "
     "hashed; athanor fsck does this without a server"},
    {"model_repository", FlagType::kString, &O::model_repository, 0, 0,
     "folder of models in Triton's layout, NAME/config.pbtxt and NAME/VERSION/model.onnx, that are "
     "loaded at start (docs/model_repository.md); empty: none"},
    {"model_control", FlagType::kString, &O::model_control, 0, 0,
     "when models of --model_repository are loaded and unloaded: none, only at start; poll, also "
     "when their files change; explicit, only by RepositoryModelLoad and RepositoryModelUnload, "
     "and "
     "what was loaded so is also after a restart"},
    {"repository_poll", FlagType::kDuration, &O::repository_poll_ms, 10, kTop,
     "time between two looks at --model_repository with --model_control=poll; what changes is "
     "loaded once two looks find it the same"},
    {"cache", FlagType::kString, &O::cache, 0, 0,
     "file of the cache, on a local file system; processes of one machine may share it; empty: "
     "<state_dir>/cache.db"},
    {"cache_limit", FlagType::kBytes, &O::cache_limit, 0, kTop,
     "largest size of the cache's file; beyond it the least useful rows are removed; 0: no limit"},
    {"lease_timeout", FlagType::kDuration, &O::lease_timeout_ms, 1'000, kTop,
     "time without a heartbeat after which another server on the same cache counts as dead and its "
     "compilation is taken over; a server whose process has ended counts as dead at once"},
    {"cache_signing_key", FlagType::kString, &O::cache_signing_key, 0, 0,
     "file with the Ed25519 private key (PEM) that signs exports of the cache; empty: export no "
     "binaries"},
    {"cache_trusted_keys", FlagType::kString, &O::cache_trusted_keys, 0, 0,
     "files with Ed25519 public keys (PEM), separated by commas; binaries are imported, and then "
     "loaded into this server, only from bundles signed with one of these keys; empty: import no "
     "binaries"},
    {"device", FlagType::kString, &O::device, 0, 0,
     "device that executes models: cpu, or cuda:N, the N-th NVIDIA GPU from 0; auto: the first GPU "
     "that is usable, else cpu. Several, separated by commas: an upload may name one, and the "
     "first "
     "executes models whose upload names none"},
    {"nvrtc", FlagType::kString, &O::nvrtc, 0, 0,
     "folder of libnvrtc.so.13, which compiles kernels for cuda:N; empty: where the system's "
     "loader, "
     "toolkits and Python packages have it"},
    {"threads", FlagType::kInt, &O::threads, 0, 4096,
     "number of threads that execute requests; 0: one per core that --search_cores leaves"},
    {"compile_workers", FlagType::kInt, &O::compile_workers, 0, 256,
     "number of compile jobs built at once, and of jobs that search at once; each has its own "
     "child process; 0: one per core, at least 2 and at most 8, so that a model need not wait for "
     "another one"},
    {"search_cores", FlagType::kInt, &O::search_cores, 0, 4095,
     "number of cores reserved for searches and builds; 0: they share all cores with requests and "
     "yield to them"},
    {"search_budget", FlagType::kString, &O::search_budget, 0, 0,
     "extent of the search for faster plans, per model: a time from its first step (30s), a number "
     "of measured candidates (200c), fast (the cost model chooses) or exhaust (measure "
     "everything), the last two also with a limit (exhaust:5m); 0: baseline plans only"},
    {"search_seed", FlagType::kInt, &O::search_seed, 1, kTop,
     "seed of the random choices of every search"},
    {"disable_rules", FlagType::kString, &O::disable_rules, 0, 0,
     "rules, or families of rules, that no search may use, separated by commas; empty: all may be "
     "used"},
    {"deterministic", FlagType::kBool, &O::deterministic, 0, 0,
     "serve each model version with the same plan until another is pinned; searches run only in "
     "jobs started with StartCompile, and their plans are kept for pinning"},
    {"memory_limit", FlagType::kBytes, &O::memory_limit, 0, kTop,
     "most memory for weights, prepared weights, arenas, uploads and requests together; 0: nine "
     "tenths of the machine's memory",
     kLimit},
    {"config", FlagType::kString, &O::config, 0, 0,
     "file with settings, one `name = value` per line; empty: none"},
    {"log_level", FlagType::kString, &O::log_level, 0, 0,
     "least severity that is logged: debug, info, warn or error"},
    {"log_format", FlagType::kString, &O::log_format, 0, 0,
     "format of log lines: text (key=value) or json"},
    {"log_file", FlagType::kString, &O::log_file, 0, 0,
     "file to append the log to, reopened at SIGHUP; empty: log to standard error"},
    {"otlp_endpoint", FlagType::kString, &O::otlp_endpoint, 0, 0,
     "URL of an OpenTelemetry collector that takes OTLP over gRPC, as http://HOST:4317, or "
     "https:// "
     "for TLS, to send spans of requests and of compile jobs to (docs/tracing.md); empty: that of "
     "OTEL_EXPORTER_OTLP_ENDPOINT if OTEL_EXPORTER_OTLP_PROTOCOL is grpc, else send none"},
    {"trace_ratio", FlagType::kRatio, &O::trace_ratio, 0, kMillion,
     "share of requests to record, from 0 to 1, of those whose client says nothing of it: the "
     "sampled flag of a traceparent wins"},
    {"shared_memory", FlagType::kString, &O::shared_memory, 0, 0,
     "keys of shared memory objects that clients on this machine may register and have tensors in, "
     "as a pattern in which * stands for any characters: /frames-* (docs/triton.md); the server "
     "opens them with its own rights; empty: none"},
    {"max_shared_regions", FlagType::kInt, &O::max_shared_regions, 1, 1'000'000,
     "most regions of shared memory registered at a time", kLimit},
    {"max_message_bytes", FlagType::kBytes, &O::max_message_bytes, 64 << 10, kMaxMessage,
     "largest gRPC message accepted, measured after decompression", kLimit},
    {"max_inflation", FlagType::kInt, &O::max_inflation, 1, 1'032,
     "largest ratio by which a compressed message may grow when decompressed; checked only above 1 "
     "MiB",
     kLimit},
    {"max_chunk_bytes", FlagType::kBytes, &O::max_chunk_bytes, 1, kMaxMessage,
     "largest piece of a tensor in one message of an upload", kLimit},
    {"max_graph_bytes", FlagType::kBytes, &O::max_graph_bytes, 1, kMaxMessage,
     "largest graph accepted", kLimit},
    {"max_tensor_bytes", FlagType::kBytes, &O::max_tensor_bytes, 1, kTop, "largest tensor accepted",
     kLimit},
    {"max_import_bytes", FlagType::kBytes, &O::max_import_bytes, 1, kTop,
     "largest bundle that the cache imports, measured by its records", kLimit},
    {"max_onnx_bytes", FlagType::kBytes, &O::max_onnx_bytes, 1, kTop,
     "largest ONNX model accepted, including its files of external data", kLimit},
    {"max_onnx_files", FlagType::kInt, &O::max_onnx_files, 1, 1'000'000,
     "most files of one ONNX model", kLimit},
    {"max_checkpoint_bytes", FlagType::kBytes, &O::max_checkpoint_bytes, 1, kTop,
     "largest checkpoint of a language model accepted, all files together", kLimit},
    {"max_checkpoint_files", FlagType::kInt, &O::max_checkpoint_files, 1, 1'000'000,
     "most files of one checkpoint", kLimit},
    {"max_nodes", FlagType::kInt, &O::max_nodes, 1, 10'000'000, "most nodes of a graph", kLimit},
    {"max_rank", FlagType::kInt, &O::max_rank, 1, 16, "most axes of a tensor in a graph", kLimit},
    {"max_dims", FlagType::kInt, &O::max_dims, 0, 64, "most dims of a graph", kLimit},
    {"max_name_bytes", FlagType::kBytes, &O::max_name_bytes, 1, 1 << 10,
     "longest name in a graph, such as a node's, a dim's or an output's", kLimit},
    {"max_attr_bytes", FlagType::kBytes, &O::max_attr_bytes, 0, 64 * kMiB,
     "largest literal in a graph; a larger tensor must be a parameter", kLimit},
    {"max_expr_size", FlagType::kInt, &O::max_expr_size, 1, 256,
     "most terms and factors of one size in a graph, including nested ones", kLimit},
    {"max_nesting", FlagType::kInt, &O::max_nesting, 0, 16,
     "deepest nesting of floor_div, min and max in a size of a graph", kLimit},
    {"max_models", FlagType::kInt, &O::max_models, 1, 1'000'000, "most model versions stored",
     kLimit},
    {"max_uploads", FlagType::kInt, &O::max_uploads, 1, 10'000, "most uploads in progress at once",
     kLimit},
    {"upload_idle", FlagType::kDuration, &O::upload_idle_ms, 10, kTop,
     "longest time that an upload may take to deliver its next complete message before it is "
     "aborted",
     kLimit},
    {"upload_least_rate", FlagType::kBytes, &O::upload_least_rate, 0, kTop,
     "lowest rate of an upload, in bytes per second; an upload that is --upload_idle behind this "
     "rate is aborted",
     kLimit},
    {"upload_time", FlagType::kDuration, &O::upload_time_ms, 0, kTop,
     "longest time that an upload may take before it is aborted; 0: no limit", kLimit},
    {"upload_rate", FlagType::kBytes, &O::upload_rate, 0, kTop,
     "most bytes per second that all uploads and imports may send together; the server delays "
     "reading the rest; 0: no limit",
     kLimit},
    {"max_connections", FlagType::kInt, &O::max_connections, 1, 1'000'000,
     "most connections of --listen open at once, and as many of --openai_listen; the server closes "
     "further ones immediately",
     kLimit},
    {"connection_quiet", FlagType::kDuration, &O::connection_quiet_ms, 1, kMaxMessage,
     "time without a call after which a connection may be closed in favour of a new one when all "
     "are in use",
     kLimit},
    {"max_peer_percent", FlagType::kInt, &O::max_peer_percent, 1, 100,
     "largest percentage of connections, of uploads and of watchers that one peer address may hold",
     kLimit},
    {"max_connection_calls", FlagType::kInt, &O::max_connection_calls, 1, kMaxMessage,
     "most calls that one connection may have in progress; its client delays further calls until "
     "one ends",
     kLimit},
    {"max_pending", FlagType::kInt, &O::max_pending, 1, 1'000'000,
     "most requests in the server at once, waiting or running; further ones are refused", kLimit},
    {"max_streams", FlagType::kInt, &O::max_streams, 1, 1'000'000,
     "most watchers of compile jobs and of health, and streams of ModelStreamInfer, at once; they "
     "do "
     "not count as requests, but each request of a stream does",
     kLimit},
    {"keepalive", FlagType::kDuration, &O::keepalive_ms, 0, kMaxMessage,
     "time without traffic after which a connection is pinged, and after as long again without a "
     "reply closed; 0: never ping",
     kLimit},
    {"max_queue", FlagType::kInt, &O::max_queue, 1, 1'000'000,
     "most requests of one model version that wait to run; beyond it, the newest request of the "
     "client with the most is refused",
     kLimit},
    {"max_client_percent", FlagType::kInt, &O::max_client_percent, 1, 100,
     "largest percentage of --max_queue that one client's requests may take while other clients "
     "wait too",
     kLimit},
    {"max_queue_delay", FlagType::kDuration, &O::max_queue_delay_ms, 0, kTop,
     "longest predicted wait that a request may have; beyond it, and beyond the time of four runs, "
     "the request is refused at once; counts its client's own requests and the shares of other "
     "clients; 0: no limit",
     kLimit},
    {"refusals_per_second", FlagType::kInt, &O::refusals_per_second, 0, 1'000'000,
     "number of requests per second and client that are refused immediately when their model's "
     "queue is full; further refusals are delayed by up to half a second, to slow down clients "
     "that retry at once; 0: delay none"},
    {"batch_delay", FlagType::kShortDuration, &O::batch_delay_us, 0, 60'000'000,
     "longest time, such as 100us or 2ms, that a request of a model with a batch_dim waits for "
     "others to share its call, and at most half of the time left before its deadline; 0: batch "
     "only requests that are already waiting"},
    {"max_batch_rows", FlagType::kInt, &O::max_batch_rows, 0, kTop,
     "most rows of a call that requests share; 0: as many as the bounds of their dim allow"},
    {"max_compile_jobs", FlagType::kInt, &O::max_compile_jobs, 1, 1'000'000,
     "most unfinished compile jobs, and most finished ones that the server remembers", kLimit},
    {"tap_plans", FlagType::kInt, &O::tap_plans, 0, 1'000,
     "most plans per model version that return inner values (request parameter taps), one per set "
     "of taps; the least recently used plan is dropped; 0: refuse such requests",
     kLimit},
    {"max_taps", FlagType::kInt, &O::max_taps, 1, 1'000'000,
     "most inner values that one request may ask for", kLimit},
    {"max_buckets", FlagType::kInt, &O::max_buckets, 1, 10'000,
     "most buckets of one version, counted as the product of the numbers of ranges of its dims",
     kLimit},
    {"metrics_versions", FlagType::kInt, &O::metrics_versions, 0, 1'000'000,
     "most model versions with metrics of their own; further ones are counted together"},
    {"contexts", FlagType::kInt, &O::contexts, 1, 1024,
     "most requests of one plan that run at once, each with its own arena"},
    {"inline_us", FlagType::kInt, &O::inline_us, 0, 1'000'000,
     "run time in microseconds up to which a request runs on the thread that read it, by what "
     "earlier ones took or, before them, by an estimate"},
    {"kv_memory", FlagType::kBytes, &O::kv_memory, 0, kTop,
     "most memory for keys and values of each language model, taken as sequences need it; 0: that "
     "of 64 sequences of --max_model_len tokens, and at most half of what --memory_limit leaves "
     "behind weights and prepared weights, and other models' keys and values, but for one "
     "sequence; a sequence ends with an error where --memory_limit has no room for it",
     kLimit},
    {"max_model_len", FlagType::kInt, &O::max_model_len, 0, kMaxMessage,
     "most tokens of a sequence, its prompt and what follows it, at least 2; 0: as many as the "
     "checkpoint says",
     kLimit},
    {"max_batched_tokens", FlagType::kInt, &O::max_batched_tokens, 1, kMaxMessage,
     "most tokens that one step of a language model computes; more prompts wait for the next step"},
    {"max_sequences", FlagType::kInt, &O::max_sequences, 1, kMaxMessage,
     "most sequences of a language model that generate at once; further ones wait"},
    {"itl_target", FlagType::kDuration, &O::itl_target_ms, 0, kTop,
     "time from a token of a sequence to its next one that steps keep by computing fewer tokens of "
     "prompts, where they can; 0: steps compute up to --max_batched_tokens"},
    {"max_preemptions", FlagType::kInt, &O::max_preemptions, 1, kMaxMessage,
     "times that a sequence gives its blocks to others and is computed again before it is the last "
     "one to be asked"},
    {"max_wait", FlagType::kDuration, &O::max_wait_ms, 1, kTop,
     "longest time that a request waits for a plan, even if its deadline is later", kLimit},
    {"heartbeat", FlagType::kDuration, &O::heartbeat_ms, 10, kTop,
     "interval at which WatchCompileJob repeats an unchanged job"},
    {"drain", FlagType::kDuration, &O::drain_ms, 0, kTop,
     "longest time that running requests may take to finish after SIGTERM"},
};

const FlagRow* FindFlag(absl::string_view name) {
  for (const FlagRow& row : kFlags) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

absl::string_view UnitText(FlagType type) {
  if (type == FlagType::kDuration) return ", milliseconds";
  if (type == FlagType::kRatio) return ", millionths";
  return type == FlagType::kShortDuration ? ", microseconds" : "";
}

absl::StatusOr<int64_t> ParseNumber(const FlagRow& row, absl::string_view text) {
  int64_t value = 0;
  switch (row.type) {
    case FlagType::kBytes:
      return ParseBytes(text);
    case FlagType::kDuration:
      return ParseDuration(text);
    case FlagType::kShortDuration:
      return ParseShortDuration(text);
    case FlagType::kRatio:
      return ParseRatio(text);
    default:
      if (!absl::SimpleAtoi(text, &value)) return absl::InvalidArgumentError("not a number");
      return value;
  }
}

// `source` says where the value came from: "--threads", "ATHANOR_THREADS", "athanor.conf:3".
absl::Status SetFlag(const FlagRow& row, absl::string_view text, absl::string_view source,
                     ServerOptions* options) {
  auto wrong = [&] {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": '", text, "' is not ", FlagTypeText(row.type), " (flag --", row.name, ")"));
  };
  if (const auto* field = std::get_if<std::string O::*>(&row.field)) {
    options->*(*field) = std::string(text);
    return absl::OkStatus();
  }
  if (const auto* field = std::get_if<bool O::*>(&row.field)) {
    bool value = false;
    if (!absl::SimpleAtob(text, &value)) return wrong();
    options->*(*field) = value;
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> value = ParseNumber(row, text);
  if (!value.ok()) return wrong();
  if (*value < row.min || *value > row.max) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", text, " is outside [", row.min,
                                                   ", ", row.max, "] (flag --", row.name,
                                                   UnitText(row.type), ")"));
  }
  options->*std::get<int64_t O::*>(row.field) = *value;
  return absl::OkStatus();
}

struct Setting {
  std::string text;
  std::string source;
};
using Settings = std::map<std::string, Setting, std::less<>>;

absl::Status ReadArgs(const std::vector<std::string>& args, Settings* settings) {
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view arg = args[i];
    if (!absl::ConsumePrefix(&arg, "--") || arg.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", args[i], "': flags begin with --; see --help"));
    }
    const size_t equals = arg.find('=');
    const std::string name(arg.substr(0, equals));
    const FlagRow* row = FindFlag(name);
    if (row == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, ": unknown flag; see --help"));
    }
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(arg.substr(equals + 1));
    } else if (row->type == FlagType::kBool) {
      value = "true";
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, ": needs a value, ", FlagTypeText(row->type)));
    }
    (*settings)[name] = {value, absl::StrCat("--", name)};
  }
  return absl::OkStatus();
}

absl::Status ReadConfig(const std::string& path, Settings* settings) {
  std::ifstream file(path);
  file.peek();  // opening a directory succeeds too; reading it fails
  if (file.fail()) {
    return absl::InvalidArgumentError(absl::StrCat("--config: cannot read '", path, "'"));
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    const size_t equals = text.find('=');
    const std::string where = absl::StrCat(path, ":", number);
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": a line is `name = value`"));
    }
    const std::string name(absl::StripAsciiWhitespace(text.substr(0, equals)));
    if (FindFlag(name) == nullptr || name == "config") {
      return absl::InvalidArgumentError(absl::StrCat(where, ": unknown setting '", name, "'"));
    }
    if (settings->contains(name)) continue;  // the command line or the environment wins
    (*settings)[name] = {std::string(absl::StripAsciiWhitespace(text.substr(equals + 1))), where};
  }
  return absl::OkStatus();
}

// Splits "12.." into the leading number and the rest.
std::optional<int64_t> LeadingNumber(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  int64_t value = 0;
  if (digits == 0 || !absl::SimpleAtoi(text->substr(0, digits), &value)) return std::nullopt;
  text->remove_prefix(digits);
  return value;
}

struct Unit {
  absl::string_view name;
  int64_t factor;
};

absl::StatusOr<int64_t> ParseWithUnit(absl::string_view text, absl::Span<const Unit> units) {
  absl::string_view rest = text;
  const std::optional<int64_t> value = LeadingNumber(&rest);
  if (value.has_value()) {
    for (const Unit& unit : units) {
      int64_t product = 0;
      if (rest == unit.name && !__builtin_mul_overflow(*value, unit.factor, &product)) {
        return product;
      }
    }
    if (*value == 0 && rest.empty()) return 0;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a number with a unit"));
}

}  // namespace

absl::Span<const FlagRow> FlagTable() { return kFlags; }

absl::string_view FlagTypeText(FlagType type) {
  switch (type) {
    case FlagType::kBool:
      return "true or false";
    case FlagType::kInt:
      return "a whole number";
    case FlagType::kBytes:
      return "a size such as 64MiB";
    case FlagType::kDuration:
      return "a time such as 30s";
    case FlagType::kShortDuration:
      return "a time such as 100us";
    case FlagType::kRatio:
      return "a number such as 0.01";
    case FlagType::kString:
      return "text";
  }
  return "";
}

std::string FlagVariable(absl::string_view name) {
  return absl::StrCat("ATHANOR_", absl::AsciiStrToUpper(name));
}

absl::StatusOr<int64_t> ParseDuration(absl::string_view text) {
  static constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};
  return ParseWithUnit(text, kUnits);
}

absl::StatusOr<int64_t> ParseShortDuration(absl::string_view text) {
  static constexpr Unit kUnits[] = {{"us", 1}, {"ms", 1000}, {"s", 1'000'000}, {"m", 60'000'000}};
  return ParseWithUnit(text, kUnits);
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"B", 1},
                                    {"KiB", 1 << 10},
                                    {"MiB", kMiB},
                                    {"GiB", int64_t{1} << 30},
                                    {"TiB", int64_t{1} << 40}};
  return ParseWithUnit(text, kUnits);
}

absl::StatusOr<int64_t> ParseRatio(absl::string_view text) {
  constexpr size_t kDigits = 6;
  const size_t point = std::min(text.find('.'), text.size());
  const absl::string_view whole = text.substr(0, point);
  std::string rest(absl::StripPrefix(text.substr(point), "."));
  const auto digits = [](absl::string_view part) {
    return absl::c_all_of(part, [](unsigned char c) { return absl::ascii_isdigit(c); });
  };
  int64_t value = 0;
  const bool empty = whole.empty() && rest.empty();
  if (empty || rest.size() > kDigits || !digits(whole) || !digits(rest)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a number with up to six digits behind the point"));
  }
  rest.resize(kDigits, '0');
  if (!absl::SimpleAtoi(absl::StrCat(whole, rest), &value)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large"));
  }
  return value;
}

absl::StatusOr<ServerOptions> ParseOptions(const std::vector<std::string>& args,
                                           const Environment& environment) {
  Settings settings;
  RETURN_IF_ERROR(ReadArgs(args, &settings));
  for (const FlagRow& row : kFlags) {
    const std::string name(row.name), variable = FlagVariable(name);
    const char* value = environment(variable.c_str());
    if (value != nullptr && !settings.contains(name)) settings[name] = {value, variable};
  }
  if (auto config = settings.find("config"); config != settings.end()) {
    RETURN_IF_ERROR(ReadConfig(config->second.text, &settings));
  }
  ServerOptions options;
  for (const auto& [name, setting] : settings) {
    absl::Status s = SetFlag(*FindFlag(name), setting.text, setting.source, &options);
    if (!s.ok()) return s;
  }
  RETURN_IF_ERROR(ValidateOptions(&options, environment));
  return options;
}

}  // namespace athanor
