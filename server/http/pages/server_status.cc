#include "server/http/pages/server_status.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/cache/cache.h"
#include "deploy/bazel/libs/version.h"
#include "server/base/search_policy.h"
#include "server/generate/language_model.h"
#include "server/http/pages/core_samples.h"
#include "server/memory/memory_return.h"
#include "server/metrics/metrics.h"

namespace athanor {
namespace {

using Json = nlohmann::json;
using Versions = std::vector<std::shared_ptr<ModelVersion>>;

double Seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

Json Latency(const MetricCells& cells, Metric metric) {
  const HistogramCounts counts = cells.histogram(metric);
  const int64_t count = counts.count();
  if (count == 0) {
    return {{"count", 0}, {"mean", nullptr}, {"p50", nullptr}, {"p95", nullptr}, {"p99", nullptr}};
  }
  const auto bounds = RowOf(metric).bounds;
  const auto quantile = [&](double q) {
    return static_cast<double>(Quantile(bounds, counts, q)) / 1e9;
  };
  return {{"count", count},
          {"mean", static_cast<double>(counts.sum) / 1e9 / static_cast<double>(count)},
          {"p50", quantile(0.5)},
          {"p95", quantile(0.95)},
          {"p99", quantile(0.99)}};
}

Json Requests(const MetricCells& cells) {
  const int codes = static_cast<int>(RowOf(Metric::kRequests).values.size());
  int64_t failed = 0;
  for (int code = 1; code < codes; ++code) failed += cells.value(Metric::kRequests, code);
  const int64_t ok = cells.value(Metric::kRequests);
  return {{"ok", ok}, {"failed", failed}, {"all", ok + failed}};
}

// Returns the batching of a version that named a dim to join requests by, null for others.
Json Sharing(const VersionBatching& batching, const MetricCells& cells) {
  if (batching.dim.empty()) return nullptr;
  const HistogramCounts rows = cells.histogram(Metric::kBatchRows);
  const int64_t runs = rows.count();
  return {{"dim", batching.dim},
          {"on", batching.shared != nullptr},
          {"reason", batching.reason},
          {"max_rows", batching.shared == nullptr ? 0 : batching.shared->most_rows},
          {"runs", runs},
          {"rows_mean",
           runs == 0 ? Json() : Json(static_cast<double>(rows.sum) / static_cast<double>(runs))},
          {"splits", cells.value(Metric::kBatchSplits)}};
}

Json Share(int64_t part, int64_t whole) {
  return whole == 0 ? Json() : Json(static_cast<double>(part) / static_cast<double>(whole));
}

// Returns what the engine of a language model does, null for other models.
Json Generation(const LanguageModel* model, const MetricCells& cells) {
  if (model == nullptr) return nullptr;
  const EngineView view = model->engine->view();
  return {{"family", model->family},
          {"max_model_len", model->engine->options().scheduler.max_model_len},
          {"running", view.running},
          {"waiting", view.waiting},
          {"paused", view.paused},
          {"blocks", view.blocks},
          {"blocks_used", view.blocks - view.free_blocks},
          {"kv_bytes", view.committed_bytes},
          {"steps", view.steps},
          {"prompt_tokens", view.prompt_tokens},
          {"generated_tokens", view.generated_tokens},
          {"hit_rate", Share(view.cached_tokens, view.queried_tokens)},
          {"ttft", Latency(cells, Metric::kTimeToFirstToken)},
          {"itl", Latency(cells, Metric::kInterTokenLatency)},
          {"tpot", Latency(cells, Metric::kTimePerOutputToken)}};
}

// Returns the time that a budget allows, null if it limits none.
Json BudgetSeconds(const std::string& text) {
  const absl::StatusOr<SearchBudget> budget = ParseSearchBudget(text);
  if (!budget.ok() || budget->time.count() == 0) return nullptr;
  return std::chrono::duration<double>(budget->time).count();
}

Json Search(const v1::CompileJob& job) {
  if (!job.has_search()) return nullptr;
  const v1::SearchProgress& search = job.search();
  return {{"share", search.best() > 0 ? Json(search.best()) : Json()},
          {"roofline", search.roofline() > 0 ? Json(search.roofline()) : Json()},
          {"candidates", search.candidates()},
          {"candidates_failed", search.candidates_failed()},
          {"plans_taken", search.plans_taken()},
          {"seconds", search.seconds()},
          {"budget", job.search_options().budget()},
          {"budget_seconds", BudgetSeconds(job.search_options().budget())}};
}

double Seconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() / 1e9;
}

// Returns the seconds that a job has taken so far, null while it waits for its turn.
Json Elapsed(const v1::CompileJob& job) {
  if (!job.has_started()) return nullptr;
  const double end =
      job.has_finished() ? Seconds(job.finished()) : Seconds(std::chrono::system_clock::now());
  return std::max(0.0, end - Seconds(job.started()));
}

Json Job(const v1::CompileJob& job) {
  const bool finished = job.has_finished();
  return {{"id", job.id()},
          {"phase", v1::CompileJob::Phase_Name(job.phase())},
          {"finished", finished},
          {"stop_reason",
           finished ? v1::CompileJob::StopReason_Name(job.stop_reason()) : std::string()},
          {"percent", job.percent()},
          {"elapsed", Elapsed(job)},
          {"kernels_total", job.kernels_total()},
          {"kernels_done", job.kernels_done()},
          {"kernels_from_cache", job.kernels_from_cache()},
          {"search", Search(job)}};
}

// Returns "b=1..64 s=1..128".
template <typename Dims>
std::string DimsText(const Dims& dims) {
  std::string text;
  for (const auto& dim : dims) {
    absl::StrAppend(&text, text.empty() ? "" : " ", dim.name(), "=", dim.min(), "..", dim.max());
  }
  return text;
}

// Returns the boxes other than the full range.
Json Buckets(const v1::Model& model) {
  Json buckets = Json::array();
  for (const v1::BucketState& bucket : model.buckets()) {
    if (buckets.size() == kMostBucketsListed) break;
    const bool own = !bucket.plan_id().empty();
    buckets.push_back({{"ranges", DimsText(bucket.bucket())},
                       {"plan", own ? Json(bucket.plan_id()) : Json()},
                       {"state", bucket.pinned() ? "PINNED"
                                 : own           ? "OWN_PLAN"
                                                 : "FULL_RANGE"},
                       {"reason", bucket.reason()}});
  }
  return buckets;
}

Json Plan(const v1::Model& model) {
  if (model.plan_id().empty()) return nullptr;
  Json plan = {{"id", model.plan_id()}, {"pinned", model.pinned()}, {"kept", model.plans_size()}};
  for (const v1::PlanInfo& info : model.plans()) {
    if (info.plan_id() != model.plan_id()) continue;
    plan["kind"] = info.kind();
    plan["kernels"] = info.kernels();
    plan["steps"] = info.steps();
  }
  return plan;
}

Json VersionStatus(ServerCore& core, const ModelVersion& version) {
  const v1::Model model = core.registry().versions().Describe(version);
  const MetricCells& cells = version.metrics().cells;
  const auto job = core.workers().jobs().Find(model.compile_job_id());
  const v1::MemoryUse& memory = model.memory();
  return {{"name", model.name()},
          {"version", model.version()},
          {"state", v1::Model::State_Name(model.state())},
          {"serving", model.serving()},
          {"deterministic", model.deterministic()},
          {"device", model.device()},
          {"error", model.error()},
          {"dims", DimsText(model.dims())},
          {"plan", Plan(model)},
          {"buckets", Buckets(model)},
          {"buckets_left_out", std::max<int>(model.buckets_size() - kMostBucketsListed, 0)},
          {"job", job.ok() ? Job((*job)->state()) : Json()},
          {"counted_alone", core.metrics().IsOwn(version.metrics())},
          {"requests", Requests(cells)},
          {"batching", Sharing(version.batching(), cells)},
          {"generation", Generation(version.language_model(), cells)},
          {"plan_swaps", cells.value(Metric::kPlanSwaps)},
          {"latency",
           {{"call", Latency(cells, Metric::kRequestSeconds)},
            {"queue", Latency(cells, Metric::kQueueSeconds)},
            {"batch", Latency(cells, Metric::kBatchSeconds)},
            {"exec", Latency(cells, Metric::kExecSeconds)},
            {"stall", Latency(cells, Metric::kStallSeconds)}}},
          {"memory",
           {{"parameters", memory.parameters()},
            {"prepared", memory.prepared()},
            {"arenas", memory.arenas()},
            {"all", memory.parameters() + memory.prepared() + memory.arenas()}}}};
}

Json Memory(const ServerLedger& ledger) {
  Json kinds = Json::object();
  for (int i = 0; i < kHeldKinds; ++i) {
    const auto kind = static_cast<HeldKind>(i);
    kinds[std::string(HeldKindName(kind))] = ledger.used(kind);
  }
  return {{"limit", ledger.limit()},
          {"used", ledger.used()},
          {"resident", ResidentBytes()},
          {"kinds", std::move(kinds)}};
}

Json Mhz(int32_t mhz) { return mhz > 0 ? Json(mhz) : Json(); }

Json Devices(ServerCore& core) {
  Json devices = Json::array();
  for (const v1::Device& device : core.Devices()) {
    devices.push_back({{"name", device.name()},
                       {"chip", device.chip()},
                       {"compute_capability", device.compute_capability()},
                       {"driver", device.driver()},
                       {"threads", device.threads()},
                       {"memory",
                        {{"used", device.memory_used()},
                         {"limit", device.memory_limit()},
                         {"all", device.memory_bytes()}}},
                       {"core_mhz", Mhz(device.core_mhz())},
                       {"memory_mhz", Mhz(device.memory_mhz())},
                       {"compiler", device.compiler()},
                       {"kernels_compiled", device.kernels_compiled()},
                       {"lost", device.lost()}});
  }
  return devices;
}

Json Refusals(const MetricCells& cells) {
  Json refusals = Json::object();
  const auto reasons = RowOf(Metric::kRefusals).values;
  for (size_t i = 0; i < reasons.size(); ++i) {
    refusals[std::string(reasons[i])] = cells.value(Metric::kRefusals, static_cast<int>(i));
  }
  return refusals;
}

// Hashes (FNV-1a) everything but numbers: what the page cannot update by itself.
void HashShape(const Json& value, uint64_t* hash) {
  const auto add = [hash](absl::string_view text) {
    for (unsigned char c : text) *hash = (*hash ^ c) * 0x100000001b3;
    *hash = (*hash ^ 0xff) * 0x100000001b3;
  };
  if (value.is_structured()) {
    for (const auto& [key, item] : value.items()) {
      add(key);
      HashShape(item, hash);
    }
  } else if (value.is_string()) {
    add(value.get_ref<const std::string&>());
  } else if (!value.is_number()) {
    add(value.is_boolean() ? (value.get<bool>() ? "true" : "false") : "");
  }
}

// Returns the share of look-ups that found something, over all tiers.
Json HitRate(const Json& tiers) {
  int64_t hits = 0, misses = 0;
  for (const Json& tier : tiers) {
    hits += tier.at("hits").get<int64_t>();
    misses += tier.at("misses").get<int64_t>();
  }
  return Share(hits, hits + misses);
}

// Returns the address that a client needs; empty for the one that clients know by themselves, and
// for a port that the options do not tell.
std::string ClientAddress(const ServerOptions& options) {
  const bool any_port = absl::EndsWith(options.listen, ":0");
  return any_port || options.listen == ServerOptions().listen ? "" : options.listen;
}

// Returns the look-ups by tier and result.
Json CacheStatus(const CacheCounts& counts) {
  Json tiers = Json::object();
  for (const CacheCounts::Tier& tier : counts.tiers) {
    const int64_t misses =
        std::accumulate(std::begin(tier.misses), std::end(tier.misses), int64_t{0});
    tiers[std::string(tier.name)] = {{"hits", tier.hits}, {"misses", misses}};
  }
  return tiers;
}

}  // namespace

nlohmann::json ServerStatus(ServerCore& core, const LatencyHistory* history) {
  Json devices = Devices(core);  // first, since it notices a loss
  const Versions versions = core.registry().versions().List("");
  Json models = Json::array();
  for (const auto& version : versions) {
    if (models.size() == kMostVersionsListed) break;
    models.push_back(VersionStatus(core, *version));
  }
  Json cache = CacheStatus(core.cache().Counts());
  Json refusals = Refusals(core.metrics().server());
  int64_t refused = 0;
  for (const Json& count : refusals) refused += count.get<int64_t>();
  Json hit_rate = HitRate(cache);
  Json status = {{"server",
                  {{"version", kVersion},
                   {"address", ClientAddress(core.options())},
                   {"state", core.draining()  ? "draining"
                             : core.serves()  ? "serving"
                             : core.loading() ? "loading models"
                                              : "device lost"},
                   {"uptime", Seconds(std::chrono::system_clock::now()) - Seconds(core.started())},
                   {"threads", core.options().threads},
                   {"compile_workers", core.options().compile_workers}}},
                 {"calls",
                  {{"now", core.active_calls()},
                   {"queued", QueuedRequests(core)},
                   {"most", core.options().max_pending}}},
                 {"uploads", {{"now", core.uploads()}, {"most", core.options().max_uploads}}},
                 {"jobs", {{"unfinished", UnfinishedJobs(core)}}},
                 {"memory", Memory(core.ledger())},
                 {"devices", std::move(devices)},
                 {"refusals", std::move(refusals)},
                 {"refused", refused},
                 {"cache", std::move(cache)},
                 {"cache_hit_rate", std::move(hit_rate)},
                 {"versions", versions.size()},
                 {"versions_left_out", versions.size() - models.size()},
                 {"models", std::move(models)}};
  uint64_t hash = 0xcbf29ce484222325;
  HashShape(status, &hash);
  status["shape"] = absl::StrFormat("%016x", hash);
  if (history == nullptr) return status;
  for (size_t i = 0; i < status["models"].size(); ++i) {
    status["models"][i]["history"] = history->Of(versions[i]->shared_metrics());
  }
  return status;
}

std::string ServerStatusText(ServerCore& core) {
  return ServerStatus(core).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace athanor
