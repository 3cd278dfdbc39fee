#include "server/base/options.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<ServerOptions> Parse(const std::vector<std::string>& args,
                                    Variables variables = {}) {
  variables.emplace("HOME", "/home/someone");
  return ParseOptions(args, [&](const char* name) -> const char* {
    auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string Error(const std::vector<std::string>& args, const Variables& variables = {}) {
  absl::StatusOr<ServerOptions> options = Parse(args, variables);
  if (options.ok()) return "no error";
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(options.status().message());
}

TEST(OptionsTest, DefaultsServeThisMachineOnly) {
  absl::StatusOr<ServerOptions> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen, "127.0.0.1:50051");
  EXPECT_EQ(options->state_dir, "/home/someone/.local/state/athanor");
  EXPECT_EQ(options->cache, "/home/someone/.local/state/athanor/cache.db");
}

TEST(OptionsTest, CommandLineWinsOverEnvironmentOverFile) {
  const std::string path = testing::TempDir() + "/athanor.conf";
  std::ofstream(path) << "# limits\nthreads = 3\nmax_nodes = 7\ndrain = 250ms\n";
  absl::StatusOr<ServerOptions> options = Parse(
      {"--config", path, "--threads=5"}, {{"ATHANOR_THREADS", "4"}, {"ATHANOR_MAX_NODES", "6"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->threads, 5);
  EXPECT_EQ(options->max_nodes, 6);
  EXPECT_EQ(options->drain_ms, 250);
}

TEST(OptionsTest, UnitsOfSizesAndTimes) {
  EXPECT_EQ(ParseBytes("3GiB").value(), int64_t{3} << 30);
  EXPECT_EQ(ParseBytes("17").value(), 17);
  EXPECT_EQ(ParseDuration("5m").value(), 300'000);
  EXPECT_EQ(ParseDuration("0").value(), 0);
  EXPECT_FALSE(ParseDuration("5").ok());
  EXPECT_FALSE(ParseDuration("100us").ok());
  EXPECT_EQ(ParseShortDuration("100us").value(), 100);
  EXPECT_EQ(ParseShortDuration("2ms").value(), 2000);
  EXPECT_EQ(ParseShortDuration("1s").value(), 1'000'000);
  EXPECT_EQ(ParseShortDuration("0").value(), 0);
  EXPECT_FALSE(ParseShortDuration("100").ok());
  EXPECT_FALSE(ParseShortDuration("1ns").ok());
  EXPECT_FALSE(ParseDuration("-5s").ok());
  EXPECT_FALSE(ParseBytes("99999999TiB").ok());
}

TEST(OptionsTest, RatiosAreMillionths) {
  EXPECT_EQ(ParseRatio("1").value(), 1'000'000);
  EXPECT_EQ(ParseRatio("0").value(), 0);
  EXPECT_EQ(ParseRatio("0.25").value(), 250'000);
  EXPECT_EQ(ParseRatio(".000001").value(), 1);
  EXPECT_EQ(ParseRatio("1.").value(), 1'000'000);
  for (const char* wrong :
       {"", ".", "-1", "1e-3", "0.0000001", "1,5", " 1", "1.2.3", "0.-1", "99999999999999999999"}) {
    EXPECT_FALSE(ParseRatio(wrong).ok()) << wrong;
  }
  EXPECT_EQ(Parse({"--trace_ratio=0.01"})->trace_ratio, 10'000);
  EXPECT_THAT(Error({"--trace_ratio=2"}),
              HasSubstr("--trace_ratio: 2 is outside [0, 1000000] (flag --trace_ratio, "
                        "millionths)"));
  EXPECT_THAT(Error({"--trace_ratio=some"}), HasSubstr("'some' is not a number such as 0.01"));
}

TEST(OptionsTest, TheCollectorIsNamedByTheFlagOrByOpenTelemetrysVariables) {
  EXPECT_EQ(Parse({})->otlp_endpoint, "");
  EXPECT_EQ(Parse({"--otlp_endpoint=http://a:1"})->otlp_endpoint, "http://a:1");
  EXPECT_THAT(Error({"--otlp_endpoint=a:1"}), HasSubstr("--otlp_endpoint=a:1: it begins with"));
  const Variables grpc = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:2"},
                          {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}};
  EXPECT_EQ(Parse({}, grpc)->otlp_endpoint, "http://b:2");
  EXPECT_EQ(Parse({"--otlp_endpoint=http://a:1"}, grpc)->otlp_endpoint, "http://a:1");
  // Not those of collectors that take HTTP, which is what they mean where they do not say.
  EXPECT_EQ(Parse({}, {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:4318"}})->otlp_endpoint, "");
  EXPECT_EQ(Parse({}, {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:4318"},
                       {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}})
                ->otlp_endpoint,
            "");
  EXPECT_EQ(
      Parse({}, {{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}})
          ->otlp_endpoint,
      "");
  EXPECT_THAT(
      Error({}, {{"OTEL_EXPORTER_OTLP_ENDPOINT", "b"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}}),
      HasSubstr("OTEL_EXPORTER_OTLP_ENDPOINT=b: it begins with"));
}

TEST(OptionsTest, TheCacheIsNotTheRegistry) {
  EXPECT_THAT(Error({"--state_dir=/s", "--cache=/s/x/../registry.db"}),
              HasSubstr("--cache: /s/x/../registry.db is where the models are listed"));
  EXPECT_TRUE(Parse({"--state_dir=/s", "--cache=/t/registry.db"}).ok());
}

TEST(OptionsTest, ErrorsNameTheFlagAndItsSource) {
  EXPECT_THAT(Error({"--thread=1"}), HasSubstr("--thread: unknown flag"));
  EXPECT_THAT(Error({"--threads"}), HasSubstr("--threads: needs a value"));
  EXPECT_THAT(Error({"--threads=many"}), HasSubstr("--threads: 'many' is not a whole number"));
  EXPECT_THAT(Error({"--threads=-1"}), HasSubstr("outside [0, 4096]"));
  EXPECT_THAT(Error({}, {{"ATHANOR_MEMORY_LIMIT", "big"}}), HasSubstr("ATHANOR_MEMORY_LIMIT"));
  EXPECT_THAT(Error({"serve"}), HasSubstr("flags begin with --"));
  EXPECT_THAT(Error({"--config=/nonexistent"}), HasSubstr("/nonexistent"));
  EXPECT_THAT(Error({"--config=/"}), HasSubstr("--config: cannot read '/'"));
  EXPECT_THAT(Error({"--log_level=loud"}), HasSubstr("--log_level=loud"));
  EXPECT_THAT(Error({"--max_model_len=1"}), HasSubstr("must be 0 or at least 2"));
  EXPECT_THAT(Error({"--tls_cert=a.pem"}), HasSubstr("--tls_key"));
  EXPECT_THAT(Error({"--tls_client_ca=a.pem"}), HasSubstr("--tls_client_ca needs --tls_cert"));
  EXPECT_THAT(Error({"--tls_client_ca=a.pem", "--auth=a"}), HasSubstr("--tls_client_ca needs"));
  EXPECT_THAT(Error({"--tls_client_ca=a.pem", "--tls_cert=c", "--tls_key=k"}),
              HasSubstr("--tls_client_ca needs"));
  const std::string path = testing::TempDir() + "/bad.conf";
  std::ofstream(path) << "\nthreds = 3\n";
  EXPECT_THAT(Error({"--config", path}), HasSubstr("bad.conf:2: unknown setting 'threds'"));
}

TEST(OptionsTest, WhatASearchMayDo) {
  absl::StatusOr<ServerOptions> options =
      Parse({"--search_budget=exhaust:200c", "--search_seed=7", "--disable_rules=algebra,layout",
             "--deterministic"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->search_budget, "exhaust:200c");
  EXPECT_EQ(options->search_seed, 7);
  EXPECT_TRUE(options->deterministic);
  EXPECT_THAT(Error({"--search_budget=-1s"}),
              HasSubstr("--search_budget: \"-1s\" is not a search"));
  EXPECT_THAT(Error({}, {{"ATHANOR_SEARCH_BUDGET", "0s"}}), HasSubstr("--search_budget: \"0s\""));
  EXPECT_THAT(Error({"--search_seed=0"}), HasSubstr("--search_seed"));
  EXPECT_THAT(Error({"--search_seed=99999999999999999999"}), HasSubstr("--search_seed"));
  EXPECT_THAT(Error({"--disable_rules=a, b"}), HasSubstr("--disable_rules: ' b' is not the name"));
}

TEST(OptionsTest, HowRequestsShareCalls) {
  absl::StatusOr<ServerOptions> options = Parse({"--batch_delay=100us", "--max_batch_rows=32"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->batch_delay_us, 100);
  EXPECT_EQ(options->max_batch_rows, 32);
  EXPECT_EQ(Parse({}, {{"ATHANOR_BATCH_DELAY", "2ms"}})->batch_delay_us, 2000);
  EXPECT_EQ(Parse({})->batch_delay_us, 0);
  EXPECT_THAT(Error({"--batch_delay=5"}), HasSubstr("'5' is not a time such as 100us"));
  EXPECT_THAT(Error({"--batch_delay=2m"}),
              HasSubstr("2m is outside [0, 60000000] (flag --batch_delay, microseconds)"));
  EXPECT_THAT(Error({"--max_batch_rows=-1"}), HasSubstr("--max_batch_rows"));
}

TEST(OptionsTest, DevicesAreNamed) {
  for (const char* device : {"auto", "cpu", "cuda:0", "cuda:15", "cuda:0,cpu", "cuda:1,cuda:0"}) {
    EXPECT_TRUE(Parse({absl::StrCat("--device=", device)}).ok()) << device;
  }
  EXPECT_THAT(Error({"--device=metal"}), HasSubstr("--device=metal: this build has no such"));
  for (const char* device : {"", "tpu", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:1 ",
                             "cuda:99999999999", "CUDA:0"}) {
    EXPECT_THAT(Error({absl::StrCat("--device=", device)}),
                HasSubstr("unknown device; must be auto, cpu or cuda:N"))
        << device;
  }
  EXPECT_THAT(Error({"--device=cpu,cuda:0,tpu"}), HasSubstr("--device=tpu: unknown device"));
  EXPECT_THAT(Error({"--device=cpu,"}), HasSubstr("unknown device"));
  EXPECT_THAT(Error({"--device=cuda:0,cpu,cuda:00"}), HasSubstr("names cuda:00 twice"));
  EXPECT_THAT(Error({"--device=cpu,auto"}), HasSubstr("auto chooses one device"));
  EXPECT_EQ(GpuOrdinal("cuda:15"), 15);
  EXPECT_EQ(GpuOrdinal("cpu"), std::nullopt);
}

TEST(OptionsTest, OtherInterfacesNeedTlsAndIdentitiesOrInsecure) {
  for (const std::string flag : {"--listen", "--http_listen", "--openai_listen"}) {
    const std::string open = flag + "=0.0.0.0:8080";
    EXPECT_THAT(
        Error({open}),
        HasSubstr(open + ": others can reach this address: give --tls_cert and --tls_key, and "
                         "--auth, or --insecure to serve without TLS and asking who calls"));
    EXPECT_THAT(Error({open, "--tls_cert=c", "--tls_key=k"}),
                HasSubstr("give --auth, or --insecure to serve without asking who calls"));
    EXPECT_THAT(Error({open, "--auth=a"}),
                HasSubstr("give --tls_cert and --tls_key, or --insecure to serve without TLS"));
    EXPECT_TRUE(Parse({open, "--tls_cert=c", "--tls_key=k", "--auth=a"}).ok());
    EXPECT_TRUE(Parse({open, "--insecure"}).ok());
    EXPECT_THAT(Error({flag + "=127.example.com:1"}), HasSubstr("others can reach"));
    EXPECT_TRUE(Parse({flag + "=[::1]:8080"}).ok());
    EXPECT_TRUE(Parse({flag + "=localhost:1"}).ok());
  }
  EXPECT_EQ(Parse({})->http_listen, "auto");
  EXPECT_EQ(Parse({"--http_listen="})->http_listen, "");
  EXPECT_THAT(Error({"--openai_listen=auto"}), HasSubstr("--openai_listen=auto"));
}

TEST(OptionsTest, AddressesAreReadWithTheFlags) {
  EXPECT_THAT(Error({"--http_listen=127.0.0.1:99999"}),
              HasSubstr("--http_listen=127.0.0.1:99999: '99999' is not a port"));
  EXPECT_THAT(Error({"--http_listen=localhost:-1"}), HasSubstr("--http_listen=localhost:-1"));
  EXPECT_THAT(Error({"--http_listen=unix:/tmp/a"}), HasSubstr("--http_listen=unix:/tmp/a"));
  EXPECT_THAT(Error({"--http_listen=:8080", "--insecure"}), HasSubstr("it has no host"));
  EXPECT_THAT(Error({"--listen=127.0.0.1:99999"}), HasSubstr("--listen=127.0.0.1:99999: '99999'"));
  EXPECT_THAT(Error({"--listen="}), HasSubstr("--listen=: it has no port"));
  EXPECT_TRUE(Parse({"--listen=unix:/tmp/a"}).ok());
}

TEST(OptionsTest, OpenAiKeysAndAliasesWantTheirAddress) {
  EXPECT_THAT(Error({"--openai_keys=keys"}), HasSubstr("want --openai_listen"));
  EXPECT_THAT(Error({"--openai_aliases=a=b"}), HasSubstr("want --openai_listen"));
  EXPECT_TRUE(Parse({"--openai_listen=127.0.0.1:0", "--openai_keys=keys"}).ok());
  EXPECT_TRUE(
      Parse({"--openai_listen=0.0.0.0:0", "--openai_keys=keys", "--tls_cert=c", "--tls_key=k"})
          .ok());
  EXPECT_THAT(Error({"--openai_listen=127.0.0.1:0", "--openai_keys=keys", "--auth=a"}),
              HasSubstr("exclude each other"));
}

TEST(OptionsTest, ControlOfModelsWantsARepository) {
  EXPECT_TRUE(Parse({"--model_repository=/models"}).ok());
  EXPECT_TRUE(Parse({"--model_repository=/models", "--model_control=poll"}).ok());
  EXPECT_THAT(Error({"--model_control=explicit"}), HasSubstr("wants --model_repository"));
  EXPECT_THAT(Error({"--model_repository=/models", "--model_control=always"}),
              HasSubstr("--model_control=always: must be none, poll or explicit"));
}

TEST(OptionsTest, EveryRowHasHelpAndTakesItsOwnDefault) {
  for (const FlagRow& row : FlagTable()) {
    EXPECT_GT(row.help.size(), 10u) << row.name;
    if (row.type == FlagType::kInt || row.type == FlagType::kBytes ||
        row.type == FlagType::kDuration || row.type == FlagType::kShortDuration ||
        row.type == FlagType::kRatio) {
      EXPECT_LT(row.min, row.max) << row.name;
      const int64_t value = ServerOptions().*std::get<int64_t ServerOptions::*>(row.field);
      EXPECT_GE(value, row.min) << row.name;
      EXPECT_LE(value, row.max) << row.name;
    }
  }
}

}  // namespace
}  // namespace athanor
