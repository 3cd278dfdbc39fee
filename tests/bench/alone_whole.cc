// Compares a plan's time with the sum of its kernels' times, each measured alone as a search does:
// a search chooses by such sums.
//
//   alone_whole --graph graph.pb --sizes "1,128;8,128" [--threads N] [--rounds N] [--tuner FILE]
//
// `graph.pb` is a serialised athanor.v1.Graph; no weights are needed. Prints a line of JSON per
// size for the baseline plan: microseconds of each kernel alone and of its step in the plan
// (medians over the rounds), how often the plan runs it, and both sums beside the whole plan's
// time. Sizes are values of the plan's dims, in its order.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/pipeline/search_start.h"
#include "server/child/tuner_process.h"
#include "server/search/plan_cost.h"
#include "tests/bench/arguments.h"
#include "tests/bench/graph_file.h"

namespace athanor {
namespace {

struct Arguments {
  std::string graph, tuner;
  std::vector<std::vector<int64_t>> sizes;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 5;
};

// Parses "1,128;8,128": values of dims separated by commas, points by semicolons.
bool ToSizes(const std::string& value, std::vector<std::vector<int64_t>>* sizes) {
  bool right = true;
  for (absl::string_view point : absl::StrSplit(value, ';')) {
    std::vector<int64_t>& dims = sizes->emplace_back();
    for (absl::string_view dim : absl::StrSplit(point, ',', absl::SkipEmpty())) {
      right = absl::SimpleAtoi(dim, &dims.emplace_back()) && right;
    }
  }
  return right;
}

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments a;
  const auto sizes = [&](const std::string& value) { return ToSizes(value, &a.sizes); };
  const absl::Status read = ReadArguments(argc, argv,
                                          {{"--graph", {.set = AsText(&a.graph), .needed = true}},
                                           {"--sizes", {.set = sizes, .needed = true}},
                                           {"--tuner", {AsText(&a.tuner)}},
                                           {"--threads", {AsNumber(&a.threads, 1)}},
                                           {"--rounds", {AsNumber(&a.rounds, 1)}}});
  if (!read.ok()) return read;
  return a;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Comparison {
 public:
  Comparison(const Arguments& arguments, TunerProcess* tuner)
      : arguments_(arguments), tuner_(*tuner) {}

  absl::Status Run(const Graph& graph);

 private:
  absl::StatusOr<internal::MeasureRequest> RequestFor(const v1::Plan& plan, std::string graph_text);
  absl::StatusOr<internal::SizeTimes> Measure(internal::MeasureRequest request, size_t size);
  absl::Status Round(const internal::LowerReply& lowered,
                     const std::vector<internal::MeasureRequest>& alone,
                     const internal::MeasureRequest& whole, size_t size);
  void Print(const internal::LowerReply& lowered, size_t size);

  const Arguments& arguments_;
  TunerProcess& tuner_;
  v1::Target target_;
  std::map<std::string, std::string> objects_;  // keyed by source hash
  // Seconds, indexed by size; for steps and kernels then by number, then by round.
  std::vector<std::vector<double>> wholes_;
  std::vector<std::vector<std::vector<double>>> steps_, kernels_;
};

absl::StatusOr<internal::MeasureRequest> Comparison::RequestFor(const v1::Plan& plan,
                                                                std::string graph_text) {
  internal::MeasureRequest request;
  *request.add_plans()->mutable_plan() = plan;
  for (const v1::Kernel& kernel : plan.kernels()) {
    std::string& object = objects_[kernel.source_hash()];
    if (object.empty()) {
      absl::StatusOr<std::string> made = tuner_.Compile(kernel.source(), target_);
      if (!made.ok()) return made.status();
      object = *std::move(made);
    }
    request.mutable_plans(0)->add_objects(object);
  }
  request.set_graph_text(std::move(graph_text));
  request.set_seed(1);
  request.set_threads(arguments_.threads);
  return request;
}

absl::StatusOr<internal::SizeTimes> Comparison::Measure(internal::MeasureRequest request,
                                                        size_t size) {
  const std::vector<int64_t>& point = arguments_.sizes[size];
  request.add_sizes()->mutable_values()->Assign(point.begin(), point.end());
  absl::StatusOr<internal::MeasureReply> times = tuner_.Measure(request);
  if (!times.ok()) return times.status();
  return times->plans(0).sizes(0);
}

absl::Status Comparison::Round(const internal::LowerReply& lowered,
                               const std::vector<internal::MeasureRequest>& alone,
                               const internal::MeasureRequest& whole, size_t size) {
  absl::StatusOr<internal::SizeTimes> times = Measure(whole, size);
  if (!times.ok()) return times.status();
  wholes_[size].push_back(times->seconds());
  for (int i = 0; i < times->step_seconds_size(); ++i) {
    steps_[size][i].push_back(times->step_seconds(i));
  }
  for (size_t k = 0; k < alone.size(); ++k) {
    internal::MeasureRequest request = alone[k];
    request.add_activation_bytes(ActivationBytes(lowered.plan(), arguments_.sizes[size]));
    times = Measure(std::move(request), size);
    if (!times.ok()) return times.status();
    kernels_[size][lowered.checks(static_cast<int>(k)).kernel()].push_back(times->seconds());
  }
  return absl::OkStatus();
}

void Comparison::Print(const internal::LowerReply& lowered, size_t size) {
  const v1::Plan& plan = lowered.plan();
  std::map<uint32_t, std::pair<int, double>> in_plan;  // calls, and seconds of all of them
  double steps = 0, alone = 0;
  for (int i = 0; i < plan.run_size(); ++i) {
    const double seconds = Median(steps_[size][i]);
    steps += seconds;
    auto& [calls, all] = in_plan[plan.run(i).kernel()];
    ++calls;
    all += seconds;
  }
  std::string text;
  for (const auto& [kernel, found] : in_plan) {
    const auto& [calls, all] = found;
    const double own = Median(kernels_[size][kernel]);
    alone += own * calls;
    absl::StrAppend(&text, text.empty() ? "" : ",", "{\"kernel\":\"",
                    plan.kernels(static_cast<int>(kernel)).name(), "\",\"calls\":", calls,
                    ",\"alone_us\":", own * 1e6, ",\"step_us\":", all / calls * 1e6,
                    ",\"ratio\":", own * calls / all, "}");
  }
  const double whole = Median(wholes_[size]);
  std::string dims;
  for (int d = 0; d < plan.dims_size(); ++d) {
    absl::StrAppend(&dims, d > 0 ? " " : "", plan.dims(d).name(), "=", arguments_.sizes[size][d]);
  }
  std::printf(
      "{\"sizes\":\"%s\",\"alone_us\":%.1f,\"steps_us\":%.1f,\"whole_us\":%.1f,"
      "\"alone_over_whole\":%.3f,\"kernels\":[%s]}\n",
      dims.c_str(), alone * 1e6, steps * 1e6, whole * 1e6, alone / whole, text.c_str());
}

absl::Status Comparison::Run(const Graph& graph) {
  absl::StatusOr<internal::TargetReply> machine = tuner_.Target();
  if (!machine.ok()) return machine.status();
  target_ = machine->target();
  target_.set_threads(arguments_.threads);
  absl::StatusOr<internal::LowerReply> lowered = tuner_.Lower(graph, target_);
  if (!lowered.ok()) return lowered.status();
  auto whole = RequestFor(lowered->plan(), ToText(graph));
  if (!whole.ok()) return whole.status();
  whole->set_steps(true);
  absl::StatusOr<Prepared> prepared = Prepare(graph);
  if (!prepared.ok()) return prepared.status();
  std::vector<internal::MeasureRequest> alone;
  for (const internal::KernelCheck& check : lowered->checks()) {
    auto request = RequestFor(check.request().plan(), check.request().graph_text());
    if (!request.ok()) return request.status();
    request->set_race(true);  // as a kernel without a best is measured
    request->set_weight_bytes(WeightBytes(prepared->graph));
    alone.push_back(*std::move(request));
  }
  const size_t sizes = arguments_.sizes.size();
  wholes_.resize(sizes);
  steps_.assign(sizes, std::vector<std::vector<double>>(lowered->plan().run_size()));
  kernels_.assign(sizes, std::vector<std::vector<double>>(lowered->plan().kernels_size()));
  for (size_t size = 0; size < sizes; ++size) {
    for (int round = 0; round < arguments_.rounds; ++round) {
      if (absl::Status s = Round(*lowered, alone, *whole, size); !s.ok()) return s;
    }
    Print(*lowered, size);
  }
  return absl::OkStatus();
}

absl::Status Main(const Arguments& arguments) {
  absl::StatusOr<Graph> graph = ReadGraph(arguments.graph);
  if (!graph.ok()) return graph.status();
  TunerOptions options;
  options.binary = arguments.tuner;
  options.check_timeout = std::chrono::minutes(5);  // for large sizes on busy machines
  auto tuner = TunerProcess::Start(options);
  if (!tuner.ok()) return tuner.status();
  return Comparison(arguments, tuner->get()).Run(*graph);
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  absl::StatusOr<athanor::Arguments> arguments = athanor::Parse(argc, argv);
  return athanor::ExitStatus("alone_whole",
                             arguments.ok() ? athanor::Main(*arguments) : arguments.status());
}
