// Measures the memory of a tuner's child and the processes it forks while plans are measured and
// checked as in a search, without a server and without weights.
//
//   tuner_memory --graph graph.pb [--scratch FOLDER] [--tuner FILE] [--threads N] [--seed N]
//
// `graph.pb` is a serialised athanor.v1.Graph. With --scratch, checks keep a file there, as a
// server's do in its state directory (server/tuner/run/scratch.h). Phases: the baseline is lowered
// and compiled, then its f64 twin; two plans, both the baseline, are measured against each other,
// and one is checked against the other, at the smallest sizes, at an eighth of the range, and (only
// checked) at the largest. Prints one line of JSON per phase: its seconds, its peak, and the memory
// left at its end, in MB. Memory is the proportional share of anonymous and shared memory (Pss of
// /proc/PID/smaps_rollup), so that pages of several processes or mappings count once.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/memory/plan_memory.h"
#include "server/child/tuner_process.h"
#include "tests/bench/arguments.h"
#include "tests/bench/graph_file.h"
#include "tests/bench/memory_watch.h"

namespace athanor {
namespace {

class Phases {
 public:
  explicit Phases(TunerProcess* tuner) : tuner_(*tuner) {}

  // Calls `about` after the phase for more members of its line.
  template <typename Work, typename About>
  absl::Status Run(const char* name, Work&& work, About&& about) {
    const auto start = std::chrono::steady_clock::now();
    MemoryWatch watch(tuner_.pid());
    const absl::Status status = work();
    const int64_t peak = watch.Stop();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("{\"phase\":\"%s\",\"seconds\":%.2f,\"peak_mb\":%.0f,\"end_mb\":%.0f%s}\n", name,
                took.count(), 1e-6 * static_cast<double>(peak),
                1e-6 * static_cast<double>(HeldBelow(tuner_.pid())), about().c_str());
    std::fflush(stdout);
    return status;
  }

 private:
  TunerProcess& tuner_;
};

std::string About(const v1::Plan& plan) {
  const absl::StatusOr<PlanMemory> memory = MemoryOf(plan, {}, /*host_memory=*/true);
  if (!memory.ok()) return "";
  return absl::StrCat(",\"steps\":", plan.run_size(),
                      ",\"prepared_mb\":", memory->WeightBytes() / 1'000'000,
                      ",\"arena_mb\":", memory->arena / 1'000'000);
}

// Returns the sizes with every dim at its smallest, at an eighth of its range, and at its largest.
std::vector<internal::Sizes> SizesOf(const v1::Plan& plan) {
  std::vector<internal::Sizes> sizes(3);
  for (const v1::DimRange& dim : plan.dims()) {
    sizes[0].add_values(dim.min());
    sizes[1].add_values(dim.min() + (dim.max() - dim.min()) / 8);
    sizes[2].add_values(dim.max());
  }
  if (plan.dims().empty()) sizes.resize(1);
  return sizes;
}

struct Arguments {
  std::string graph, tuner, scratch;
  int threads = 2;
  uint64_t seed = 1;
};

absl::Status Main(const Arguments& a) {
  absl::StatusOr<Graph> graph = ReadGraph(a.graph);
  if (!graph.ok()) return graph.status();
  TunerOptions options;
  options.binary = a.tuner;
  options.scratch_folder = a.scratch;
  auto started = TunerProcess::Start(options);
  if (!started.ok()) return started.status();
  TunerProcess& tuner = **started;
  const TunerProcess::Background background(&tuner);
  absl::StatusOr<internal::TargetReply> found = tuner.Target();
  if (!found.ok()) return found.status();
  v1::Target target = found->target();
  target.set_threads(a.threads);
  Phases phases(&tuner);
  internal::MeasuredPlan plans[2];  // the baseline and its twin
  for (const bool exact : {false, true}) {
    internal::MeasuredPlan& plan = plans[exact ? 1 : 0];
    const auto lower = [&]() -> absl::Status {
      absl::StatusOr<internal::LowerReply> lowered = tuner.Lower(*graph, target, exact);
      if (!lowered.ok()) return lowered.status();
      *plan.mutable_plan() = std::move(*lowered->mutable_plan());
      for (const v1::Kernel& kernel : plan.plan().kernels()) {
        absl::StatusOr<std::string> object = tuner.Compile(kernel.source(), target);
        if (!object.ok()) return object.status();
        plan.add_objects(*std::move(object));
      }
      return absl::OkStatus();
    };
    absl::Status s =
        phases.Run(exact ? "twin in f64" : "baseline", lower, [&] { return About(plan.plan()); });
    if (!s.ok()) return s;
  }
  internal::MeasureRequest measure;
  internal::PlanCheckRequest check;
  *check.mutable_candidate() = *check.mutable_baseline() = plans[0];
  *check.mutable_exact() = plans[1];
  for (int i = 0; i < 2; ++i) *measure.add_plans() = plans[0];
  const std::string text = ToText(*graph);
  measure.set_graph_text(text);
  check.set_graph_text(text);
  for (const internal::Sizes& sizes : SizesOf(plans[0].plan())) {
    // A single size is enough: rounds at the others would take minutes and use no other memory.
    if (measure.sizes().empty()) *measure.add_sizes() = sizes;
    *check.add_sizes() = sizes;
  }
  measure.set_seed(a.seed);
  check.set_seed(a.seed);
  measure.set_threads(a.threads);
  check.set_threads(a.threads);
  internal::MeasureReply times;
  absl::Status s = phases.Run(
      "measure",
      [&] {
        absl::StatusOr<internal::MeasureReply> reply = tuner.Measure(measure);
        if (reply.ok()) times = *std::move(reply);
        return reply.status();
      },
      [&] {
        std::string text = ",\"ms\":[";
        for (const internal::PlanTimes& plan : times.plans()) {
          for (const internal::SizeTimes& size : plan.sizes()) {
            absl::StrAppend(&text, text.back() == '[' ? "" : ",", 1e3 * size.seconds());
          }
        }
        return text + "]";
      });
  if (!s.ok()) return s;
  internal::PlanCheckReply reply;
  return phases.Run(
      "check",
      [&] {
        absl::StatusOr<internal::PlanCheckReply> checked = tuner.CheckPlan(check);
        if (checked.ok()) reply = *std::move(checked);
        return checked.status();
      },
      [&] {
        return absl::StrCat(",\"compared_with\":\"", reply.compared_with(),
                            "\",\"runs\":", reply.runs(), ",\"elements\":", reply.elements(),
                            ",\"of_allowed\":", reply.worst_error(), ",\"left_out\":\"",
                            absl::CEscape(absl::StrJoin(reply.left_out(), "; ")), "\"");
      });
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  athanor::Arguments a;
  absl::Status status =
      athanor::ReadArguments(argc, argv,
                             {{"--graph", {.set = athanor::AsText(&a.graph), .needed = true}},
                              {"--scratch", {athanor::AsText(&a.scratch)}},
                              {"--tuner", {athanor::AsText(&a.tuner)}},
                              {"--threads", {athanor::AsNumber(&a.threads, 1)}},
                              {"--seed", {athanor::AsNumber(&a.seed)}}});
  if (status.ok()) status = athanor::Main(a);
  return athanor::ExitStatus("tuner_memory", status);
}
