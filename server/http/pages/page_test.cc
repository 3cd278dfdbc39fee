#include "server/http/pages/page.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/pages/drawing.h"
#include "server/http/pages/words.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json Latency(Json p50) {
  return {
      {"count", p50.is_null() ? 0 : 3}, {"mean", p50}, {"p50", p50}, {"p95", p50}, {"p99", p50}};
}

Json Model(const std::string& name) {
  return {{"name", name},
          {"version", "2"},
          {"state", "READY"},
          {"serving", true},
          {"deterministic", false},
          {"device", "cpu"},
          {"error", ""},
          {"dims", "b=1..64"},
          {"buckets", Json::array()},
          {"buckets_left_out", 0},
          {"plan",
           {{"id", "p-1"},
            {"pinned", false},
            {"kept", 1},
            {"kind", "search"},
            {"kernels", 4},
            {"steps", 9}}},
          {"job", nullptr},
          {"counted_alone", true},
          {"requests", {{"ok", 41}, {"failed", 1}, {"all", 42}}},
          {"plan_swaps", 2},
          {"latency",
           {{"call", Latency(0.00125)},
            {"queue", Latency(0.00002)},
            {"batch", Latency(0.0004)},
            {"exec", Latency(1.5)},
            {"stall", Latency(nullptr)}}},
          {"memory", {{"parameters", 1024}, {"prepared", 0}, {"arenas", 100}, {"all", 1124}}}};
}

Json Status(const std::vector<Json>& models) {
  return {{"server",
           {{"version", "0.1"},
            {"state", "serving"},
            {"address", ""},
            {"uptime", 3723.5},
            {"threads", 2},
            {"compile_workers", 1}}},
          {"calls", {{"now", 3}, {"queued", 2}, {"most", 1024}}},
          {"uploads", {{"now", 0}, {"most", 16}}},
          {"jobs", {{"unfinished", 1}}},
          {"memory",
           {{"limit", 1 << 30},
            {"used", 1 << 20},
            {"resident", 5 << 20},
            {"kinds", {{"parameters", 1 << 20}}}}},
          {"devices", Json::array()},
          {"refusals", {{"compile_jobs", 0}}},
          {"refused", 0},
          {"cache", {{"kernels", {{"hits", 7}, {"misses", 2}}}}},
          {"cache_hit_rate", 0.75},
          {"versions", models.size()},
          {"versions_left_out", 0},
          {"models", models},
          {"shape", "00ff"}};
}

Json Device(const std::string& name, const std::string& capability) {
  return {{"name", name},
          {"chip", "a <chip>"},
          {"compute_capability", capability},
          {"driver", capability.empty() ? "" : "13.0"},
          {"threads", 1024},
          {"memory", {{"used", 1 << 20}, {"limit", 3 << 30}, {"all", int64_t{4} << 30}}},
          {"core_mhz", 900},
          {"memory_mhz", nullptr},
          {"compiler", "nvrtc 13.0"},
          {"kernels_compiled", 17},
          {"lost", ""}};
}

TEST(PageTest, DevicesHaveTiles) {
  Json status = Status({});
  status["devices"] = {Device("cuda:0", "9.0"), Device("cpu", "")};
  std::string page = StatusPage(status);
  for (const char* text :
       {"cuda:0", "a &lt;chip&gt;",
        "data-path=\"devices.0.memory.used\" data-as=\"bytes\">1.0 MiB<",
        "data-path=\"devices.0.core_mhz\" data-as=\"count\">900<", "CUDA 13.0", "nvrtc 13.0",
        "data-path=\"devices.0.memory_mhz\" data-as=\"count\">\u2013<",
        "data-path=\"devices.1.kernels_compiled\" data-as=\"count\">17<"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(page, Not(HasSubstr("devices.1.memory.used"))) << "the host's has a tile";
  EXPECT_THAT(page, Not(HasSubstr("mark bad")));
  status["devices"][0]["lost"] = "cuda:0 is lost: <ECC>";
  page = StatusPage(status);
  EXPECT_THAT(page, HasSubstr("<span class=\"mark bad\">lost</span>"));
  EXPECT_THAT(page, HasSubstr("<p class=\"error\">cuda:0 is lost: &lt;ECC&gt;</p>"));
}

TEST(PageTest, HoldsTheNumbersWithoutItsScript) {
  const std::string page = StatusPage(Status({Model("digits")}));
  for (const char* text :
       {"<!DOCTYPE html>", "data-shape=\"00ff\"", "<summary>digits <", "<code>p-1</code>",
        "data-path=\"models.0.requests.ok\" data-as=\"count\">41<",
        "data-path=\"models.0.latency.call.p50\" data-as=\"seconds\">1.25 ms<",
        "data-path=\"models.0.latency.queue.p99\" data-as=\"seconds\">20 \u00b5s<",
        "data-path=\"models.0.latency.batch.p50\" data-as=\"seconds\">400 \u00b5s<",
        "data-path=\"models.0.latency.stall.p50\" data-as=\"seconds\">\u2013<",
        "data-path=\"memory.used\" data-as=\"bytes\">1.0 MiB<",
        "data-path=\"server.uptime\" data-as=\"duration\">1 h 2 min<",
        "data-path=\"cache.kernels.hits\" data-as=\"count\">7<",
        "data-path=\"cache_hit_rate\" data-as=\"share\">75.0 %<",
        "data-path=\"refusals.compile_jobs\" data-as=\"count\">0<"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

TEST(PageTest, WhetherRequestsShareRuns) {
  Json model = Model("m");
  EXPECT_THAT(StatusPage(Status({model})), Not(HasSubstr("batching.rows_mean")));
  model["batching"] = {{"dim", "b"}, {"on", true}, {"reason", ""}, {"rows_mean", 12.34}};
  std::string page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("models.0.batching.rows_mean\" data-as=\"mean\">12.3</span>"));
  EXPECT_THAT(page, Not(HasSubstr("share no calls")));
  model["batching"] = {
      {"dim", "b"}, {"on", false}, {"reason", "\"p\" (Softmax): <mixes>"}, {"rows_mean", nullptr}};
  page = StatusPage(Status({model}));
  EXPECT_THAT(page,
              HasSubstr("share no calls over <code>b</code>: &quot;p&quot; (Softmax): &lt;mi"));
  EXPECT_THAT(page, Not(HasSubstr("batching.rows_mean")));
}

TEST(PageTest, WhatALanguageModelDoes) {
  Json model = Model("digits");
  model["generation"] = nullptr;
  EXPECT_THAT(StatusPage(Status({model})), Not(HasSubstr("generation.")));
  model["generation"] = {{"running", 3},
                         {"waiting", 2},
                         {"paused", 1},
                         {"blocks", 640},
                         {"blocks_used", 160},
                         {"kv_bytes", 3 << 20},
                         {"generated_tokens", 77},
                         {"hit_rate", 0.5},
                         {"ttft", Latency(0.0125)},
                         {"itl", Latency(0.02)},
                         {"tpot", Latency(nullptr)}};
  const std::string page = StatusPage(Status({model}));
  for (const char* text :
       {"models.0.generation.running\" data-as=\"count\">3</span>",
        "models.0.generation.waiting\" data-as=\"count\">2</span>",
        "models.0.generation.paused\" data-as=\"count\">1</span>",
        "data-rate=\"models.0.generation.generated_tokens\"",
        "models.0.generation.ttft.p50\" data-as=\"seconds\">12.50 ms<",
        "models.0.generation.itl.p99\" data-as=\"seconds\">20.00 ms<",
        "models.0.generation.hit_rate\" data-as=\"share\">50.0 %<",
        "models.0.generation.tpot.p99\" data-as=\"seconds\">\u2013<", "models.0.latency.call.p99",
        "models.0.generation.kv_bytes\" data-as=\"bytes\">3.0 MiB<",
        "<progress max=\"640\" value=\"160\""}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(page, Not(HasSubstr("models.0.latency.queue"))) << "its calls share no runs";
}

TEST(PageTest, WhichBucketsHavePlans) {
  Json model = Model("m");
  EXPECT_THAT(StatusPage(Status({model})), Not(HasSubstr("class=\"buckets\"")));
  const auto bucket = [](const char* ranges, Json plan, const char* state, const char* reason) {
    return Json{{"ranges", ranges}, {"plan", plan}, {"state", state}, {"reason", reason}};
  };
  model["buckets"] = {bucket("b=1..1", "p-2", "OWN_PLAN", ""),
                      bucket("b=2..8", "p-3", "PINNED", ""),
                      bucket("b=9..64", nullptr, "FULL_RANGE", "no memory for <it>")};
  std::string page = StatusPage(Status({model}));
  for (const char* text :
       {"<details class=\"small\" data-key=\"m/2 buckets\"><summary>2 of 3 ",
        "<li><code>b=1..1</code> <code class=\"plan\">p-2</code></li>",
        "<li><code>b=2..8</code> <code class=\"plan\">p-3</code> pinned</li>",
        "<li><code>b=9..64</code> <span class=\"quiet\">full range\u2019s plan: no memory for "
        "&lt;it&gt;</span></li></ul></details>"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(page, Not(HasSubstr("more are not listed")));
  for (int i = 0; i < 6; ++i) model["buckets"].push_back(model["buckets"][2]);
  model["buckets_left_out"] = 36;
  page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("<summary>2 of 9 "));
  EXPECT_THAT(page, HasSubstr("data-as=\"count\">36</span> more are not listed"));
}

TEST(PageTest, NothingFromUsersIsMarkup) {
  const std::string evil = "<script>alert('1')</script>\"><img src=x onerror=\"a&b\">";
  Json model = Model(evil);
  model["error"] = evil;
  model["dims"] = evil;
  model["state"] = "FAILED";
  model["plan"]["id"] = evil;
  model["plan"]["kind"] = evil;
  const std::string page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("alert('1')")));
  // The page has exactly one script, its own.
  const size_t first = page.find("<script");
  EXPECT_EQ(page.find("<script", first + 1), std::string::npos);
}

TEST(PageTest, WhatIsUnderWay) {
  Json model = Model("m");
  model["plan"] = nullptr;
  model["state"] = "COMPILING";
  model["job"] = {{"id", "job-1"},     {"phase", "COMPILING_KERNELS"},
                  {"finished", false}, {"stop_reason", ""},
                  {"percent", 42.5},   {"kernels_total", 9},
                  {"kernels_done", 4}, {"kernels_from_cache", 1},
                  {"elapsed", 61.5},   {"search", nullptr}};
  std::string page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("<span class=\"mark busy\">compiling kernels</span> "
                              "<progress max=\"100\" value=\"42.5\""));
  EXPECT_THAT(page, HasSubstr("none serves"));
  EXPECT_THAT(page, HasSubstr("models.0.job.elapsed\" data-as=\"duration\">1 min 1 s<"));
  model["job"]["phase"] = "SEARCHING";
  model["job"]["search"] = {{"share", 0.456},         {"roofline", nullptr}, {"candidates", 120},
                            {"candidates_failed", 2}, {"plans_taken", 3},    {"seconds", 12.0},
                            {"budget", "30s"},        {"budget_seconds", 30}};
  page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("<progress max=\"30\" value=\"12\"")) << "of its time";
  EXPECT_THAT(page, HasSubstr(">12 s</span> of 30s<"));
  model["job"]["search"]["budget"] = "200c";
  model["job"]["search"]["budget_seconds"] = nullptr;
  page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("<progress max=\"100\" value=\"42.5\""));
  model["job"]["phase"] = "DONE";
  model["job"]["finished"] = true;
  model["job"]["stop_reason"] = "STOP_BUDGET";
  page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("ended</span></dt><dd>budget</dd>"));
  EXPECT_THAT(page, HasSubstr("job.search.share\" data-as=\"share\">45.6 %<"));
  EXPECT_THAT(page, Not(HasSubstr("aria-label=\"compile job\"")));
}

TEST(PageTest, NoModelsYet) {
  Json status = Status({});
  std::string page = StatusPage(status);
  EXPECT_THAT(page, HasSubstr("<pre>athanor upload model.onnx --name digits</pre>"));
  EXPECT_THAT(page, HasSubstr("athanor.Client()"));
  status["server"]["address"] = "10.0.0.1:7000";
  page = StatusPage(status);
  EXPECT_THAT(page, HasSubstr("athanor --address 10.0.0.1:7000 upload model.onnx"));
  EXPECT_THAT(page, HasSubstr("athanor.Client(&quot;10.0.0.1:7000&quot;)"));
}

TEST(PageTest, ARowIsShortUntilItIsOpened) {
  Json model = Model("m");
  model["history"] = {{{"name", "call"}, {"p50", {0.001}}, {"p99", {0.002}}, {"calls", {3}}}};
  const std::string page = StatusPage(Status({model}));
  EXPECT_THAT(page, HasSubstr("<tbody data-key=\"m/2\" data-index=\"0\" "
                              "data-latency=\"latency.call\">"));
  EXPECT_THAT(page, HasSubstr("<div class=\"spark\"><svg"));
  EXPECT_THAT(page, HasSubstr("<figure class=\"chart\">"));
  EXPECT_THAT(page, Not(HasSubstr("<details open")));
  EXPECT_THAT(page, HasSubstr("<th scope=\"col\" aria-sort=\"ascending\"><button type=\"button\" "
                              "disabled"));
  // A model is a row of seven cells, and one with the rest.
  size_t cells = 0;
  for (size_t at = 0; (at = page.find("<td", at)) != std::string::npos; ++at) ++cells;
  EXPECT_EQ(cells, 8u);
}

TEST(PageTest, EachWordHasAMeaning) {
  for (const WordRow& row : WordTable()) {
    EXPECT_THAT(row.meaning, testing::EndsWith(".")) << row.word;
    EXPECT_EQ(MeaningOf(row.word), row.meaning) << row.word << " is there twice";
  }
  EXPECT_THAT(Word("p99"), HasSubstr("class=\"word\" title=\"99 of 100 calls"));
  EXPECT_EQ(Word("<none>"), "&lt;none&gt;");
  const std::string page = StatusPage(Status({Model("m")}));
  EXPECT_THAT(page, HasSubstr("<dt>roofline</dt><dd>Least share"));
}

TEST(PageTest, NothingComesFromElsewhere) {
  const std::string page = StatusPage(Status({Model("m")}));
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside))) << outside;
  }
  const std::string policy = StatusPagePolicy();
  EXPECT_THAT(policy, HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
}

TEST(PageTest, NumbersAsPeopleReadThem) {
  const auto shown = [](Json value, const char* as) { return Shown(value, as); };
  EXPECT_EQ(shown(nullptr, "count"), "\u2013");
  EXPECT_EQ(shown(12345678, "count"), "12345678");
  EXPECT_EQ(shown(1023, "bytes"), "1023 B");
  EXPECT_EQ(shown(1536, "bytes"), "1.5 KiB");
  EXPECT_EQ(shown(int64_t{300} << 30, "bytes"), "300 GiB");
  EXPECT_EQ(shown(int64_t{5000} << 40, "bytes"), "5000 TiB");
  EXPECT_EQ(shown(0.4567, "share"), "45.7 %");
  EXPECT_EQ(shown(12.36, "mean"), "12.4");
  EXPECT_EQ(shown(0.0000731, "seconds"), "73 \u00b5s");
  EXPECT_EQ(shown(0.01234, "seconds"), "12.34 ms");
  EXPECT_EQ(shown(1.5, "seconds"), "1.50 s");
  EXPECT_EQ(shown(75, "seconds"), "1 min 15 s");
  EXPECT_EQ(shown(59.9, "duration"), "59 s");
  EXPECT_EQ(shown(90061, "duration"), "1 d 1 h");
}

}  // namespace
}  // namespace athanor
