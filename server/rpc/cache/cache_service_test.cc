// Tests the calls of CacheService, through gRPC, with a cache in a file.
#include <sqlite3.h>

#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "absl/strings/escaping.h"
#include "compiler/cache/bundle.h"
#include "compiler/cache/cache_testing.h"
#include "deploy/bazel/libs/ed25519_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Chunks = std::vector<v1::CacheBundleChunk>;
using grpc::StatusCode;

constexpr std::chrono::seconds kLong{60};

std::string Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

Ed25519Key Key(char seed) {
  return Ed25519Key::FromPem(Ed25519PrivatePem(std::string(32, seed))).value();
}

// A server with its own cache.
class CacheServiceTest : public ::testing::Test {
 protected:
  // `signs`, `trusts`: seeds of keys; 0: no key.
  static ServerOptions With(char signs = 0, char trusts = 0) {
    ServerOptions options;
    const std::string folder = FreshDirectory();
    options.state_dir = folder + "/state";
    options.cache = folder + "/cache.db";
    if (signs != 0) {
      options.cache_signing_key =
          Write(folder + "/signing.pem", Ed25519PrivatePem(std::string(32, signs)));
    }
    if (trusts != 0) {
      options.cache_trusted_keys =
          Write(folder + "/trusted.pem", Ed25519PublicPem(Key(trusts).public_key()));
    }
    return options;
  }

  static v1::CacheStat Stat(TestServer& test) {
    grpc::ClientContext context;
    v1::CacheStat stat;
    const grpc::Status status = test.cache_stub->Stat(&context, {}, &stat);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return stat;
  }

  static grpc::Status Verify(TestServer& test, bool quarantine, v1::CacheVerification* found) {
    grpc::ClientContext context;
    v1::VerifyCacheRequest request;
    request.set_quarantine(quarantine);
    return test.cache_stub->Verify(&context, request, found);
  }

  static grpc::Status Export(TestServer& test, const v1::ExportCacheRequest& request,
                             Chunks* chunks) {
    grpc::ClientContext context;
    auto reader = test.cache_stub->Export(&context, request);
    for (v1::CacheBundleChunk chunk; reader->Read(&chunk);) chunks->push_back(chunk);
    return reader->Finish();
  }

  static Chunks ExportAll(TestServer& test, bool binaries) {
    v1::ExportCacheRequest request;
    request.set_binaries(binaries);
    Chunks chunks;
    const grpc::Status status = Export(test, request, &chunks);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return chunks;
  }

  static grpc::Status Import(TestServer& test, const Chunks& chunks,
                             v1::ImportCacheReply* reply = nullptr) {
    grpc::ClientContext context;
    v1::ImportCacheReply ignored;
    auto writer = test.cache_stub->Import(&context, reply == nullptr ? &ignored : reply);
    for (const v1::CacheBundleChunk& chunk : chunks) {
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

  static void Fill(TestServer& test) {
    for (int i = 0; i < 3; ++i)
      test.control->cache()->recipes().Put(TestRecipeKey(i), TestRecipe("tile 4"));
    for (int i = 0; i < 2; ++i)
      test.control->cache()->kernels().Put(TestKernelKey(i), TestObject(i));
    ASSERT_TRUE(test.control->cache()->Flush(kLong).ok());
  }

  static int64_t RowsOf(TestServer& test, const std::string& tier) {
    const v1::CacheStat stat = Stat(test);
    for (const auto& of : stat.tiers()) {
      if (of.tier() == tier) return of.rows();
    }
    ADD_FAILURE() << tier;
    return -1;
  }

  static void Execute(const std::string& path, const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    sqlite3_close(db);
  }
};

TEST_F(CacheServiceTest, StatCountsWhatTheServerDid) {
  TestServer test(With());
  Fill(test);
  test.control->cache()->work().kernels_compiled = 5;
  test.control->cache()->work().candidates_measured = 7;
  test.control->cache()->work().kernels_from_cache = 3;
  const v1::CacheStat stat = Stat(test);
  EXPECT_EQ(stat.path(), test.options.cache);
  EXPECT_EQ(stat.state(), v1::CacheStat::USABLE);
  EXPECT_EQ(stat.limit_bytes(), int64_t{2} << 30);
  EXPECT_EQ(stat.kernels_compiled(), 5);
  EXPECT_EQ(stat.candidates_measured(), 7);
  EXPECT_EQ(stat.kernels_from_cache(), 3);
  EXPECT_EQ(RowsOf(test, "recipes"), 3);
  EXPECT_EQ(RowsOf(test, "kernels"), 2);
}

TEST_F(CacheServiceTest, WithoutACacheItIsSaid) {
  TestServer test;
  const v1::CacheStat stat = Stat(test);
  EXPECT_EQ(stat.state(), v1::CacheStat::UNUSABLE);
  EXPECT_THAT(stat.reason(), HasSubstr("no cache path was given"));
  v1::CacheVerification found;
  EXPECT_EQ(Verify(test, false, &found).error_code(), StatusCode::FAILED_PRECONDITION);
  Chunks chunks;
  EXPECT_EQ(Export(test, {}, &chunks).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(chunks, IsEmpty());
}

TEST_F(CacheServiceTest, ANewerSchemaIsLeftAlone) {
  const ServerOptions options = With();
  Cache::Open({.path = options.cache}, [](absl::string_view) {}).reset();
  Execute(options.cache, "PRAGMA user_version=1000");
  TestServer test(options);
  const v1::CacheStat stat = Stat(test);
  EXPECT_EQ(stat.state(), v1::CacheStat::NEWER_SCHEMA);
  EXPECT_THAT(stat.reason(), HasSubstr("1000"));
  v1::CacheVerification found;
  const grpc::Status refused = Verify(test, true, &found);
  EXPECT_EQ(refused.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("1000"));
}

TEST_F(CacheServiceTest, VerifyReportsAndQuarantines) {
  TestServer test(With());
  Fill(test);
  v1::CacheVerification found;
  ASSERT_TRUE(Verify(test, false, &found).ok());
  EXPECT_THAT(found.bad(), IsEmpty());
  EXPECT_EQ(found.database(), "ok");
  EXPECT_EQ(found.rows(), 5);
  Execute(test.options.cache, "UPDATE kernels SET object = x'00' WHERE rowid = 1");
  for (const bool quarantine : {false, true}) {
    ASSERT_TRUE(Verify(test, quarantine, &found).ok());
    ASSERT_EQ(found.bad_size(), 1);
    EXPECT_EQ(found.bad(0).tier(), "kernels");
    EXPECT_THAT(found.bad(0).about(), HasSubstr("kernel"));
    EXPECT_EQ(RowsOf(test, "quarantine"), quarantine ? 1 : 0);
  }
  ASSERT_TRUE(Verify(test, false, &found).ok());
  EXPECT_THAT(found.bad(), IsEmpty());
  EXPECT_EQ(RowsOf(test, "kernels"), 1);
}

TEST_F(CacheServiceTest, CollectGarbage) {
  TestServer test(With());
  Fill(test);
  const auto collect = [&](int64_t limit, bool dry_run, v1::CollectGarbageReply* reply) {
    grpc::ClientContext context;
    v1::CollectGarbageRequest request;
    request.set_limit_bytes(limit);
    request.set_dry_run(dry_run);
    return test.cache_stub->CollectGarbage(&context, request, reply);
  };
  v1::CollectGarbageReply reply;
  ASSERT_TRUE(collect(1, true, &reply).ok());
  EXPECT_EQ(reply.rows(), 5);
  EXPECT_EQ(RowsOf(test, "recipes"), 3);
  ASSERT_TRUE(collect(1, false, &reply).ok());
  EXPECT_EQ(reply.rows(), 5);
  EXPECT_EQ(RowsOf(test, "recipes"), 0);
  const grpc::Status refused = collect(-1, false, &reply);
  EXPECT_EQ(refused.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("limit_bytes: -1"));
}

TEST_F(CacheServiceTest, ExplainSaysWhatWasLookedUp) {
  TestServer test(With());
  test.Upload("m", ReluModel());
  const auto explain = [&](const v1::ExplainCacheRequest& request, v1::CacheExplanation* reply) {
    grpc::ClientContext context;
    return test.cache_stub->Explain(&context, request, reply);
  };
  v1::ExplainCacheRequest request;
  request.set_model("m");
  v1::CacheExplanation reply;
  const grpc::Status status = explain(request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(reply.buckets_size(), 1);
  const v1::BucketExplanation hit = reply.buckets(0);
  EXPECT_TRUE(hit.hit());
  EXPECT_EQ(hit.plan_id(), test.Get("m").plan_id());
  ASSERT_EQ(hit.bucket_size(), 1);
  EXPECT_EQ(hit.bucket(0).name(), "b");
  EXPECT_EQ(hit.bucket(0).max(), 64);
  EXPECT_THAT(hit.steps(0), HasSubstr(hit.plan_id()));
  *request.mutable_bucket() = hit.bucket();
  EXPECT_TRUE(explain(request, &reply).ok());
  // After the row is deleted, no similar row is left.
  v1::CollectGarbageRequest all;
  all.set_limit_bytes(1);
  v1::CollectGarbageReply gone;
  grpc::ClientContext context;
  ASSERT_TRUE(test.cache_stub->CollectGarbage(&context, all, &gone).ok());
  ASSERT_TRUE(explain(request, &reply).ok());
  EXPECT_FALSE(reply.buckets(0).hit());
  EXPECT_THAT(reply.buckets(0).steps(0), HasSubstr("plans: none of graph"));
  // The error names the bucket that does not exist.
  request.mutable_bucket(0)->set_max(65);
  grpc::Status refused = explain(request, &reply);
  EXPECT_EQ(refused.error_code(), StatusCode::NOT_FOUND);
  EXPECT_THAT(refused.error_message(),
              AllOf(HasSubstr("no bucket b=1..65"), HasSubstr("it has b=1..64")));
  request.set_model("nobody");
  EXPECT_EQ(explain(request, &reply).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(CacheServiceTest, ExplainNamesTheColumnsThatDiffer) {
  const ServerOptions options = With();
  TestServer test(options);
  test.Upload("m", ReluModel());
  ASSERT_TRUE(test.control->cache()->Flush(kLong).ok());
  test.server.reset();
  test.control->RememberIn(options.cache, "another cpu");
  test.control->HoldCompiles();  // its own plan is not there yet
  test.Restart();
  grpc::ClientContext context;
  v1::ExplainCacheRequest request;
  request.set_model("m");
  v1::CacheExplanation reply;
  ASSERT_TRUE(test.cache_stub->Explain(&context, request, &reply).ok());
  ASSERT_EQ(reply.buckets_size(), 1);
  EXPECT_FALSE(reply.buckets(0).hit());
  ASSERT_GT(reply.buckets(0).differences_size(), 0);
  const v1::BucketExplanation::Difference& cpu = reply.buckets(0).differences(0);
  EXPECT_EQ(cpu.column(), "cpu");
  EXPECT_EQ(cpu.wanted(), "another cpu");
  EXPECT_EQ(cpu.found(), "test cpu");
  EXPECT_TRUE(cpu.gates());
}

TEST_F(CacheServiceTest, AnEmptyTierIsAValidBundle) {
  TestServer from(With()), to(With());
  const Chunks chunks = ExportAll(from, false);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_THAT(chunks[0].header().origin(), HasSubstr("athanord"));
  EXPECT_EQ(chunks[1].trailer().records(), 0);
  v1::ImportCacheReply reply;
  ASSERT_TRUE(Import(to, chunks, &reply).ok());
  EXPECT_EQ(reply.recipes_added() + reply.recipes_known(), 0);
  EXPECT_EQ(reply.origin(), chunks[0].header().origin());
}

TEST_F(CacheServiceTest, RecipesTravelUnsigned) {
  TestServer from(With()), to(With());
  Fill(from);
  const Chunks chunks = ExportAll(from, false);
  ASSERT_EQ(chunks.size(), 5u);
  for (const int64_t known : {0, 3}) {
    v1::ImportCacheReply reply;
    const grpc::Status status = Import(to, chunks, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.recipes_added(), 3 - known);
    EXPECT_EQ(reply.recipes_known(), known);
    EXPECT_EQ(reply.signed_by(), "");
  }
  EXPECT_EQ(to.control->cache()->recipes().Find(TestRecipeKey(1), TestTarget(), 4).size(), 1u);
  EXPECT_EQ(RowsOf(to, "kernels"), 0);
}

TEST_F(CacheServiceTest, BinariesTravelSignedToThoseWhoTrust) {
  TestServer from(With('a')), to(With(0, 'a'));
  Fill(from);
  const Chunks chunks = ExportAll(from, true);
  ASSERT_EQ(chunks.size(), 7u);
  v1::ImportCacheReply reply;
  const grpc::Status status = Import(to, chunks, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.kernels_added(), 2);
  EXPECT_EQ(reply.signed_by(), absl::BytesToHexString(Key('a').public_key()));
  EXPECT_EQ(to.control->cache()->kernels().Find(TestKernelKey(1)), TestObject(1));
}

TEST_F(CacheServiceTest, BinariesOfOthersAreRefused) {
  TestServer from(With('a')), trusts_another(With(0, 'b')), trusts_none(With());
  Fill(from);
  const Chunks chunks = ExportAll(from, true);
  for (TestServer* to : {&trusts_another, &trusts_none}) {
    const grpc::Status refused = Import(*to, chunks);
    EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(refused.error_message(), HasSubstr(absl::BytesToHexString(Key('a').public_key())));
    EXPECT_EQ(RowsOf(*to, "kernels") + RowsOf(*to, "recipes"), 0);
  }
}

TEST_F(CacheServiceTest, BinariesNeedAKeyToSignWith) {
  TestServer test(With());
  v1::ExportCacheRequest request;
  request.set_binaries(true);
  Chunks chunks;
  const grpc::Status refused = Export(test, request, &chunks);
  EXPECT_EQ(refused.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("--cache_signing_key"));
}

TEST_F(CacheServiceTest, AModelTravelsWithAllThatServesIt) {
  TestServer from(With('a')), to(With(0, 'a'));
  from.Upload("m", ScaleModel({1, 2}));
  from.Upload("other", ScaleModel({1, 2, 3}));
  v1::ExportCacheRequest request;
  request.set_model("m");
  request.set_binaries(true);
  Chunks chunks;
  const grpc::Status given = Export(from, request, &chunks);
  ASSERT_TRUE(given.ok()) << given.error_message();
  ASSERT_EQ(chunks.size(), 4u) << "a header, a plan, its kernel, a trailer";
  EXPECT_EQ(chunks[1].record().plan().plan().plan_id(), from.Get("m").plan_id());
  v1::ImportCacheReply reply;
  const grpc::Status status = Import(to, chunks, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.plans_added(), 1);
  EXPECT_EQ(reply.kernels_added(), 1);
  to.Upload("m", ScaleModel({1, 2}));
  EXPECT_EQ(to.Infer("m", {3, 4}), (std::vector<float>{3, 8}));
  EXPECT_EQ(to.Get("m").plan_id(), from.Get("m").plan_id());
  EXPECT_THAT(to.control->events(), IsEmpty()) << "neither lowered nor compiled";
  to.Upload("other", ScaleModel({1, 2, 3}));
  EXPECT_FALSE(to.control->events().empty());
}

TEST_F(CacheServiceTest, WhatOfAModelCannotBeExportedIsSaid) {
  TestServer test(With('a'));
  test.Upload("m", ScaleModel({1, 2}));
  struct Case {
    const char *model, *version;
    bool binaries;
    StatusCode code;
    const char* says;
  };
  const Case cases[] = {
      {"m", "", false, StatusCode::INVALID_ARGUMENT, "ask for binaries"},
      {"", "1", true, StatusCode::INVALID_ARGUMENT, "version: \"1\" is given without a model"},
      {"nobody", "", true, StatusCode::NOT_FOUND, "model \"nobody\" does not exist"},
      {"m", "7", true, StatusCode::NOT_FOUND, "has no version 7"},
      {"m", "x", true, StatusCode::INVALID_ARGUMENT, "version \"x\""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    v1::ExportCacheRequest request;
    request.set_model(c.model);
    request.set_version(c.version);
    request.set_binaries(c.binaries);
    Chunks chunks;
    const grpc::Status refused = Export(test, request, &chunks);
    EXPECT_EQ(refused.error_code(), c.code);
    EXPECT_THAT(refused.error_message(), HasSubstr(c.says));
    EXPECT_THAT(chunks, IsEmpty());
  }
}

TEST_F(CacheServiceTest, AVersionWhoseDeviceIsAbsentIsNamed) {
  TestServer test(With('a'));
  test.control->devices = {"cuda:0", "cpu"};
  test.Restart();
  for (const char* device : {"cuda:0", "cpu"}) {
    auto messages = UploadMessages("m", ScaleModel({1, 2, device[1] == 'u' ? 3.f : 4.f}));
    messages[0].mutable_header()->set_device(device);
    v1::UploadModelResponse uploaded;
    ASSERT_TRUE(test.Send(messages, &uploaded).ok());
    test.WaitForJob(uploaded.compile_job_id());
  }
  test.control->devices = {"cpu"};
  test.Restart();
  const auto absent = AllOf(HasSubstr("model \"m\", version 1"), HasSubstr("no device \"cuda:0\""));
  v1::ExplainCacheRequest explain;
  v1::CacheExplanation explanation;
  explain.set_model("m");
  for (const auto& [version, code] :
       {std::pair{"1", StatusCode::FAILED_PRECONDITION}, {"2", StatusCode::OK}}) {
    grpc::ClientContext context;
    explain.set_version(version);
    const grpc::Status status = test.cache_stub->Explain(&context, explain, &explanation);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    if (code != StatusCode::OK) EXPECT_THAT(status.error_message(), absent);
  }
  v1::ExportCacheRequest request;
  request.set_model("m");
  request.set_binaries(true);
  Chunks chunks;
  const grpc::Status all = Export(test, request, &chunks);
  EXPECT_EQ(all.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(all.error_message(),
              AllOf(absent, HasSubstr("name a version whose device is there")));
  EXPECT_THAT(chunks, IsEmpty());
  request.set_version("1");
  EXPECT_THAT(Export(test, request, &chunks).error_message(), absent);
  request.set_version("2");
  EXPECT_TRUE(Export(test, request, &chunks).ok());
  EXPECT_GT(chunks.size(), 2u);
}

// The error for a bad bundle names the record, and no record is kept.
TEST_F(CacheServiceTest, TamperedBundlesLeaveNothing) {
  TestServer from(With('a')), to(With(0, 'a'));
  Fill(from);
  const Chunks good = ExportAll(from, true);
  struct Case {
    std::string what;
    std::function<void(Chunks&)> tamper;
    StatusCode code;
    std::string says;
  };
  const Case cases[] = {
      {"a genome changed",
       [](Chunks& c) { c[2].mutable_record()->mutable_recipe()->set_genome("tile 5"); },
       StatusCode::INVALID_ARGUMENT, "record 1 (recipe of region "},
      {"an object changed",
       [](Chunks& c) { c[4].mutable_record()->mutable_kernel()->set_object("evil"); },
       StatusCode::INVALID_ARGUMENT, "record 3 (kernel "},
      {"a record left out", [](Chunks& c) { c.erase(c.begin() + 2); }, StatusCode::INVALID_ARGUMENT,
       "record 1 "},
      {"cut off", [](Chunks& c) { c.pop_back(); }, StatusCode::INVALID_ARGUMENT,
       "ends after 5 records"},
      {"the signature changed",
       [](Chunks& c) { (*c.back().mutable_trailer()->mutable_signature())[0] ^= 1; },
       StatusCode::PERMISSION_DENIED, ""},
      {"other semantics", [](Chunks& c) { c[0].mutable_header()->set_semantics_version(99); },
       StatusCode::INVALID_ARGUMENT, "semantics_version: 99"},
      {"another format", [](Chunks& c) { c[0].mutable_header()->set_format(9); },
       StatusCode::INVALID_ARGUMENT, "format: 9"},
      {"the key left out", [](Chunks& c) { c[0].mutable_header()->clear_public_key(); },
       StatusCode::PERMISSION_DENIED, "not signed"},
      {"nothing", [](Chunks& c) { c.clear(); }, StatusCode::INVALID_ARGUMENT, "empty"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Chunks chunks = good;
    c.tamper(chunks);
    const grpc::Status refused = Import(to, chunks);
    EXPECT_EQ(refused.error_code(), c.code) << refused.error_message();
    EXPECT_THAT(refused.error_message(), HasSubstr(c.says));
    EXPECT_EQ(RowsOf(to, "kernels") + RowsOf(to, "recipes"), 0);
  }
  EXPECT_TRUE(Import(to, good).ok());
}

TEST_F(CacheServiceTest, AnImportKeepsToItsLimits) {
  ServerOptions options = With();
  options.max_import_bytes = 400;
  TestServer from(With()), to(options);
  Fill(from);
  const grpc::Status refused = Import(to, ExportAll(from, false));
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              AllOf(HasSubstr("record "), HasSubstr("at most 400 (--max_import_bytes)")));
  EXPECT_EQ(RowsOf(to, "recipes"), 0);
  // A call ends a little after its client has been told.
  while (to.server->core().active_calls() > 0) std::this_thread::yield();
  EXPECT_EQ(to.server->core().ledger().used(HeldKind::kUploads), 0);
}

TEST_F(CacheServiceTest, AnImportThatSendsNothingIsGivenUp) {
  ServerOptions options = With();
  options.upload_idle_ms = 20;
  TestServer test(options);
  grpc::ClientContext context;
  v1::ImportCacheReply reply;
  auto writer = test.cache_stub->Import(&context, &reply);
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("--upload_idle"));
}

TEST_F(CacheServiceTest, KeysAreReadAtTheStart) {
  ServerOptions options = With();
  options.listen = "127.0.0.1:0";
  options.cache_signing_key = "/nonexistent.pem";
  const absl::Status refused =
      Server::Start(options, EvaluatorFactory(std::make_shared<TestControl>())).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--cache_signing_key"));
}

}  // namespace
}  // namespace athanor
