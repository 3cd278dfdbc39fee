#include "server/http/pages/server_status.h"

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/generate/language_model.h"
#include "server/generate/scripted_engine_testing.h"
#include "server/http/exchange_testing.h"
#include "server/http/pages/core_samples.h"
#include "server/http/pages/status_pages.h"
#include "server/metrics/exposition_testing.h"
#include "server/testing/search_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class ServerStatusTest : public SearchTest {
 protected:
  void SetUp() override {
    SearchTest::SetUp();
    control_->Search({.endless = true});
    core_->metrics().AddCollector(
        [this](std::vector<MetricSample>* samples) { AddCoreSamples(*core_, samples); });
  }

  Families Parsed() {
    absl::StatusOr<Families> families = ParseExposition(core_->metrics().Text());
    EXPECT_TRUE(families.ok()) << families.status();
    return families.value_or(Families());
  }
  std::string Shape() { return ServerStatus(*core_)["shape"]; }
  Json Model(const std::string& name) {
    const Json status = ServerStatus(*core_);
    for (const Json& model : status["models"]) {
      if (model["name"] == name) return model;
    }
    return nullptr;
  }
};

TEST_F(ServerStatusTest, OfAnEmptyServer) {
  const Json status = ServerStatus(*core_);
  EXPECT_EQ(status["server"]["state"], "serving");
  EXPECT_EQ(status["versions"], 0);
  EXPECT_EQ(status["models"], Json::array());
  EXPECT_EQ(status["memory"]["limit"], core_->ledger().limit());
  EXPECT_GT(status["memory"]["resident"], 0);
  EXPECT_EQ(status["calls"]["most"], core_->options().max_pending);
  core_->StartDraining();
  EXPECT_EQ(ServerStatus(*core_)["server"]["state"], "draining");
}

TEST_F(ServerStatusTest, DevicesAsTheyAre) {
  v1::Device gpu;
  gpu.set_name("cuda:0");
  gpu.set_chip("a chip");
  gpu.set_compute_capability("9.0");
  gpu.set_driver("13.0");
  gpu.set_memory_used(5);
  gpu.set_memory_limit(70);
  gpu.set_memory_bytes(80);
  gpu.set_core_mhz(900);
  gpu.set_compiler("nvrtc 13.0");
  gpu.set_kernels_compiled(3);
  control_->SetDevice(gpu);
  control_->devices = {"cuda:0"};
  Json device = ServerStatus(*core_)["devices"].at(0);
  EXPECT_EQ(device["name"], "cuda:0");
  EXPECT_EQ(device["memory"], (Json{{"used", 5}, {"limit", 70}, {"all", 80}}));
  EXPECT_EQ(device["core_mhz"], 900);
  EXPECT_EQ(device["memory_mhz"], nullptr);
  EXPECT_EQ(device["lost"], "");
  const LabelSet labels{{"device", "cuda:0"}};
  Families families = Parsed();
  EXPECT_EQ(families.at("athanor_device_memory_bytes").Value(labels), 5);
  EXPECT_EQ(families.at("athanor_device_memory_limit_bytes").Value(labels), 70);
  EXPECT_EQ(
      families.at("athanor_device_clock_hertz").Value({{"device", "cuda:0"}, {"clock", "core"}}),
      9e8);
  EXPECT_EQ(families.at("athanor_kernels_compiled_total").Value(labels), 3);
  EXPECT_EQ(families.at("athanor_device_lost").Value(labels), 0);
  const LabelSet info{
      {"device", "cuda:0"}, {"chip", "a chip"}, {"compute_capability", "9.0"}, {"driver", "13.0"}};
  EXPECT_EQ(families.at("athanor_device_info").Value(info), 1);
  const int before = control_->descriptions;
  ServerStatus(*core_);
  EXPECT_EQ(control_->descriptions, before + 1) << "a GPU's clocks are read once";
  const std::string shape = Shape();
  control_->Lose("an ECC error");
  EXPECT_EQ(ServerStatus(*core_)["devices"].at(0)["lost"], "an ECC error");
  EXPECT_EQ(ServerStatus(*core_)["server"]["state"], "device lost");
  EXPECT_EQ(Parsed().at("athanor_device_lost").Value(labels), 1);
  EXPECT_NE(Shape(), shape) << "the page is drawn anew";

  // The CPU's memory is what the ledger counts.
  gpu.Clear();
  gpu.set_name("cpu");
  control_->SetDevice(gpu);
  device = ServerStatus(*core_)["devices"].at(0);
  EXPECT_EQ(device["memory"]["limit"], core_->ledger().limit());
  EXPECT_GT(device["memory"]["all"], 0);
  families = Parsed();
  EXPECT_TRUE(families.at("athanor_device_memory_bytes").samples.empty());
  const LabelSet cpu{{"device", "cpu"}, {"chip", ""}, {"compute_capability", ""}, {"driver", ""}};
  EXPECT_EQ(families.at("athanor_device_info").Value(cpu), 1);
  gpu.set_chip("znver5");
  gpu.set_compiler("clang 19");
  control_->SetDevice(gpu);
  EXPECT_EQ(Parsed().at("athanor_device_info").Value(cpu), 1) << "the series stays the same";
}

TEST_F(ServerStatusTest, FollowsASearchStepByStep) {
  control_->Search({.plans = 2, .stop = v1::CompileJob::STOP_EXHAUSTED});
  auto version = StoreScale("<script>", 3);
  EXPECT_EQ(Model("<script>")["state"], "UPLOADED");
  EXPECT_EQ(Model("<script>")["plan"], nullptr);
  auto job = StartSearching(version);
  Json model = Model("<script>");
  EXPECT_EQ(model["state"], "READY");
  EXPECT_EQ(model["serving"], true);
  EXPECT_EQ(model["job"]["phase"], "SEARCHING");
  EXPECT_EQ(model["job"]["finished"], false);
  EXPECT_EQ(model["plan_swaps"], 1);
  const std::string baseline = model["plan"]["id"];
  const std::string shape = Shape();
  Steps(1);
  model = Model("<script>");
  EXPECT_EQ(model["plan"]["id"], "found-1");
  EXPECT_NE(model["plan"]["id"], baseline);
  EXPECT_EQ(model["plan_swaps"], 2);
  EXPECT_EQ(model["job"]["search"]["plans_taken"], 1);
  // The page must be drawn anew; a change of numbers alone does not require that.
  const std::string found = Shape();
  EXPECT_NE(found, shape);
  version->metrics().cells.Count(Metric::kRequests, absl::StatusCode::kOk);
  EXPECT_EQ(Model("<script>")["requests"]["ok"], 1);
  EXPECT_EQ(Shape(), found);
  control_->ReleaseSearches();
  AwaitEnd(*job);
  model = Model("<script>");
  EXPECT_EQ(model["job"]["finished"], true);
  EXPECT_EQ(model["job"]["stop_reason"], "STOP_EXHAUSTED");
  // A job's end is counted after its watchers are told.
  while (Parsed().at("athanor_compile_jobs_total").Value({{"reason", "exhausted"}}) != 1) {
  }
  const Families families = Parsed();
  for (const char* phase : {"lower", "kernels", "check", "load"}) {
    EXPECT_EQ(families.at("athanor_compile_seconds").Value({{"phase", phase}}, "_count"), 1);
  }
}

TEST_F(ServerStatusTest, CallsAndTheirTimes) {
  auto version = StoreScale("m", 3);
  auto job = StartSearching(version);
  MetricCells& cells = version->metrics().cells;
  EXPECT_EQ(Model("m")["latency"]["call"]["p50"], nullptr);
  for (int i = 0; i < 99; ++i) {
    cells.Count(Metric::kRequests, absl::StatusCode::kOk);
    cells.Observe(Metric::kRequestSeconds, std::chrono::microseconds(90));
  }
  cells.Count(Metric::kRequests, absl::StatusCode::kInvalidArgument);
  cells.Observe(Metric::kRequestSeconds, std::chrono::milliseconds(9));
  const Json model = Model("m");
  EXPECT_EQ(model["requests"], (Json{{"ok", 99}, {"failed", 1}, {"all", 100}}));
  EXPECT_EQ(model["latency"]["call"]["count"], 100);
  EXPECT_DOUBLE_EQ(model["latency"]["call"]["mean"], (99 * 90e-6 + 9e-3) / 100);
  EXPECT_GT(model["latency"]["call"]["p50"], 63e-6);
  EXPECT_LT(model["latency"]["call"]["p50"], 100e-6);
  // Only the page shows the last minutes.
  EXPECT_FALSE(model.contains("history"));
  LatencyHistory history;
  history.Take({version->shared_metrics()});
  const Json drawn = ServerStatus(*core_, &history);
  EXPECT_EQ(drawn["models"][0]["history"][0]["calls"], (Json{100}));
  EXPECT_EQ(drawn["shape"], Shape());
  EXPECT_GE(model["job"]["elapsed"], 0);
}

TEST_F(ServerStatusTest, WhatALanguageModelDoes) {
  auto version = StoreScale("m", 3);
  EXPECT_EQ(Model("m")["generation"], nullptr);
  auto model = std::make_shared<LanguageModel>();
  model->family = "llama";
  auto engine = std::make_unique<ScriptedEngine>(EngineOptions());
  engine->SetView({.running = 3,
                   .waiting = 2,
                   .paused = 1,
                   .blocks = 640,
                   .free_blocks = 480,
                   .committed_bytes = 4096,
                   .steps = 7,
                   .prompt_tokens = 8,
                   .generated_tokens = 9});
  model->engine = std::move(engine);
  version->SetLanguageModel(std::move(model));
  for (int i = 0; i < 20; ++i) {
    version->metrics().cells.Observe(Metric::kTimeToFirstToken, std::chrono::milliseconds(3));
  }
  version->metrics().cells.Observe(Metric::kTimeToFirstToken, std::chrono::seconds(9));
  Json generation = Model("m")["generation"];
  EXPECT_LT(generation["ttft"]["p95"], 0.005);
  EXPECT_EQ(generation["ttft"]["count"], 21);
  for (const char* name : {"tpot", "itl"}) {
    EXPECT_EQ(generation[name], (Json{{"count", 0},
                                      {"mean", nullptr},
                                      {"p50", nullptr},
                                      {"p95", nullptr},
                                      {"p99", nullptr}}));
    generation.erase(name);
  }
  generation.erase("ttft");
  EXPECT_EQ(generation, (Json{{"family", "llama"},
                              {"max_model_len", 2048},
                              {"running", 3},
                              {"waiting", 2},
                              {"paused", 1},
                              {"blocks", 640},
                              {"blocks_used", 160},
                              {"kv_bytes", 4096},
                              {"steps", 7},
                              {"prompt_tokens", 8},
                              {"hit_rate", nullptr},
                              {"generated_tokens", 9}}));
}

TEST_F(ServerStatusTest, RequestsThatShareCalls) {
  auto messages = UploadMessages("m", ReluModel());
  EXPECT_EQ(Store(messages)->batching().shared, nullptr);
  EXPECT_EQ(Model("m")["batching"], nullptr);
  messages[0].mutable_header()->set_name("joined");
  messages[0].mutable_header()->set_batch_dim("b");
  auto version = Store(messages);
  Json batching = Model("joined")["batching"];
  EXPECT_EQ(batching["dim"], "b");
  EXPECT_EQ(batching["on"], true);
  EXPECT_EQ(batching["max_rows"], 64);
  EXPECT_EQ(batching["rows_mean"], nullptr);
  version->metrics().cells.ObserveNumber(Metric::kBatchRows, 3);
  version->metrics().cells.ObserveNumber(Metric::kBatchRows, 4);
  version->metrics().cells.Count(Metric::kBatchSplits);
  batching = Model("joined")["batching"];
  EXPECT_EQ(batching["runs"], 2);
  EXPECT_EQ(batching["rows_mean"], 3.5);
  EXPECT_EQ(batching["splits"], 1);
}

TEST_F(ServerStatusTest, BucketsWithTheirPlans) {
  control_->Search({.plans = 1, .stop = v1::CompileJob::STOP_EXHAUSTED});
  auto messages = UploadMessages("m", ReluModel());
  v1::DimBuckets* of = messages[0].mutable_header()->add_buckets();
  of->set_dim("b");
  for (const auto& [min, max] : {std::pair(1, 1), std::pair(2, 64)}) {
    v1::DimBuckets::Range* range = of->add_ranges();
    range->set_min(min);
    range->set_max(max);
  }
  auto version = Store(messages);
  Json buckets = Model("m")["buckets"];
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0], (Json{{"ranges", "b=1..1"},
                              {"plan", nullptr},
                              {"state", "FULL_RANGE"},
                              {"reason", "not compiled yet"}}));
  EXPECT_EQ(buckets[1]["ranges"], "b=2..64");
  const std::string shape = Shape();
  auto job = StartSearching(version);
  buckets = Model("m")["buckets"];
  const v1::Model model = core_->registry().versions().Describe(*version);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(buckets[i]["state"], "OWN_PLAN");
    EXPECT_EQ(buckets[i]["plan"], model.buckets(i).plan_id());
    EXPECT_EQ(buckets[i]["reason"], "");
  }
  EXPECT_NE(Shape(), shape);
  EXPECT_EQ(Model("m")["buckets_left_out"], 0);
}

TEST_F(ServerStatusTest, MetricsOfTheCore) {
  auto version = StoreScale("a\"b\\c", 3);
  auto job = StartSearching(version);
  Families families = Parsed();
  const LabelSet labels = {{"model", "a\"b\\c"}, {"version", "1"}};
  EXPECT_EQ(families.at("athanor_plan_swaps_total").Value(labels), 1);
  EXPECT_EQ(families.at("athanor_models").Value({{"state", "READY"}}), 1);
  EXPECT_EQ(families.at("athanor_models").Value({{"state", "FAILED"}}), 0);
  EXPECT_EQ(families.at("athanor_compile_jobs_unfinished").Value({}), 1);
  EXPECT_EQ(families.at("athanor_memory_bytes").Value({{"kind", "parameters"}}),
            static_cast<double>(core_->ledger().used(HeldKind::kParameters)));
  EXPECT_EQ(families.at("athanor_memory_bytes").samples.begin()->second.size(),
            static_cast<size_t>(kHeldKinds));
  EXPECT_EQ(families.at("athanor_build_info").samples.begin()->second.size(), 1u);
  EXPECT_EQ(families.at("athanor_model_queued_requests").Value({{"model", "a\"b\\c"}}), 0);
  EXPECT_EQ(families.at("athanor_model_queued_requests").Value({{"model", ""}}), 0);
  EXPECT_GT(families.at("process_cpu_seconds_total").Value({}), 0);
  EXPECT_GT(families.at("process_open_fds").Value({}), 2);
  EXPECT_LE(families.at("process_open_fds").Value({}), families.at("process_max_fds").Value({}));
  // After a deletion: the job is stopped, and the version's labels disappear when its last
  // reference is dropped.
  core_->workers().CancelFor(*version);
  AwaitEnd(*job);
  ASSERT_TRUE(core_->registry().Delete("a\"b\\c", "").ok());
  job.reset();
  version.reset();
  while (Parsed().at("athanor_plan_swaps_total").Value(labels).has_value()) {
  }
  EXPECT_EQ(Parsed().at("athanor_models").Value({{"state", "READY"}}), 0);
}

TEST_F(ServerStatusTest, WhatIsRefusedIsCounted) {
  auto refused = [&](const std::string& reason) {
    return *Parsed().at("athanor_refusals_total").Value({{"reason", reason}});
  };
  EXPECT_FALSE(
      core_->ledger().Reserve(HeldKind::kRequests, core_->ledger().limit() + 1, "a request").ok());
  EXPECT_EQ(refused("memory"), 1);
  core_->StartDraining();
  CallSlot slot(*core_);
  EXPECT_FALSE(slot.status().ok());
  EXPECT_EQ(refused("draining"), 1);
  EXPECT_EQ(refused("pending"), 0);
}

TEST_F(ServerStatusTest, PagesOfAServer) {
  StoreScale("<b>&", 3);
  std::set<std::string> paths;
  WorkQueue queue("pages", 1);
  const StatusPages pages(*core_, queue);
  for (const Route& route : pages.routes()) {
    paths.insert(route.path);
    EXPECT_EQ(route.role, Role::kMonitor);
    FakeClient client({.method = route.method, .path = route.path});
    route.handler(client.Ask());
    const FakeClient::Answer answer = client.AwaitEnd();
    EXPECT_EQ(answer.status, 200);
    const std::string body = answer.body();
    if (route.path == "/") {
      EXPECT_THAT(body, HasSubstr("&lt;b&gt;&amp;"));
      EXPECT_THAT(body, Not(HasSubstr("<b>")));
      // Each word beside a number has its meaning as a tooltip; the list of words follows.
      const std::string numbers = body.substr(0, body.find("<dl class=\"words\">"));
      EXPECT_THAT(numbers, HasSubstr("<dt><span class=\"word\" title="));
      for (size_t at = 0; (at = numbers.find("<dt>", at)) != std::string::npos; ++at) {
        EXPECT_EQ(numbers.compare(at + 4, 18, "<span class=\"word\""), 0) << numbers.substr(at, 60);
      }
      EXPECT_EQ(answer.headers[0].first, "Content-Security-Policy");
    } else if (route.path == "/status.json") {
      EXPECT_EQ(Json::parse(body)["models"][0]["name"], "<b>&");
    } else {
      EXPECT_TRUE(ParseExposition(body).ok());
    }
  }
  EXPECT_EQ(paths, (std::set<std::string>{"/", "/metrics", "/status.json"}));
}

}  // namespace
}  // namespace athanor
