// The options of athanord: one table of flags, each also an environment variable and a line of the
// config file.
//
//   absl::StatusOr<ServerOptions> options = ParseOptions({"--listen=127.0.0.1:0"}, getenv);
//
// Precedence: command line, then ATHANOR_<NAME>, then --config FILE (`name = value` lines, `#`
// comments), then the default written here. Plain data.
#ifndef ATHANOR_SERVER_BASE_OPTIONS_H_
#define ATHANOR_SERVER_BASE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

// The value of --http_listen that stands for `auto_http_listen`, where that is free.
inline constexpr absl::string_view kAutoHttp = "auto";

struct ServerOptions {
  std::string listen = "127.0.0.1:50051";
  std::string auth;                                  // a file; empty: nobody is asked who calls
  std::string http_listen = std::string(kAutoHttp);  // empty: no HTTP side
  std::string auto_http_listen = "127.0.0.1:8080";   // no flag; tests have others
  std::string http_hosts;                            // names, separated by commas
  std::string openai_listen;                         // empty: no OpenAI side
  std::string openai_keys;                           // a file; empty: no keys are asked for
  std::string openai_aliases;                        // ALIAS=MODEL, separated by commas
  bool insecure = false;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;  // a file; empty: clients are asked for no certificate
  std::string state_dir;      // empty: $XDG_STATE_HOME/athanor or ~/.local/state/athanor
  bool verify_weights = false;
  std::string model_repository;        // a folder; empty: none
  std::string model_control = "none";  // none, poll or explicit
  int64_t repository_poll_ms = 15'000;
  std::string cache;                       // empty: <state_dir>/cache.db
  int64_t cache_limit = int64_t{2} << 30;  // bytes; 0: no limit
  int64_t lease_timeout_ms = 10'000;
  std::string cache_signing_key;   // a PEM file
  std::string cache_trusted_keys;  // PEM files, separated by commas
  std::string device = "cpu";
  std::string nvrtc;
  int64_t threads = 0;                // 0: one per core
  int64_t compile_workers = 0;        // 0: one per core, at least two and at most eight
  int64_t search_cores = 0;           // cores set aside for searches
  std::string search_budget = "30s";  // see search_policy.h
  int64_t search_seed = 1;
  std::string disable_rules;  // names of rules, separated by commas
  bool deterministic = false;
  int64_t memory_limit = 0;  // bytes; 0: nine tenths of the machine's memory
  std::string config;
  std::string log_level = "info";
  std::string log_format = "text";
  std::string log_file;             // empty: standard error
  std::string otlp_endpoint;        // a URL; empty: no spans are sent
  int64_t trace_ratio = 1'000'000;  // millionths

  std::string shared_memory;  // a pattern of keys; empty: none
  int64_t max_shared_regions = 256;
  int64_t max_message_bytes = int64_t{64} << 20;
  int64_t max_inflation = 100;
  int64_t max_chunk_bytes = int64_t{8} << 20;
  int64_t max_graph_bytes = int64_t{32} << 20;
  int64_t max_tensor_bytes = int64_t{64} << 30;
  int64_t max_import_bytes = int64_t{256} << 20;
  int64_t max_onnx_bytes = int64_t{64} << 30;
  int64_t max_onnx_files = 1'024;
  int64_t max_checkpoint_bytes = int64_t{256} << 30;
  int64_t max_checkpoint_files = 1'024;
  int64_t max_nodes = 100'000;
  int64_t max_rank = 16;
  int64_t max_dims = 64;
  int64_t max_name_bytes = 1'024;
  int64_t max_attr_bytes = int64_t{64} << 20;
  int64_t max_expr_size = 256;
  int64_t max_nesting = 16;
  int64_t max_models = 10'000;
  int64_t max_uploads = 16;
  int64_t upload_idle_ms = 60'000;
  int64_t upload_time_ms = 6 * 3'600'000;  // 0: no limit
  int64_t upload_least_rate = 8 << 10;     // bytes per second
  int64_t upload_rate = 0;                 // bytes per second; 0: no limit
  int64_t max_connections = 4'096;
  int64_t connection_quiet_ms = 2'000;
  int64_t max_peer_percent = 75;
  int64_t max_connection_calls = 1'024;
  int64_t max_pending = 1'024;
  int64_t max_streams = 256;
  int64_t keepalive_ms = 60'000;
  int64_t max_queue = 256;
  int64_t max_client_percent = 50;
  int64_t max_queue_delay_ms = 100;
  int64_t refusals_per_second = 200;
  int64_t batch_delay_us = 0;
  int64_t max_batch_rows = 0;  // 0: as many as the bounds of the dim allow
  int64_t max_compile_jobs = 1'000;
  int64_t tap_plans = 4;
  int64_t max_taps = 64;
  int64_t max_buckets = 64;
  int64_t metrics_versions = 1'000;
  int64_t contexts = 4;
  int64_t inline_us = 50;
  int64_t kv_memory = 0;      // bytes; 0: see language_models.h
  int64_t max_model_len = 0;  // 0: the checkpoint's
  int64_t max_batched_tokens = 512;
  int64_t max_sequences = 64;
  int64_t itl_target_ms = 50;  // 0: none
  int64_t max_preemptions = 8;
  int64_t max_wait_ms = 300'000;
  int64_t heartbeat_ms = 5'000;
  int64_t drain_ms = 30'000;
};

// kBytes takes 64MiB, 2GiB, ...; kDuration takes 30s, 5m, 250ms (or a bare 0), stored in
// milliseconds; kShortDuration also takes 100us, stored in microseconds; kRatio takes 0.01, stored
// in millionths.
enum class FlagType { kBool, kInt, kBytes, kDuration, kShortDuration, kRatio, kString };

struct FlagRow {
  absl::string_view name;  // without dashes; also the key in the config file
  FlagType type;
  std::variant<bool ServerOptions::*, int64_t ServerOptions::*, std::string ServerOptions::*> field;
  int64_t min;  // numeric flags only
  int64_t max;
  absl::string_view help;
  bool limit = false;  // refuses or ends whatever exceeds it; limits_test.cc has a case for each
};

absl::Span<const FlagRow> FlagTable();

// Returns "a size such as 64MiB".
absl::string_view FlagTypeText(FlagType type);

// Returns the environment variable of a flag: ATHANOR_STATE_DIR for state_dir.
std::string FlagVariable(absl::string_view name);

// Parses and validates (ValidateOptions) the options. `args` excludes the program's name. Returns
// INVALID_ARGUMENT, naming the flag, where the value came from and what is allowed.
using Environment = std::function<const char*(const char* name)>;
absl::StatusOr<ServerOptions> ParseOptions(const std::vector<std::string>& args,
                                           const Environment& environment);

// Returns the names of --device in their order: the first is that of models which name none.
std::vector<std::string> DevicesOf(const ServerOptions& options);

// Returns the number of a GPU named as one of --device, cuda:N; nullopt: that names none.
std::optional<int> GpuOrdinal(absl::string_view device);

// Checks rules that span several flags: addresses open to others need TLS and --auth, or
// --insecure, and a device that is not built in is refused by name. Fills in defaults of empty
// paths.
absl::Status ValidateOptions(ServerOptions* options, const Environment& environment);

// Parse "30s" to milliseconds, "100us" or "2ms" to microseconds, "64MiB" to bytes.
absl::StatusOr<int64_t> ParseDuration(absl::string_view text);
absl::StatusOr<int64_t> ParseShortDuration(absl::string_view text);
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);
// Parses "0.25" to millionths; further digits are refused.
absl::StatusOr<int64_t> ParseRatio(absl::string_view text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_OPTIONS_H_
