// Calls everything as everybody: each RPC and each HTTP route, as each identity, with models that
// it may use and others. Nothing forbidden goes through, and nothing allowed is refused.
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <httplib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "proto/google/rpc/retry_details.pb.h"
#include "server/access/identities.h"
#include "server/access/rpcs.h"
#include "server/base/log.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = grpc::StatusCode;

constexpr char kMine[] = "mine/m", kOther[] = "other/m";

// A caller: its token, and what it is allowed; no roles: nothing but what is public.
struct Someone {
  std::string token;
  Roles roles;
};

std::string Section(const std::string& name, const std::string& lines) {
  return absl::StrCat("[", name, "]\ntoken = ", TokenDigestText(name + "-token"), "\n", lines,
                      "\n");
}

// Returns a message whose first field is the text.
std::string WithText(const std::string& text) {
  return text.empty() ? "" : "\x0a" + std::string(1, static_cast<char>(text.size())) + text;
}

// Returns a body that the route reads.
std::string BodyFor(const std::string& path, const std::string& model) {
  std::string field = R"("prompt":"x")";
  if (path == "/v1/embeddings") field = R"("input":"x")";
  if (path == "/v1/chat/completions") field = R"("messages":[{"role":"user","content":"x"}])";
  return absl::StrCat(R"({"model":")", model, "\",", field, "}");
}

class AccessCallsTest : public testing::Test {
 protected:
  // Stores two models while nobody is asked, then starts again with identities.
  void SetUp() override {
    test_.Upload(kMine, ScaleModel({1}));
    test_.Upload(kOther, ScaleModel({1}));
    test_.options.auth = FreshDirectory() + "/auth.conf";
    test_.options.http_listen = test_.options.openai_listen = "127.0.0.1:0";
    const std::string identities =
        Section("infer", "roles = infer\nmodels = mine/*") +
        Section("upload", "roles = upload\nmodels = mine/*") +
        Section("both", "roles = infer, upload\nmodels = mine/*") +
        Section("monitor", "roles = monitor") + Section("admin", "roles = admin") +
        Section("few", "roles = infer\nmodels = *\ncalls_per_second = 1") +
        Section("one", "roles = upload\nmodels = *\nmax_models = 2") +
        absl::StrCat("[old]\nroles = admin\ntoken = ", TokenDigestText("expired-token"),
                     " until 2020-01-01\n");
    Write(identities + Section("gone", "roles = admin"));
    test_.Restart();
    ASSERT_EQ(Call("ListModels", "", "gone-token").error_code(), Code::OK);
    Write(identities);
    ASSERT_TRUE(test_.server->ReloadIdentities().ok());
    for (const std::string model : {kMine, kOther}) {
      const auto jobs = test_.server->core().workers().jobs().List(model);
      ASSERT_FALSE(jobs.empty());
      job_of_[model] = jobs.front()->id();
    }
  }
  void Write(const std::string& text) {
    std::ofstream(test_.options.auth + ".new") << text;
    std::filesystem::rename(test_.options.auth + ".new", test_.options.auth);
  }

  static std::vector<Someone> Everybody() {
    return {{"", {}},
            {"wrong-token", {}},
            {"expired-token", {}},
            {"gone-token", {}},
            {"infer-token", {Role::kInfer}},
            {"upload-token", {Role::kUpload}},
            {"both-token", {Role::kInfer, Role::kUpload}},
            {"monitor-token", {Role::kMonitor}},
            {"admin-token", {Role::kAdmin}}};
  }
  static bool MayUse(const Someone& who, const std::string& model) {
    if (who.roles.Has(Role::kAdmin)) return true;
    return model != kOther && (who.roles.Has(Role::kInfer) || who.roles.Has(Role::kUpload));
  }

  // Calls an RPC with one message, whatever kind it is.
  grpc::Status Call(const std::string& method, const std::string& message, const std::string& token,
                    std::chrono::milliseconds limit = std::chrono::minutes(1)) {
    const std::string path = absl::StrCat("/", RpcNamed(method).service, "/", method);
    grpc::Slice slice(message);
    grpc::ByteBuffer request(&slice, 1), reply;
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    context.AddMetadata("triton_grpc_error", "true");  // errors of ModelStreamInfer end it
    context.set_deadline(std::chrono::system_clock::now() + limit);
    grpc::internal::RpcMethod rpc(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        test_.channel.get(), rpc, &context, request, &reply);
  }
  // Returns a message of the RPC that is about the model, if the RPC can be.
  std::string MessageFor(const RpcRow& row, const std::string& model) {
    if (absl::StartsWith(row.method, "RepositoryModel")) {
      inference::RepositoryModelLoadRequest message;  // Unload's has the same fields
      message.set_model_name(model);
      return message.SerializeAsString();
    }
    if (!row.model.empty() || row.method == "ModelStatistics") return WithText(model);
    if (row.method == "UploadModel") {
      v1::UploadModelRequest message;
      message.mutable_header()->set_name(model);
      return message.SerializeAsString();
    }
    const bool of_job = row.method == "GetCompileJob" || row.method == "CancelCompileJob" ||
                        row.method == "WatchCompileJob";
    return of_job ? WithText(job_of_[model]) : "";
  }

  TestServer test_;
  std::map<std::string, std::string> job_of_;
};

TEST_F(AccessCallsTest, EachRpcAsEachIdentity) {
  int calls = 0, through = 0, kept_out = 0;
  for (const RpcRow& row : RpcTable()) {
    if (row.method == "ServerReflectionInfo") continue;  // gRPC's own: public
    for (const Someone& who : Everybody()) {
      for (const std::string model : {kMine, kOther}) {
        const std::string message = MessageFor(row, model);
        const bool may = row.roles.empty() ||
                         (row.roles.Admit(who.roles) && (message.empty() || MayUse(who, model)));
        // Streams of messages that go on are ended.
        const bool goes_on = may && (row.method == "Watch" || row.method == "WatchCompileJob" ||
                                     row.method == "Export");
        const grpc::Status status =
            Call(std::string(row.method), message, who.token,
                 goes_on ? std::chrono::milliseconds(300) : std::chrono::minutes(1));
        const Code refusal = who.roles.empty() ? Code::UNAUTHENTICATED : Code::PERMISSION_DENIED;
        ++calls;
        if (!may && status.error_code() != refusal) {
          ++through;
          ADD_FAILURE() << row.method << " of " << model << " by " << who.token << ": "
                        << status.error_code() << " " << status.error_message();
        }
        if (may && (status.error_code() == Code::UNAUTHENTICATED ||
                    status.error_code() == Code::PERMISSION_DENIED)) {
          ++kept_out;
          ADD_FAILURE() << row.method << " of " << model << " by " << who.token << ": "
                        << status.error_message();
        }
        EXPECT_THAT(status.error_message(), Not(HasSubstr("-token")));
      }
    }
  }
  EXPECT_GT(calls, 500);
  EXPECT_EQ(through, 0);
  EXPECT_EQ(kept_out, 0);
}

// Health of the server is public; of a model only for those who may use it.
TEST_F(AccessCallsTest, HealthOfAModel) {
  EXPECT_EQ(Call("Check", "", "").error_code(), Code::OK);
  for (const char* model : {kMine, "none"}) {
    EXPECT_EQ(Call("Check", WithText(model), "").error_code(), Code::UNAUTHENTICATED);
    EXPECT_EQ(Call("Watch", WithText(model), "wrong").error_code(), Code::UNAUTHENTICATED);
  }
  EXPECT_EQ(Call("Check", WithText(kMine), "infer-token").error_code(), Code::OK);
  EXPECT_EQ(Call("Check", WithText(kOther), "infer-token").error_code(), Code::PERMISSION_DENIED);
}

TEST_F(AccessCallsTest, ListsHaveWhatTheCallerMayUse) {
  const auto list = [&](const std::string& token) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    v1::ListModelsResponse reply;
    EXPECT_TRUE(test_.models->ListModels(&context, {}, &reply).ok());
    std::string names;
    for (const v1::Model& model : reply.models()) absl::StrAppend(&names, model.name(), " ");
    return names;
  };
  EXPECT_EQ(list("infer-token"), "mine/m ");
  EXPECT_EQ(list("admin-token"), "mine/m other/m ");
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer upload-token");
  v1::ListCompileJobsResponse jobs;
  ASSERT_TRUE(test_.compile->ListCompileJobs(&context, {}, &jobs).ok());
  EXPECT_GT(jobs.jobs_size(), 0);
  for (const v1::CompileJob& job : jobs.jobs()) EXPECT_EQ(job.model(), kMine);
}

// Each route of all HTTP addresses. A new route needs a row here, as an RPC needs one in rpcs.cc.
TEST_F(AccessCallsTest, EachRouteAsEachIdentity) {
  const std::map<std::string, Role> kRoutes = {
      {"GET /", Role::kMonitor},
      {"GET /health", Role::kNone},
      {"GET /healthz", Role::kNone},
      {"GET /livez", Role::kNone},
      {"GET /metrics", Role::kMonitor},
      {"GET /status.json", Role::kMonitor},
      {"GET /v1/models", Role::kInfer},
      {"GET /v1/models/*", Role::kInfer},
      {"GET /v2", Role::kNone},
      {"GET /v2/cudasharedmemory/*", Role::kInfer},
      {"GET /v2/health/live", Role::kNone},
      {"GET /v2/health/ready", Role::kNone},
      {"GET /v2/logging", Role::kAdmin},
      {"GET /v2/models/*", Role::kInfer},
      {"GET /v2/systemsharedmemory/*", Role::kInfer},
      {"GET /v2/trace/setting", Role::kAdmin},
      {"POST /v1/chat/completions", Role::kInfer},
      {"POST /v1/completions", Role::kInfer},
      {"POST /v1/embeddings", Role::kInfer},
      {"POST /v2/cudasharedmemory/*", Role::kInfer},
      {"POST /v2/logging", Role::kAdmin},
      {"POST /v2/models/*", Role::kInfer},
      {"POST /v2/repository/index", Role::kInfer},
      {"POST /v2/repository/models/*", Role::kUpload},
      {"POST /v2/systemsharedmemory/*", Role::kInfer},
      {"POST /v2/trace/setting", Role::kAdmin},
  };
  std::map<std::string, Role> routes;
  int through = 0, kept_out = 0;
  for (const Server::ServedRoute& route : test_.server->routes()) {
    routes[absl::StrCat(route.method, " ", route.path)] = route.role;
    const bool of_model = absl::StartsWith(route.path, "/v1/models/") ||
                          absl::StartsWith(route.path, "/v2/models/") ||
                          (route.method == "POST" && absl::StartsWith(route.path, "/v1/"));
    httplib::Client client("127.0.0.1", route.port);
    for (const Someone& who : Everybody()) {
      for (const std::string model : {kMine, kOther}) {
        const bool may = route.role == Role::kNone || (Roles({route.role}).Admit(who.roles) &&
                                                       (!of_model || MayUse(who, model)));
        const std::string path = absl::StrReplaceAll(route.path, {{"*", model}});
        httplib::Headers headers;
        if (!who.token.empty()) headers.emplace("Authorization", "Bearer " + who.token);
        const std::string body = BodyFor(route.path, model);
        const httplib::Result got = route.method == "POST"
                                        ? client.Post(path, headers, body, "application/json")
                                        : client.Get(path, headers);
        ASSERT_TRUE(got) << path;
        if (!may && got->status != (who.roles.empty() ? 401 : 403)) {
          ++through;
          ADD_FAILURE() << route.method << " " << path << " by " << who.token << ": "
                        << got->status;
        }
        if (may && (got->status == 401 || got->status == 403)) {
          ++kept_out;
          ADD_FAILURE() << route.method << " " << path << " by " << who.token << ": " << got->body;
        }
        if (got->status == 401) EXPECT_TRUE(got->has_header("WWW-Authenticate"));
        if (got->status == 401) EXPECT_THAT(got->body, Not(HasSubstr("-token")));
      }
    }
  }
  EXPECT_EQ(routes, kRoutes);
  EXPECT_EQ(through, 0);
  EXPECT_EQ(kept_out, 0);
}

TEST_F(AccessCallsTest, RestListsWhatTheCallerMayUse) {
  httplib::Client client("127.0.0.1", test_.server->http_port());
  const auto index = [&](const std::string& token) {
    return client
        .Post("/v2/repository/index", {{"Authorization", "Bearer " + token}}, "{}",
              "application/json")
        ->body;
  };
  EXPECT_THAT(index("infer-token"), HasSubstr(kMine));
  EXPECT_THAT(index("infer-token"), Not(HasSubstr(kOther)));
  EXPECT_THAT(index("admin-token"), HasSubstr(kOther));
  for (const char* path : {"", "/ready", "/config", "/stats", "/versions/1", "/versions/1/ready"}) {
    const auto status = [&](const std::string& model) {
      return client.Get("/v2/models/" + model + path, {{"Authorization", "Bearer infer-token"}})
          ->status;
    };
    EXPECT_EQ(status(kOther), 403) << path;
    EXPECT_NE(status(kMine), 403) << path;
  }
}

// The table of RPCs has each that a server serves, as its reflection tells.
TEST_F(AccessCallsTest, TheTableHasWhatIsServed) {
  const std::string list_services("\x3a\x00", 2);  // ServerReflectionRequest's field 7, empty
  grpc::Slice slice(list_services);
  grpc::ByteBuffer request(&slice, 1), reply;
  grpc::ClientContext context;
  grpc::internal::RpcMethod rpc("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      test_.channel.get(), rpc, &context, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(reply.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& each : slices) {
    bytes.append(reinterpret_cast<const char*>(each.begin()), each.size());
  }
  // ServerReflectionResponse's field 6 has a field 1 for each service, whose field 1 is its name.
  google::protobuf::UnknownFieldSet response, list, service;
  ASSERT_TRUE(response.ParseFromString(bytes));
  int services = 0;
  for (int i = 0; i < response.field_count(); ++i) {
    if (response.field(i).number() != 6) continue;
    ASSERT_TRUE(list.ParseFromString(response.field(i).length_delimited()));
    for (int j = 0; j < list.field_count(); ++j, ++services) {
      ASSERT_TRUE(service.ParseFromString(list.field(j).length_delimited()));
      const std::string name = service.field(0).length_delimited();
      const auto* described =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      ASSERT_NE(described, nullptr) << name;
      for (int m = 0; m < described->method_count(); ++m) {
        const RpcRow& row = RpcNamed(described->method(m)->name());
        EXPECT_EQ(row.service, name)
            << "give " << described->method(m)->full_name() << " a row in server/access/rpcs.cc";
      }
    }
  }
  EXPECT_GE(services, 6);
}

// Browsers ask for a password for pages, and for nothing else.
TEST_F(AccessCallsTest, PagesTakePasswords) {
  httplib::Client pages("127.0.0.1", test_.server->http_port());
  EXPECT_THAT(pages.Get("/")->get_header_value("WWW-Authenticate"), HasSubstr("Basic realm"));
  pages.set_basic_auth("anybody", "monitor-token");
  EXPECT_EQ(pages.Get("/")->status, 200);
  httplib::Client openai("127.0.0.1", test_.server->openai_port());
  EXPECT_EQ(openai.Get("/v1/models")->get_header_value("WWW-Authenticate"), "Bearer");
  openai.set_basic_auth("anybody", "infer-token");
  EXPECT_EQ(openai.Get("/v1/models")->status, 401);
}

TEST_F(AccessCallsTest, QuotasSayWhenToComeAgain) {
  EXPECT_EQ(Call("ModelReady", WithText(kMine), "few-token").error_code(), Code::OK);
  const grpc::Status refused = Call("ModelReady", WithText(kMine), "few-token");
  EXPECT_EQ(refused.error_code(), Code::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(refused.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(Code::RESOURCE_EXHAUSTED));
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(0).UnpackTo(&retry));
  EXPECT_LE(retry.retry_delay().seconds(), 1);
  httplib::Client client("127.0.0.1", test_.server->openai_port());
  const httplib::Result http = client.Get("/v1/models", {{"Authorization", "Bearer few-token"}});
  EXPECT_EQ(http->status, 429);
  EXPECT_EQ(http->get_header_value("Retry-After"), "1");
}

TEST_F(AccessCallsTest, ModelsAreCounted) {
  v1::UploadModelRequest header;
  header.mutable_header()->set_name("third");
  const grpc::Status third = Call("UploadModel", header.SerializeAsString(), "one-token");
  EXPECT_EQ(third.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(third.error_message(), HasSubstr("one has 2 models"));
  header.mutable_header()->set_name(kMine);  // a version more is no model more
  EXPECT_NE(Call("UploadModel", header.SerializeAsString(), "one-token").error_code(),
            Code::RESOURCE_EXHAUSTED);
}

TEST_F(AccessCallsTest, WhatChangesTheServerLeavesALine) {
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Call("DeleteModel", WithText(kMine), "upload-token").ok());
  EXPECT_FALSE(Call("DeleteModel", WithText(kOther), "upload-token").ok());
  EXPECT_FALSE(Call("DeleteModel", WithText(kOther), "wrong-token").ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("msg=\"audit\""));
  EXPECT_THAT(log, HasSubstr("method=DeleteModel client=upload"));
  EXPECT_THAT(log, Not(HasSubstr("-token")));
}

}  // namespace
}  // namespace athanor
