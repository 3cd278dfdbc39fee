#include "server/rest/describe.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"
#include "deploy/bazel/libs/version.h"
#include "server/base/public_status.h"
#include "server/calls/model_metadata.h"

namespace athanor {
namespace {

template <typename Tensors>
Json TensorsOf(const Tensors& tensors) {
  Json list = Json::array();
  for (const auto& tensor : tensors) {
    list.push_back({{"name", tensor.name()},
                    {"datatype", tensor.datatype()},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}});
  }
  return list;
}

template <typename Tensors>
Json ConfigTensorsOf(const Tensors& tensors) {
  Json list = Json::array();
  for (const auto& tensor : tensors) {
    list.push_back({{"name", tensor.name()},
                    {"data_type", absl::StrCat("TYPE_", tensor.datatype())},
                    {"dims", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}});
  }
  return list;
}

// Returns a version's state as Triton names it, and why it does not serve.
std::pair<std::string, std::string> StateOf(const ModelVersion& version) {
  if (absl::Status s = version.unusable(); !s.ok()) {
    const absl::Status told = PublicStatus(s);
    return {"UNAVAILABLE", std::string(told.message())};
  }
  if (version.plan() != nullptr) return {"READY", ""};
  const PlanSlot::View view = version.plans().full().view();
  if (!view.settled()) return {"LOADING", "its baseline plan is being compiled"};
  return {"UNAVAILABLE", "it has no plan: see its compile job"};
}

Json CountOf(int64_t count, int64_t nanoseconds) { return {{"count", count}, {"ns", nanoseconds}}; }

Json StatisticsOf(const ModelVersion& version) {
  const MetricCells& cells = version.metrics().cells;
  const auto ok = cells.value(Metric::kRequests, static_cast<int>(absl::StatusCode::kOk));
  const HistogramCounts requests = cells.histogram(Metric::kRequestSeconds);
  const HistogramCounts queue = cells.histogram(Metric::kQueueSeconds);
  const HistogramCounts runs = cells.histogram(Metric::kExecSeconds);
  const Json none = CountOf(0, 0);
  return {{"name", version.name()},
          {"version", absl::StrCat(version.version())},
          {"last_inference", 0},
          {"inference_count", ok},
          {"execution_count", runs.count()},
          {"inference_stats",
           {{"success", CountOf(ok, requests.sum)},
            {"fail", CountOf(requests.count() - ok, 0)},
            {"queue", CountOf(queue.count(), queue.sum)},
            {"compute_input", none},
            {"compute_infer", CountOf(runs.count(), runs.sum)},
            {"compute_output", none},
            {"cache_hit", none},
            {"cache_miss", none}}},
          {"batch_stats", Json::array()}};
}

}  // namespace

Json DescribeServer() {
  return {{"name", "athanor"},
          {"version", kVersion},
          {"extensions",
           {"binary_tensor_data", "model_configuration", "model_repository", "statistics"}}};
}

absl::StatusOr<Json> DescribeModel(ServerCore& core, const std::string& name,
                                   const std::string& version) {
  inference::ModelMetadataResponse metadata;
  RETURN_IF_ERROR(FillMetadata(core, name, version, &metadata));
  // In the order of the keys, which protobuf's map does not keep.
  const std::map<std::string, std::string> properties(metadata.properties().begin(),
                                                      metadata.properties().end());
  return Json{{"name", metadata.name()},
              {"versions",
               std::vector<std::string>(metadata.versions().begin(), metadata.versions().end())},
              {"platform", metadata.platform()},
              {"inputs", TensorsOf(metadata.inputs())},
              {"outputs", TensorsOf(metadata.outputs())},
              {"properties", properties}};
}

absl::StatusOr<Json> ConfigOf(ServerCore& core, const std::string& name,
                              const std::string& version) {
  inference::ModelMetadataResponse metadata;
  RETURN_IF_ERROR(FillMetadata(core, name, version, &metadata));
  return Json{{"name", metadata.name()},
              {"platform", metadata.platform()},
              {"backend", "athanor"},
              {"max_batch_size", 0},
              {"input", ConfigTensorsOf(metadata.inputs())},
              {"output", ConfigTensorsOf(metadata.outputs())}};
}

absl::StatusOr<Json> StatisticsOf(ServerCore& core, const std::string& name,
                                  const std::string& version, const Caller& caller) {
  Json list = Json::array();
  if (!name.empty()) {
    ASSIGN_OR_RETURN(auto found, core.registry().versions().Find(name, version));
    list.push_back(StatisticsOf(*found));
  } else {
    for (const auto& each : core.registry().versions().List("")) {
      if (caller.Sees(each->name())) list.push_back(StatisticsOf(*each));
    }
  }
  return Json{{"model_stats", std::move(list)}};
}

Json IndexOf(ServerCore& core, bool ready, const Caller& caller) {
  Json list = Json::array();
  for (const auto& version : core.registry().versions().List("")) {
    if (!caller.Sees(version->name())) continue;
    auto [state, reason] = StateOf(*version);
    if (ready && state != "READY") continue;
    list.push_back({{"name", version->name()},
                    {"version", absl::StrCat(version->version())},
                    {"state", std::move(state)},
                    {"reason", std::move(reason)}});
  }
  return list;
}

}  // namespace athanor
