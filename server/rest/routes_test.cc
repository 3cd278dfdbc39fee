#include "server/rest/routes.h"

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/exchange_testing.h"
#include "server/http/json_body.h"
#include "server/rest/rest_error.h"
#include "server/shared_memory/shared_object_testing.h"
#include "server/testing/core_testing.h"
#include "server/testing/waiters_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class RestTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    routes_ = std::make_unique<Routes>(RestRoutes(core_.get()));
  }
  void TearDown() override {
    while (core_->ledger().used(HeldKind::kRequests) != 0) std::this_thread::yield();
    routes_.reset();
  }

  std::shared_ptr<ModelVersion> Begin(const std::string& name, const TestModel& model) {
    std::shared_ptr<ModelVersion> version = Store(name, model);
    EXPECT_TRUE(core_->workers().Start(version).ok());
    return version;
  }
  std::shared_ptr<ModelVersion> Serve(const std::string& name, const TestModel& model) {
    std::shared_ptr<ModelVersion> version = Begin(name, model);
    EXPECT_TRUE(Await(*version).ok());
    return version;
  }
  std::unique_ptr<FakeClient> Ask(const std::string& method, const std::string& path,
                                  std::string body = "", HttpHeaders headers = {}) {
    auto client = std::make_unique<FakeClient>(HttpRequest{.method = method,
                                                           .path = path,
                                                           .body = std::move(body),
                                                           .peer = peer_,
                                                           .headers = std::move(headers)});
    const Routes::Found found = routes_->Find(method, path);
    EXPECT_NE(found.route, nullptr) << method << path;
    if (found.route != nullptr) found.route->handler(client->Ask());
    return client;
  }
  FakeClient::Answer Get(const std::string& path) { return Ask("GET", path)->AwaitEnd(); }
  FakeClient::Answer Infer(const std::string& model, const std::string& json,
                           const std::string& binary = "") {
    HttpHeaders headers;
    if (!binary.empty()) {
      headers.emplace_back("Inference-Header-Content-Length", absl::StrCat(json.size()));
    }
    return Ask("POST", "/v2/models/" + model + "/infer", json + binary, headers)->AwaitEnd();
  }
  static std::string ErrorOf(const FakeClient::Answer& answer) {
    const Json body = Json::parse(answer.body(), nullptr, false);
    return body.is_object() && body.size() == 1 ? body.value("error", "") : "";
  }
  static std::string Input(const std::string& data) {
    return R"({"name":"x","shape":[2],"datatype":"FP32",)" + data + "}";
  }

  std::string peer_ = "ipv4:10.0.0.7:43210";
  std::unique_ptr<Routes> routes_;
};

TEST_F(RestTest, JsonInAndOut) {
  Serve("m", ScaleModel({1, -2}));
  const auto answer = Infer("m", R"({"id":"a","inputs":[)" + Input(R"("data":[3,4.5])") + "]}");
  ASSERT_EQ(answer.status, 200) << answer.body();
  EXPECT_EQ(answer.type, "application/json");
  const Json body = Json::parse(answer.body());
  EXPECT_EQ(body["model_name"], "m");
  EXPECT_EQ(body["model_version"], "1");
  EXPECT_EQ(body["id"], "a");
  EXPECT_EQ(body["parameters"]["compile_state"], "baseline");
  EXPECT_EQ(body["outputs"][0].dump(),
            R"({"name":"y","datatype":"FP32","shape":[2],"data":[3,-9]})");
}

TEST_F(RestTest, BytesInAndOut) {
  Serve("m", ScaleModel({1, -2}));
  const float x[] = {3, 4.5};
  const auto answer = Infer("m/versions/1",
                            R"({"inputs":[)" + Input(R"("parameters":{"binary_data_size":8})") +
                                R"(],"outputs":[{"name":"y","parameters":{"binary_data":true}}]})",
                            std::string(reinterpret_cast<const char*>(x), sizeof(x)));
  ASSERT_EQ(answer.status, 200) << answer.body();
  EXPECT_EQ(answer.type, "application/octet-stream");
  ASSERT_EQ(answer.headers.at(0).first, "Inference-Header-Content-Length");
  const size_t json = std::stoul(answer.headers[0].second);
  const Json head = Json::parse(answer.body().substr(0, json));
  EXPECT_EQ(head["outputs"][0]["parameters"]["binary_data_size"], 8);
  EXPECT_FALSE(head["outputs"][0].contains("data"));
  float y[2];
  ASSERT_EQ(answer.body().size(), json + sizeof(y));
  std::memcpy(y, answer.body().data() + json, sizeof(y));
  EXPECT_EQ(y[0], 3);
  EXPECT_EQ(y[1], -9);
}

TEST_F(RestTest, LongJsonGoesThrough) {
  const std::vector<float> w(20'000, 2);
  Serve("m", ScaleModel(w));
  Json data = Json::array();
  for (size_t i = 0; i < w.size(); ++i) data.push_back(i + 0.25);
  const Json request = {
      {"inputs",
       {{{"name", "x"}, {"shape", {w.size()}}, {"datatype", "FP32"}, {"data", std::move(data)}}}}};
  const auto answer = Infer("m", request.dump());
  ASSERT_EQ(answer.status, 200);
  const Json out = Json::parse(answer.body())["outputs"][0]["data"];
  ASSERT_EQ(out.size(), w.size());
  EXPECT_EQ(out[19'999], 39'998.5);
}

TEST_F(RestTest, ErrorsHaveTritonsForm) {
  Serve("m", ScaleModel({1, -2}));
  const auto expect = [&](const FakeClient::Answer& answer, int status, const std::string& text) {
    EXPECT_EQ(answer.status, status) << answer.body();
    EXPECT_EQ(answer.type, "application/json");
    EXPECT_THAT(ErrorOf(answer), HasSubstr(text));
  };
  expect(Infer("absent", R"({"inputs":[]})"), 404, "model \"absent\" does not exist");
  expect(Infer("m", "{"), 400, "no valid JSON");
  expect(Infer("m", R"({"inputs":[]})"), 400, "input \"x\" (FP32) is missing");
  expect(Infer("m", R"({"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["a"]}]})"),
         400, "datatype is BYTES (texts)");
  expect(Infer("m", R"({"inputs":[)" + Input(R"("data":[1,2])") +
                        R"(],"parameters":{"sequence_id":1}})"),
         400, "parameter \"sequence_id\" is not supported");
  expect(Ask("POST", "/v2/models/m/infer", "{}", {{"Content-Encoding", "gzip"}})->AwaitEnd(), 501,
         "Content-Encoding \"gzip\" is not supported");
  expect(Ask("POST", "/v2/models/m")->AwaitEnd(), 404, "there is no POST /v2/models/m");
  expect(Ask("POST", "/v2/models/m/generate")->AwaitEnd(), 501, "--openai_listen");
  expect(Ask("POST", "/v2/repository/models/m/load")->AwaitEnd(), 400, "no --model_repository");
  expect(Ask("POST", "/v2/repository/models/m/unload", R"({"parameters":{}})")->AwaitEnd(), 400,
         "no --model_repository");
  expect(Ask("POST", "/v2/repository/models/m")->AwaitEnd(), 404, "ends with /load or /unload");
  expect(Ask("POST", "/v2/repository/models/m/load", R"({"parameter":{}})")->AwaitEnd(), 400,
         "the field \"parameter\"");
  expect(Get("/v2/systemsharedmemory/status"), 400, "shared memory is off");
  expect(Get("/v2/cudasharedmemory/status"), 501, "CUDA shared memory is not supported");
  expect(Get("/v2/logging"), 501, "--log_level");
  expect(Get("/v2/models/absent/stats"), 404, "does not exist");
  EXPECT_EQ(RestErrorBody(405, "no", "/v2/models/m").second, R"({"error":"no"})");
  EXPECT_EQ(RestErrorBody(405, "no", "/").second, "405: no\n");
}

TEST_F(RestTest, AnAnswerThatIsNotReadIsInTheLedger) {
  const std::vector<float> w(50'000, 2);
  Serve("m", ScaleModel(w));
  const std::string bytes(w.size() * sizeof(float), '\0');
  const std::string json =
      absl::StrCat(R"({"inputs":[{"name":"x","shape":[50000],"datatype":"FP32","parameters":)",
                   R"({"binary_data_size":200000}}],"parameters":{"binary_data_output":true}})");
  const auto client = std::make_unique<FakeClient>(
      HttpRequest{.method = "POST",
                  .path = "/v2/models/m/infer",
                  .body = json + bytes,
                  .headers = {{"Inference-Header-Content-Length", absl::StrCat(json.size())}}});
  client->Hold();
  routes_->Find("POST", "/v2/models/m/infer").route->handler(client->Ask());
  EXPECT_EQ(client->AwaitEnd().status, 200);
  EXPECT_GE(core_->ledger().used(HeldKind::kRequests), 200'000);
  client->Hold(false);
}

class SharedRestTest : public RestTest {
 protected:
  void SetUp() override {
    options_.shared_memory = "*";
    RestTest::SetUp();
    peer_ = "ipv6:%5B::1%5D:43210";
  }
  FakeClient::Answer Post(const std::string& path, const std::string& body = "") {
    return Ask("POST", "/v2/systemsharedmemory/" + path, body)->AwaitEnd();
  }
};

TEST_F(SharedRestTest, TensorsGoThroughIt) {
  Serve("m", ScaleModel({2, -3}));
  SharedObject object("rest", 16);
  const auto registered =
      Post("region/a/b/register", R"({"key":")" + object.key() + R"(","byte_size":16})");
  ASSERT_EQ(registered.status, 200) << registered.body();
  const std::string region =
      R"([{"name":"a/b","key":")" + object.key() + R"(","offset":0,"byte_size":16}])";
  EXPECT_EQ(Get("/v2/systemsharedmemory/status").body(), region);
  EXPECT_EQ(Get("/v2/systemsharedmemory/region/a/b/status").body(), region);
  EXPECT_EQ(Get("/v2/systemsharedmemory/region/c/status").status, 404);
  const float x[] = {1.5, 2};
  std::memcpy(object.data(), x, sizeof(x));
  const std::string shared = R"("parameters":{"shared_memory_region":"a/b",)";
  const std::string body =
      R"({"inputs":[)" + Input(shared + R"("shared_memory_byte_size":8})") +
      R"(],"outputs":[{"name":"y",)" + shared +
      R"("shared_memory_byte_size":8,"shared_memory_offset":8,"binary_data":true}}]})";
  const auto answer = Infer("m", body);
  ASSERT_EQ(answer.status, 200) << answer.body();
  EXPECT_EQ(answer.type, "application/json");
  const Json output = Json::parse(answer.body())["outputs"][0];
  EXPECT_FALSE(output.contains("data"));
  EXPECT_FALSE(output.contains("parameters")) << "perf_analyzer wants none";
  float y[2];
  std::memcpy(y, object.data() + 8, sizeof(y));
  EXPECT_EQ(y[0], 3);
  EXPECT_EQ(y[1], -6);
  EXPECT_EQ(Post("unregister").status, 200);
  EXPECT_EQ(Infer("m", body).status, 404);
  EXPECT_EQ(Get("/v2/systemsharedmemory/status").body(), "[]");
}

TEST_F(SharedRestTest, Refusals) {
  SharedObject object("rest-refused", 16);
  const std::string key = R"("key":")" + object.key() + "\"";
  for (const std::string& body :
       {std::string("{"), std::string("[]"), std::string(R"({"byte_size":1})"), "{" + key + "}",
        "{" + key + R"(,"byte_size":-1})", "{" + key + R"(,"byte_size":"1"})",
        "{" + key + R"(,"byte_size":1e3})", "{" + key + R"(,"byte_size":17})",
        "{" + key + R"(,"byte_size":18446744073709551615})",
        "{" + key + R"(,"byte_size":1,"more":1})", std::string(R"({"key":1,"byte_size":1})")}) {
    const auto answer = Post("region/r/register", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_NE(ErrorOf(answer), "") << body;
  }
  EXPECT_EQ(Post("register", "{}").status, 404);
  EXPECT_EQ(Post("region/register", "{}").status, 400);
  EXPECT_EQ(Post("region/r/rename", "{}").status, 404);
  EXPECT_EQ(Post("region/r/unregister").status, 200);
  const std::string both = R"("data":[1,2],"parameters":{"shared_memory_region":"r",)"
                           R"("shared_memory_byte_size":8})";
  EXPECT_THAT(ErrorOf(Infer("m", R"({"inputs":[)" + Input(both) + "]}")),
              HasSubstr("in one of the two ways"));
  peer_ = "ipv4:10.0.0.7:43210";
  EXPECT_EQ(Post("region/r/register", "{" + key + R"(,"byte_size":1})").status, 403);
  EXPECT_EQ(Get("/v2/systemsharedmemory/status").status, 403);
}

TEST_F(RestTest, HalvesAreBytesOnly) {
  Graph graph;
  graph.name = "half";
  GraphBuilder b(&graph);
  const NodeId x = b.Input("x", {DType::kF32, {1}}).value();
  b.Output("y", b.Add(Op::kCast, {x}, {{"dtype", DType::kF16}}).value());
  Serve("h", ModelOf(graph, {}));
  const std::string inputs = R"("inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}])";
  const auto refused = Infer("h", "{" + inputs + "}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("sending FP16 as JSON is not supported"));
  const auto answer = Infer("h", "{" + inputs + R"(,"parameters":{"binary_data_output":true}})");
  ASSERT_EQ(answer.status, 200) << answer.body();
  EXPECT_EQ(answer.body().substr(answer.body().size() - 2), std::string("\x00\x3c", 2));
}

TEST_F(RestTest, HealthAndReadiness) {
  EXPECT_EQ(Get("/v2/health/live").status, 200);
  EXPECT_EQ(Get("/v2/health/ready").status, 200);
  EXPECT_EQ(Get("/livez").status, 200);
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/v2/models/m/ready").status, 400);
  control_->HoldCompiles();
  const auto version = Begin("m", ScaleModel({1}));
  EXPECT_EQ(Get("/v2/models/m/ready").status, 400);
  EXPECT_EQ(Json::parse(Ask("POST", "/v2/repository/index")->AwaitEnd().body())[0]["state"],
            "LOADING");
  control_->ReleaseCompiles();
  ASSERT_TRUE(Await(*version).ok());
  EXPECT_EQ(Get("/v2/models/m/ready").status, 200);
  EXPECT_EQ(Get("/v2/models/m/versions/1/ready").status, 200);
  EXPECT_EQ(Get("/v2/models/m/versions/2/ready").status, 400);
  core_->StartDraining();
  EXPECT_EQ(Get("/v2/health/live").status, 200);
  EXPECT_EQ(Get("/v2/health/ready").status, 400);
  EXPECT_EQ(Get("/healthz").status, 503);
}

TEST_F(RestTest, MetadataConfigurationIndex) {
  Serve("m", ReluModel());
  const Json server = Json::parse(Get("/v2").body());
  EXPECT_EQ(server["name"], "athanor");
  EXPECT_EQ(server["extensions"][0], "binary_tensor_data");
  const Json model = Json::parse(Get("/v2/models/m").body());
  EXPECT_EQ(model["versions"].dump(), R"(["1"])");
  EXPECT_EQ(model["inputs"].dump(), R"([{"name":"x","datatype":"FP32","shape":[-1,4]}])");
  EXPECT_EQ(Json::parse(Get("/v2/models/m/versions/1").body()), model);
  EXPECT_EQ(Get("/v2/models/absent").status, 404);
  EXPECT_EQ(Json::parse(Get("/v2/models/m/config").body())["output"].dump(),
            R"([{"name":"y","data_type":"TYPE_FP32","dims":[-1,4],"label_filename":"",)"
            R"("is_shape_tensor":false,"is_non_linear_format_io":false}])");
  const std::string all = R"([{"name":"m","version":"1","state":"READY","reason":""}])";
  EXPECT_EQ(Ask("POST", "/v2/repository/index")->AwaitEnd().body(), all);
  EXPECT_EQ(Ask("POST", "/v2/repository/index", R"({"ready":true})")->AwaitEnd().body(), all);
  EXPECT_EQ(Ask("POST", "/v2/repository/index", R"({"ready":1})")->AwaitEnd().status, 400);
}

TEST_F(RestTest, Statistics) {
  Serve("a", ScaleModel({1, 1}));
  Serve("m", ScaleModel({1, 1}));
  for (const char* data : {R"("data":[1,2])", R"("data":[1,2])", R"("data":[1])"}) {
    Infer("m", R"({"inputs":[)" + Input(data) + "]}");
  }
  const Json all = Json::parse(Get("/v2/models/stats").body())["model_stats"];
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["inference_count"], 0);
  const Json one = Json::parse(Get("/v2/models/m/versions/1/stats").body())["model_stats"];
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0]["name"], "m");
  EXPECT_EQ(one[0]["inference_count"], 2);
  EXPECT_EQ(one[0]["execution_count"], 2);
  EXPECT_EQ(one[0]["inference_stats"]["success"]["count"], 2);
  EXPECT_GT(one[0]["inference_stats"]["success"]["ns"], 0);
  EXPECT_EQ(one[0]["inference_stats"]["queue"]["count"], 2);
}

TEST_F(RestTest, AClientThatLeavesEndsItsRequest) {
  control_->HoldCompiles();
  const auto version = Begin("m", ScaleModel({1, 2}));
  auto client =
      Ask("POST", "/v2/models/m/infer", R"({"inputs":[)" + Input(R"("data":[1,2])") + "]}");
  AwaitWaiters(version->serving(), 1);
  client->Leave();
  while (core_->ledger().used(HeldKind::kRequests) != 0) std::this_thread::yield();
  control_->ReleaseCompiles();
  EXPECT_TRUE(Await(*version).ok());
}

}  // namespace
}  // namespace athanor
