// Searches a plan for a graph as the server does, but without a server, and writes the best one to
// a folder (plan_folder.h). models_bench.py runs it for --plan search.
//
//   search_plan --graph graph.pb --out FOLDER [--threads N] [--budget SECONDS] [--seed N]
//               [--mode budget|fast|exhaust] [--disable_rules A,B] [--cache FILE] [--magnitude N]
//               [--dims "batch:1:8,height:32:320"]
//
// `graph.pb` is a serialised athanor.v1.Graph, no weights are needed; or an ONNX model
// (`model.onnx`) with the bounds of its dynamic dims. --magnitude states the
// magnitude of the weights (compiler/ir/graph/magnitude.h); inprocess.h refuses the plan for
// weights of another magnitude. Prints one line of JSON: the plan, why the search stopped, its
// seconds, and its SearchProgress without tasks. The cache keeps kernels (without --cache: in
// memory), so that a second search gets further in the same time.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/graph/magnitude.h"
#include "google/protobuf/util/json_util.h"
#include "server/base/options.h"
#include "server/plans/plan_search.h"
#include "server/search/tuner_backend.h"
#include "tests/bench/arguments.h"
#include "tests/bench/graph_file.h"
#include "tests/bench/plan_folder.h"

namespace athanor {
namespace {

struct Arguments {
  std::string graph, out, tuner, cache;
  OnnxDims dims;
  std::optional<int> magnitude;
  int64_t threads = 0;  // 0: one per core
  double budget = 30;   // seconds
  PlanSearchOptions search;
};

bool ParseMode(const std::string& text, v1::SearchMode* mode) {
  if (text == "budget") *mode = v1::SEARCH_BUDGET;
  if (text == "fast") *mode = v1::SEARCH_FAST;
  if (text == "exhaust") *mode = v1::SEARCH_EXHAUST;
  return text == "budget" || text == "fast" || text == "exhaust";
}

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments a;
  PlanSearchOptions& search = a.search;
  const auto budget = [&](const std::string& value) {
    return absl::SimpleAtod(value, &a.budget) && a.budget >= 0;
  };
  const auto mode = [&](const std::string& value) { return ParseMode(value, &search.mode); };
  const auto magnitude = [&](const std::string& value) {
    return absl::SimpleAtoi(value, &a.magnitude.emplace());
  };
  const auto rules = [&](const std::string& value) {
    search.disabled_rules = absl::StrSplit(value, ',', absl::SkipEmpty());
    return true;
  };
  const absl::Status read = ReadArguments(argc, argv,
                                          {{"--graph", {.set = AsText(&a.graph), .needed = true}},
                                           {"--dims", {AsDims(&a.dims)}},
                                           {"--out", {.set = AsText(&a.out), .needed = true}},
                                           {"--tuner", {AsText(&a.tuner)}},
                                           {"--cache", {AsText(&a.cache)}},
                                           {"--threads", {AsNumber(&a.threads, int64_t{0})}},
                                           {"--budget", {budget}},
                                           {"--seed", {AsNumber(&search.seed)}},
                                           {"--mode", {mode}},
                                           {"--magnitude", {magnitude}},
                                           {"--disable_rules", {rules}}});
  if (!read.ok()) return read;
  return a;
}

// The baseline plan, compiled and checked.
absl::StatusOr<CompiledPlan> Baseline(CompileBackend& backend, const Graph& graph) {
  absl::StatusOr<internal::LowerReply> lowered = backend.Lower(graph, /*plain=*/false);
  if (!lowered.ok()) return lowered.status();
  CompiledPlan baseline{std::move(*lowered->mutable_plan()), {}};
  for (int i = 0; i < baseline.plan.kernels_size(); ++i) {
    absl::StatusOr<KernelObject> object = backend.CompileKernel(baseline.plan, i);
    if (!object.ok()) return object.status();
    baseline.objects.push_back(*std::move(object));
  }
  for (const internal::KernelCheck& check : lowered->checks()) {
    absl::Status s = backend.CheckKernel(baseline.plan, check, baseline.objects);
    if (!s.ok()) return s;
  }
  return baseline;
}

struct Searched {
  CompiledPlan best;
  v1::SearchProgress progress;
  std::string stop;
  double seconds = 0;
};

absl::StatusOr<Searched> SearchFor(CompileBackend& backend, const Graph& graph,
                                   const Arguments& arguments) {
  absl::StatusOr<CompiledPlan> baseline = Baseline(backend, graph);
  if (!baseline.ok()) return baseline.status();
  Searched result;
  result.best = *baseline;
  const auto start = std::chrono::steady_clock::now();
  auto search = backend.NewSearch(graph, *std::move(baseline), arguments.search);
  if (!search.ok()) return search.status();
  while (result.stop.empty()) {
    absl::StatusOr<PlanSearch::Step> step = (*search)->Next();
    if (!step.ok()) return step.status();
    if (step->found) {
      result.best = *std::move(step->found);
      (*search)->Taken(absl::OkStatus());
    }
    if (step->stop) result.stop = v1::CompileJob::StopReason_Name(*step->stop);
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (result.seconds >= arguments.budget) (*search)->Finish();
  }
  result.progress = (*search)->progress();
  return result;
}

absl::Status Main(const Arguments& arguments) {
  absl::StatusOr<Graph> graph = absl::EndsWith(arguments.graph, ".onnx")
                                    ? ReadOnnx(arguments.graph, arguments.dims)
                                    : ReadGraph(arguments.graph);
  if (!graph.ok()) return graph.status();
  for (Node& node : graph->nodes) {
    if (IsParameter(node.op) && HasMagnitude(node.type.dtype)) {
      SetMagnitude(arguments.magnitude, &node);
    }
  }
  ServerOptions options;
  options.threads = arguments.threads;
  options.cache = arguments.cache;
  TunerOptions tuner;
  tuner.binary = arguments.tuner;
  auto backends = TunerBackends::Create(options, tuner);
  if (!backends.ok()) return backends.status();
  std::unique_ptr<CompileBackend> backend = (*backends)->New();
  absl::StatusOr<Searched> result = SearchFor(*backend, *graph, arguments);
  if (!result.ok()) return result.status();
  std::vector<std::string> objects;
  for (KernelObject& k : result->best.objects) objects.push_back(std::move(k.object));
  if (absl::Status s = WritePlan(arguments.out, result->best.plan, objects); !s.ok()) return s;
  result->progress.clear_tasks();
  std::string progress;
  google::protobuf::util::JsonPrintOptions json;
  json.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(result->progress, &progress, json).ok()) {
    return absl::InternalError("the search's progress cannot be printed");
  }
  std::printf(
      "{\"plan_id\":\"%s\",\"plan_kind\":\"%s\",\"stop\":\"%s\",\"seconds\":%.2f,"
      "\"progress\":%s}\n",
      result->best.plan.plan_id().c_str(), result->best.plan.kind().c_str(), result->stop.c_str(),
      result->seconds, progress.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  absl::StatusOr<athanor::Arguments> arguments = athanor::Parse(argc, argv);
  return athanor::ExitStatus("search_plan",
                             arguments.ok() ? athanor::Main(*arguments) : arguments.status());
}
