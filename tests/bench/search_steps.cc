// Measures the cost of the search itself: its steps on a graph, with nothing compiled or measured.
// Every kernel "takes" the time that the cost model predicts, times a number between one and two
// drawn from the kernel's text, so that schedules, forms and fusions can win.
//
//   search_steps --graph graph.pb [--kernels N]
//
// `graph.pb` is a serialised athanor.v1.Graph; no weights are needed. Prints one line of JSON:
// milliseconds of CPU time to prepare the graph and to begin, of all steps together and of the
// longest one, and what the search did.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/regions/region_forms.h"
#include "compiler/search/search/search.h"
#include "tests/bench/arguments.h"
#include "tests/bench/graph_file.h"

namespace athanor {
namespace {

// Returns this process's CPU time.
double Milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

v1::Target ServerCore() {
  v1::Target t;
  t.set_device("cpu");
  t.set_vector_bytes(64);
  t.set_vector_registers(32);
  t.set_l1_bytes(32 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_threads(2);
  return t;
}

// Draws from a FNV-1a hash of the text, which is the same on every machine.
double Drawn(std::string_view text) {
  uint64_t hash = 1469598103934665603u;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return 1 + static_cast<double>(hash % 1000) / 1000;
}

absl::Status Main(const std::string& path, int64_t kernels) {
  absl::StatusOr<Graph> graph = ReadGraph(path);
  if (!graph.ok()) return graph.status();
  const double start = Milliseconds();
  absl::StatusOr<Prepared> prepared = Prepare(*graph);
  if (!prepared.ok()) return prepared.status();
  const double preparing = Milliseconds() - start;
  const v1::Target target = ServerCore();
  const Machine machine = Machine::Typical(target);
  SizePoint sizes;
  for (const Dim& d : prepared->graph.dims) sizes.push_back(std::min<int64_t>(d.max, 128));
  const double begin = Milliseconds();
  auto make = [&]() -> absl::StatusOr<std::unique_ptr<FormSpace>> {
    return RegionForms::Create(prepared->graph, {.sizes = {sizes}, .machine = machine});
  };
  Search search(DeferredForms(prepared->graph, make), target, machine,
                {.sizes = {sizes}, .max_kernels = kernels});
  const double beginning = Milliseconds() - begin;
  double all = 0, longest = 0;
  int steps = 0;
  for (bool done = false; !done; ++steps) {
    const double next = Milliseconds();
    const Search::Step step = search.Next();
    const double took = Milliseconds() - next;
    all += took;
    longest = std::max(longest, took);
    done = step.done;
    for (int id : step.kernels) {
      const KernelCandidate& k = search.kernel(id);
      const KernelTask& task = search.task(k.task);
      const double drawn = Drawn(absl::StrCat(task.key, ScheduleText(k.choice)));
      search.TellKernel(id,
                        Seconds{drawn * PredictSeconds(task, k.choice, sizes, target, machine)});
    }
    if (step.plan >= 0) search.TellPlan(step.plan, true);
  }
  const SearchReport report = search.Report();
  std::printf(
      "{\"nodes\":%zu,\"prepare_ms\":%.2f,\"begin_ms\":%.2f,\"steps\":%d,\"steps_ms\":%.2f,"
      "\"longest_step_ms\":%.2f,\"kernels\":%ld,\"genomes_tried\":%d,\"genomes_taken\":%d,"
      "\"forms_tried\":%d,\"forms_taken\":%d,\"rules\":\"%s\",\"regions\":%zu,"
      "\"plans\":%d,\"predicted\":%.4f,\"stop\":\"%s\"}\n",
      prepared->graph.nodes.size(), preparing, beginning, steps, all, longest,
      static_cast<long>(report.kernels_measured), report.genomes_tried, report.genomes_taken,
      report.forms_tried, report.forms_taken, report.rules.c_str(), report.regions.size(),
      report.plans_proposed, report.predicted, std::string(SearchStopName(report.stop)).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  std::string graph;
  int64_t kernels = 200;
  absl::Status status =
      athanor::ReadArguments(argc, argv,
                             {{"--graph", {.set = athanor::AsText(&graph), .needed = true}},
                              {"--kernels", {athanor::AsNumber(&kernels)}}});
  if (status.ok()) status = athanor::Main(graph, kernels);
  return athanor::ExitStatus("search_steps", status);
}
