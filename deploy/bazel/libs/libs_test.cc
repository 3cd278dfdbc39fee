// Checks that every library target of this package compiles, links and runs as Debian ships it: a
// wrong package or soname fails here, by name, and not in a strange place.
#include <cblas.h>
#include <httplib.h>
#include <openssl/sha.h>
#include <pcre2.h>
#include <sqlite3.h>
#include <systemd/sd-daemon.h>
#include <utf8proc.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "clang/Basic/Version.h"
#include "gmock/gmock.h"
#include "google/protobuf/any.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "lld/Common/Driver.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

LLD_HAS_DRIVER(elf)

namespace {

using ::testing::HasSubstr;

TEST(LibsTest, Absl) {
  const absl::StatusOr<std::string> result = absl::InvalidArgumentError("no");
  EXPECT_EQ(absl::StrCat(result.status().ToString(), 1), "INVALID_ARGUMENT: no1");
}

TEST(LibsTest, Grpc) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  EXPECT_NE(builder.BuildAndStart(), nullptr);
  EXPECT_GT(port, 0);
}

TEST(LibsTest, Protobuf) {
  google::protobuf::Any any;
  any.set_value("bytes");
  google::protobuf::Any copy;
  ASSERT_TRUE(copy.ParseFromString(any.SerializeAsString()));
  EXPECT_EQ(copy.value(), "bytes");
}

TEST(LibsTest, ClangAndLlvmAreOfOneRelease) {
  EXPECT_THAT(clang::getClangFullVersion(), HasSubstr("19."));
  llvm::LLVMContext context;
  llvm::Module module("m", context);
  EXPECT_EQ(module.getName(), "m");
}

TEST(LibsTest, Lld) {
  std::string text;
  llvm::raw_string_ostream out(text);
  const char* const args[] = {"ld.lld", "--version"};
  const lld::Result result = lld::lldMain(args, out, out, {{lld::Gnu, &lld::elf::link}});
  EXPECT_EQ(result.retCode, 0);
  EXPECT_THAT(out.str(), HasSubstr("LLD 19."));
}

TEST(LibsTest, Sqlite) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(":memory:", &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_close(db), SQLITE_OK);
}

TEST(LibsTest, Crypto) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>("abc"), 3, digest);
  EXPECT_EQ(digest[0], 0xba);
  EXPECT_EQ(digest[31], 0xad);
}

TEST(LibsTest, Httplib) {
  httplib::Server server;
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("yes", "text/plain");
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  ASSERT_GT(port, 0);
  std::thread listening([&] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::yield();
  httplib::Client client("127.0.0.1", port);
  const httplib::Result result = client.Get("/");
  server.stop();
  listening.join();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->body, "yes");
}

TEST(LibsTest, Openblas) {
  const float a[] = {1, 2, 3, 4};
  float c[4] = {};
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2);
  EXPECT_THAT(c, testing::ElementsAre(7, 10, 15, 22));
}

TEST(LibsTest, Pcre2CompilesUnicodePatternsToCode) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(R"(\p{L}+(?!\S))"), PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  ASSERT_NE(code, nullptr) << error;
  EXPECT_EQ(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE), 0);
  pcre2_match_data* match = pcre2_match_data_create_from_pattern(code, nullptr);
  const std::string text = "1 \xC3\xA9t\xC3\xA9";
  EXPECT_EQ(pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match,
                        nullptr),
            1);
  EXPECT_EQ(pcre2_get_ovector_pointer(match)[0], 2);
  pcre2_match_data_free(match);
  pcre2_code_free(code);
}

TEST(LibsTest, Utf8procComposes) {
  const std::string text = "e\xCC\x81";  // e and a combining acute accent
  utf8proc_uint8_t* composed =
      utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  ASSERT_NE(composed, nullptr);
  EXPECT_STREQ(reinterpret_cast<const char*>(composed), "\xC3\xA9");
  std::free(composed);  // allocated with malloc
}

TEST(LibsTest, HeaderOnlyOnesAndLogging) {
  CLI::App app("test");
  int n = 0;
  app.add_option("--n", n);
  const char* const args[] = {"test", "--n", "3"};
  app.parse(3, args);
  EXPECT_EQ(n, 3);
  EXPECT_EQ(nlohmann::json::parse(R"({"a": [1]})")["a"][0], 1);
  EXPECT_EQ(spdlog::get("none"), nullptr);
  EXPECT_GE(ZSTD_versionNumber(), 10000u);
  EXPECT_GE(sd_booted(), 0);
  EXPECT_EQ(zlibVersion()[0], '1');
  benchmark::DoNotOptimize(n);
}

}  // namespace
