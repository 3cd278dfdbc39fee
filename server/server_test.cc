// Tests the server as a whole: draining, health, reflection, its state directory.
#include "server/server.h"

#include <grpcpp/impl/codegen/client_unary_call.h>
#include <httplib.h>
#include <sqlite3.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/pages/server_status.h"
#include "server/metrics/exposition_testing.h"
#include "server/net/listener.h"
#include "server/net/tls_testing.h"
#include "server/testing/testing.h"
#include "server/testing/waiters_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// Calls grpc.health.v1.Health/Check by hand: the request is one string field, the reply one enum.
std::string Health(grpc::Channel* channel, const std::string& service,
                   std::chrono::milliseconds limit = std::chrono::minutes(1)) {
  std::string bytes;
  if (!service.empty()) bytes = "\x0a" + std::string(1, char(service.size())) + service;
  grpc::Slice slice(bytes);
  grpc::ByteBuffer request(&slice, 1), reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                   grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      channel, method, &context, request, &reply);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return "unknown";
  if (!status.ok()) return status.error_message();
  std::vector<grpc::Slice> slices;
  reply.Dump(&slices);
  return !slices.empty() && slices[0].size() == 2 && slices[0].begin()[1] == 1 ? "serving"
                                                                               : "not serving";
}

std::string Health(TestServer& test, const std::string& service) {
  return Health(test.channel.get(), service);
}

TEST(ServerTest, NobodyIsAnsweredBeforeALossIsTold) {
  TestServer test;
  test.options.listen = absl::StrCat("127.0.0.1:", test.server->port());
  std::string early;
  test.control->before_hooked = [&] {
    const auto channel =
        grpc::CreateChannel(test.options.listen, grpc::InsecureChannelCredentials());
    early = Health(channel.get(), "", std::chrono::milliseconds(300));
  };
  test.Restart();
  EXPECT_NE(early, "");
  EXPECT_NE(early, "serving");
  EXPECT_EQ(Health(test, ""), "serving");
}

TEST(ServerTest, HealthOfTheServerAndOfEachModel) {
  TestServer test;
  EXPECT_EQ(Health(test, ""), "serving");
  EXPECT_EQ(Health(test, "m"), "unknown");
  test.Upload("m", ScaleModel({1}));
  EXPECT_EQ(Health(test, "m"), "serving");
  test.Restart();
  test.WaitForJob(test.Get("m").compile_job_id());
  EXPECT_EQ(Health(test, "m"), "serving");
  grpc::ClientContext context;
  v1::DeleteModelRequest request;
  request.set_name("m");
  v1::DeleteModelResponse reply;
  ASSERT_TRUE(test.models->DeleteModel(&context, request, &reply).ok());
  EXPECT_EQ(Health(test, "m"), "unknown");
}

TEST(ServerTest, AfterARestartOldVersionsAreBuiltAfterEverythingElse) {
  TestServer test({.compile_workers = 1});
  for (float v : {1.0f, 2.0f, 3.0f}) test.Upload("m", ScaleModel({v}));
  test.control->HoldCompiles();
  test.Restart();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test.Send(UploadMessages("n", ScaleModel({4})), &uploaded).ok());
  test.control->ReleaseCompiles();
  // Returns when a version's job began, in microseconds.
  auto began = [&](const std::string& name, const std::string& version) {
    const v1::CompileJob job = test.WaitForJob(test.Get(name, version).compile_job_id());
    return job.started().seconds() * 1'000'000 + job.started().nanos() / 1000;
  };
  EXPECT_LE(began("m", "3"), began("n", "1"));
  EXPECT_LE(began("n", "1"), began("m", "2"));
  EXPECT_LE(began("m", "2"), began("m", "1"));
}

TEST(ServerTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  test.control->HoldRuns();
  std::vector<float> answer;
  std::thread running([&] { answer = test.Infer("m", {2}); });
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  bool finished = false;
  std::thread draining([&] { finished = test.server->Drain(); });
  while (!test.server->core().draining()) std::this_thread::yield();
  grpc::Status status = test.Infer(FloatRequest("m", {2}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("draining"));
  EXPECT_EQ(test.Send(UploadMessages("n", ReluModel())).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Health(test, ""), "not serving");
  EXPECT_EQ(Health(test, "m"), "not serving");
  {
    grpc::ClientContext context;
    inference::ServerReadyResponse reply;
    ASSERT_TRUE(test.inference_stub->ServerReady(&context, {}, &reply).ok());
    EXPECT_FALSE(reply.ready());
  }
  test.control->ReleaseRuns();
  running.join();
  draining.join();
  EXPECT_TRUE(finished);
  EXPECT_THAT(answer, testing::ElementsAre(6));
}

TEST(ServerTest, DrainGivesUpOnRunningCallsAfterItsTime) {
  ServerOptions options;
  options.drain_ms = 50;
  TestServer test(options);
  test.Upload("m", ScaleModel({3}));
  test.control->HoldRuns();
  grpc::Status status;
  std::thread running([&] { status = test.Infer(FloatRequest("m", {2})); });
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  // The run ends only after its client has been told of the cancellation.
  std::thread release([&] {
    running.join();
    test.control->ReleaseRuns();
  });
  EXPECT_FALSE(test.server->Drain());
  release.join();
  EXPECT_FALSE(status.ok());
}

TEST(ServerTest, DrainWakesThoseWhoWaitForAPlanAndEndsJobs) {
  TestServer test;
  test.control->HoldCompiles();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3})), &uploaded).ok());
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  grpc::Status waited;
  std::thread waiting([&] { waited = test.Infer(FloatRequest("m", {2})); });
  grpc::ClientContext context;
  v1::WatchCompileJobRequest request;
  request.set_id(uploaded.compile_job_id());
  auto reader = test.compile->WatchCompileJob(&context, request);
  v1::CompileJob job;
  // A call is counted before it is admitted; the first state it receives shows that it was.
  ASSERT_TRUE(reader->Read(&job));
  std::thread watching([&] {
    while (reader->Read(&job)) {
    }
  });
  while (test.server->core().active_calls() < 2) std::this_thread::yield();
  EXPECT_TRUE(test.server->Drain());
  waiting.join();
  watching.join();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(waited.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(job.stop_reason(), v1::CompileJob::STOP_SHUTDOWN);
  // The job is taken up again after a restart.
  test.control->ReleaseCompiles();
  test.Restart();
  EXPECT_THAT(test.Infer("m", {2}), testing::ElementsAre(6));
}

TEST(ServerTest, AStateDirectoryServesOneServer) {
  TestServer test;
  ServerOptions options = test.options;
  auto second = Server::Start(options, EvaluatorFactory(test.control));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(options.state_dir));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another server"));
}

TEST(ServerTest, TlsAnswersThoseWhoTrustItsCertificate) {
  ServerOptions options;
  options.state_dir = FreshDirectory();
  options.listen = "127.0.0.1:0";
  options.tls_cert = options.state_dir + "/cert.pem";
  options.tls_key = options.state_dir + "/key.pem";
  auto control = std::make_shared<TestControl>();
  auto missing = Server::Start(options, EvaluatorFactory(control));
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("--tls_cert"));
  const TestPems before = SelfSigned(), after = SelfSigned();
  before.WriteTo(options.tls_cert, options.tls_key);
  auto server = Server::Start(options, EvaluatorFactory(control));
  ASSERT_TRUE(server.ok()) << server.status();
  auto live = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("localhost");
    auto stub = inference::GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string((*server)->port()), credentials, arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    inference::ServerLiveResponse reply;
    return stub->ServerLive(&context, {}, &reply);
  };
  const auto trusting = [&](const TestPems& pems) {
    grpc::SslCredentialsOptions trust;
    trust.pem_root_certs = pems.cert;
    return live(grpc::SslCredentials(trust));
  };
  const grpc::Status answered = trusting(before);
  EXPECT_TRUE(answered.ok()) << answered.error_message();
  EXPECT_FALSE(trusting(after).ok());
  EXPECT_FALSE(live(grpc::InsecureChannelCredentials()).ok());
  // New clients get the reloaded certificate; a wrong one changes nothing.
  SelfSigned(-7200, -3600).WriteTo(options.tls_cert, options.tls_key);
  EXPECT_THAT(std::string((*server)->ReloadCertificate().status().message()),
              HasSubstr("has expired"));
  EXPECT_TRUE(trusting(before).ok());
  after.WriteTo(options.tls_cert, options.tls_key);
  EXPECT_THAT((*server)->ReloadCertificate().value(), HasSubstr("Z"));
  const grpc::Status renewed = trusting(after);
  EXPECT_TRUE(renewed.ok()) << renewed.error_message();
  EXPECT_FALSE(trusting(before).ok());
}

// Returns a page of the HTTP side; empty unless it answers 200.
std::string Page(TestServer& test, const std::string& path) {
  const httplib::Result page = httplib::Client("127.0.0.1", test.server->http_port()).Get(path);
  return page && page->status == 200 ? page->body : "";
}

Families MetricsOf(TestServer& test) {
  auto families = ParseExposition(Page(test, "/metrics"));
  EXPECT_TRUE(families.ok()) << families.status();
  return families.value_or(Families());
}

TEST(ServerTest, MetricsOfCalls) {
  ServerOptions options;
  options.http_listen = "127.0.0.1:0";
  TestServer test(options);
  const std::string name = "<script>\"\\";
  const LabelSet labels = {{"model", name}, {"version", "1"}};
  const auto coded = [](LabelSet labels, const std::string& code) {
    labels["code"] = code;
    return labels;
  };
  // Makes a call that waits for the plan, two that do not wait, one invalid one, and one for no
  // model.
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages(name, ScaleModel({3}))).ok());
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  std::thread waiting([&] { EXPECT_THAT(test.Infer(name, {2}), testing::ElementsAre(6)); });
  AwaitWaiters(test.server->core().registry().versions().Find(name, "").value()->serving(), 1);
  test.control->ReleaseCompiles();
  waiting.join();
  for (float x : {1.0f, 2.0f}) EXPECT_THAT(test.Infer(name, {x}), testing::ElementsAre(3 * x));
  EXPECT_FALSE(test.Infer(FloatRequest(name, {1, 2})).ok());
  EXPECT_FALSE(test.Infer(FloatRequest("none", {1})).ok());
  const Families families = MetricsOf(test);
  const Family& requests = families.at("athanor_requests_total");
  EXPECT_EQ(requests.Value(coded(labels, "OK")), 3);
  EXPECT_EQ(requests.Value(coded(labels, "INVALID_ARGUMENT")), 1);
  EXPECT_EQ(requests.Value(coded({{"model", ""}, {"version", ""}}, "NOT_FOUND")), 1);
  EXPECT_EQ(families.at("athanor_request_seconds").Value(labels, "_count"), 4);
  EXPECT_EQ(families.at("athanor_queue_seconds").Value(labels, "_count"), 3);
  EXPECT_EQ(families.at("athanor_exec_seconds").Value(labels, "_count"), 3);
  EXPECT_EQ(families.at("athanor_stall_seconds").Value(labels, "_count"), 1);
  EXPECT_EQ(families.at("athanor_uploads_total").Value({{"code", "OK"}}), 1);
  // The wait for a plan is part of the queue time, and both are part of the request time.
  const auto sum = [&](const std::string& family) {
    return families.at(family).Value(labels, "_sum").value_or(-1);
  };
  EXPECT_GE(sum("athanor_queue_seconds"), sum("athanor_stall_seconds"));
  EXPECT_GE(sum("athanor_request_seconds"),
            sum("athanor_queue_seconds") + sum("athanor_exec_seconds"));
  EXPECT_THAT(Page(test, "/"), HasSubstr("&lt;script&gt;&quot;\\ <span"));
  EXPECT_THAT(Page(test, "/status.json"), HasSubstr("\"name\":\"<script>\\\"\\\\\""));
}

TEST(ServerTest, WhatIsRefusedIsCounted) {
  ServerOptions options;
  options.http_listen = "127.0.0.1:0";
  options.max_pending = 4;
  TestServer test(options);
  test.Upload("m", ScaleModel({3}));
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  test.control->HoldRuns();
  std::vector<std::thread> held;
  for (int i = 0; i < options.max_pending; ++i) held.emplace_back([&] { test.Infer("m", {2}); });
  while (test.server->core().active_calls() < options.max_pending) std::this_thread::yield();
  const auto pending = [](const Families& families) {
    return families.at("athanor_refusals_total").Value({{"reason", "pending"}}).value_or(-1);
  };
  const double before = pending(MetricsOf(test));
  EXPECT_EQ(test.Infer(FloatRequest("m", {2})).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(test.Send(UploadMessages("n", ReluModel())).ok());
  test.control->ReleaseRuns();
  for (std::thread& thread : held) thread.join();
  const Families families = MetricsOf(test);
  EXPECT_EQ(pending(families), before + 2);
  EXPECT_EQ(families.at("athanor_uploads_total").Value({{"code", "RESOURCE_EXHAUSTED"}}), 1);
}

TEST(ServerTest, AnHttpAddressThatIsTakenIsNamed) {
  TestServer test;
  ServerOptions options;
  options.state_dir = FreshDirectory();
  options.http_listen = "127.0.0.1:" + std::to_string(test.server->port());
  options.listen = options.http_listen;  // its turn to be opened never comes
  auto taken = Server::Start(options, EvaluatorFactory(test.control));
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(std::string(taken.status().message()),
              HasSubstr("--http_listen=" + options.http_listen));
}

TEST(ServerTest, TheAutomaticHttpAddressGivesWay) {
  const auto holder = Listener::Open("test", "127.0.0.1:0");
  ASSERT_TRUE(holder.ok()) << holder.status();
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  ASSERT_EQ(options.http_listen, kAutoHttp);
  const auto start = [&options](const std::string& address) {
    options.state_dir = FreshDirectory();
    options.auto_http_listen = address;
    return Server::Start(options, EvaluatorFactory(std::make_shared<TestControl>())).value();
  };
  const auto without = start(absl::StrCat("127.0.0.1:", (*holder)->port()));
  EXPECT_EQ(without->http_port(), 0);
  EXPECT_EQ(without->http_listen(), "");
  const auto with = start("127.0.0.1:0");
  EXPECT_GT(with->http_port(), 0);
  EXPECT_EQ(with->http_listen(), "127.0.0.1:0");
}

TEST(ServerTest, TheOpenAiSideAsksForKeys) {
  ServerOptions options;
  const std::string folder = FreshDirectory();
  options.openai_listen = "127.0.0.1:0";
  options.openai_keys = folder + "/keys.txt";
  std::ofstream(options.openai_keys) << "team-a sk-first-key\n";
  TestServer test(options);
  EXPECT_EQ(test.server->http_port(), 0);
  httplib::Client client("127.0.0.1", test.server->openai_port());
  EXPECT_EQ(client.Get("/health")->status, 200);
  const auto models = [&](const std::string& authorization) {
    httplib::Headers headers;
    if (!authorization.empty()) headers.emplace("Authorization", authorization);
    return client.Get("/v1/models", headers);
  };
  for (const char* none : {"", "Bearer sk-other-key", "Basic sk-first-key"}) {
    const httplib::Result refused = models(none);
    EXPECT_EQ(refused->status, 401) << none;
    EXPECT_EQ(refused->get_header_value("Content-Type"), "application/json");
    EXPECT_THAT(refused->body, HasSubstr("\"error\""));
  }
  EXPECT_EQ(models("Bearer sk-first-key")->status, 200);
  EXPECT_EQ(client.Get("/none")->status, 404);
  EXPECT_EQ(client.Post("/health", "", "text/plain")->status, 405);
}

TEST(ServerTest, TheOpenAiSideDrainsAsCallsDo) {
  ServerOptions options;
  options.openai_listen = options.http_listen = "127.0.0.1:0";
  TestServer test(options);
  test.Upload("m", ScaleModel({3}));
  const int port = test.server->openai_port(), status_port = test.server->http_port();
  httplib::Client kept("127.0.0.1", port);
  kept.set_keep_alive(true);
  const auto get = [&kept](const char* path) {
    const httplib::Result got = kept.Get(path);
    EXPECT_TRUE(got) << path << ": " << httplib::to_string(got.error());
    return got ? *got : httplib::Response();
  };
  EXPECT_EQ(get("/v1/models").status, 200);
  test.control->HoldRuns();
  std::thread running([&] { test.Infer("m", {2}); });
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  std::thread draining([&] { test.server->Drain(); });
  while (!test.server->core().draining()) std::this_thread::yield();
  const httplib::Response refused = get("/v1/models");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.get_header_value("Retry-After"), "1");
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(httplib::Client("127.0.0.1", status_port).Get("/status.json")->status, 200);
  test.control->ReleaseRuns();
  running.join();
  draining.join();
  EXPECT_FALSE(kept.Get("/health"));
}

TEST(ServerTest, TheOpenAiSideNamesItsFlags) {
  const auto error = [](auto change) {
    ServerOptions options;
    options.state_dir = FreshDirectory();
    options.listen = "127.0.0.1:0";
    options.openai_listen = "127.0.0.1:0";
    change(&options);
    auto server = Server::Start(options, EvaluatorFactory(std::make_shared<TestControl>()));
    EXPECT_FALSE(server.ok());
    return std::string(server.status().message());
  };
  EXPECT_THAT(error([](ServerOptions* o) { o->openai_keys = "/none"; }),
              HasSubstr("--openai_keys=/none"));
  EXPECT_THAT(error([](ServerOptions* o) { o->openai_aliases = "a=a"; }),
              HasSubstr("--openai_aliases"));
  TestServer test;
  const std::string taken = "127.0.0.1:" + std::to_string(test.server->port());
  EXPECT_THAT(error([&](ServerOptions* o) { o->openai_listen = taken; }),
              HasSubstr("--openai_listen=" + taken));
}

thread_local int statements = 0;  // SQL statements that this thread began

int CountStatement(unsigned, void*, void*, void*) {
  ++statements;
  return 0;
}

int CountStatementsOf(sqlite3* db, char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, CountStatement, nullptr);
}

// Metrics are read every second, and queries on tables would make plan look-ups wait.
TEST(ServerTest, MetricsAndStatusAskNoTable) {
  const auto watch = reinterpret_cast<void (*)()>(CountStatementsOf);
  ASSERT_EQ(sqlite3_auto_extension(watch), SQLITE_OK);
  ServerOptions options;
  options.cache = FreshDirectory() + "/cache.db";
  TestServer test(options);
  sqlite3_cancel_auto_extension(watch);
  test.Upload("m", ScaleModel({1}));
  ServerCore& core = test.server->core();
  statements = 0;
  core.cache().Stat();
  EXPECT_GT(statements, 0);
  statements = 0;
  EXPECT_THAT(core.metrics().Text(), HasSubstr("athanor_cache_hits_total{tier=\"plans\"}"));
  EXPECT_EQ(ServerStatus(core)["models"].size(), 1u);
  EXPECT_EQ(statements, 0);
}

TEST(ServerTest, APortInUseIsNamed) {
  TestServer test;
  ServerOptions options;
  options.state_dir = FreshDirectory();
  options.listen = "127.0.0.1:" + std::to_string(test.server->port());
  auto second = Server::Start(options, EvaluatorFactory(test.control));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(options.listen));
}

TEST(ServerTest, ManyClientsAtOnceWhileModelsComeAndGo) {
  TestServer test;
  test.Upload("steady", ScaleModel({2, 3}));
  std::atomic<bool> stop = false;
  std::vector<std::thread> clients;
  for (int t = 0; t < 3; ++t) {
    clients.emplace_back([&] {
      while (!stop) EXPECT_THAT(test.Infer("steady", {1, 1}), testing::ElementsAre(2, 3));
    });
  }
  for (int i = 0; i < 10; ++i) {
    test.Upload("passing", ScaleModel({static_cast<float>(i)}));
    EXPECT_THAT(test.Infer("passing", {1}), testing::ElementsAre(i));
    if (i % 3 == 2) {
      grpc::ClientContext context;
      v1::DeleteModelRequest request;
      request.set_name("passing");
      v1::DeleteModelResponse reply;
      EXPECT_TRUE(test.models->DeleteModel(&context, request, &reply).ok());
    }
  }
  stop = true;
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace athanor
