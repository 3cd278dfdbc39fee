// Draws what a search may choose: rewritten forms of the small graphs, and genomes for them.
//
//   auto forms = SmallForms(target).value();
//   const Graph form = forms[0]->RandomForm(seed).value();
//   const ScheduledGraph scheduled = RandomGenome(form, target, random, &about);
#ifndef ATHANOR_TESTS_TUNER_RANDOM_GENOME_H_
#define ATHANOR_TESTS_TUNER_RANDOM_GENOME_H_

#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/regions/region_forms.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/tuner/small_graphs.h"

namespace athanor {

// Returns the forms of each of kSmallGraphs; forms.graph(0) is the graph as it is prepared.
inline absl::StatusOr<std::vector<std::unique_ptr<RegionForms>>> SmallForms(
    const v1::Target& target) {
  std::vector<std::unique_ptr<RegionForms>> all;
  for (const char* body : kSmallGraphs) {
    ASSIGN_OR_RETURN(const Graph graph, ParseSmallGraph(body));
    ASSIGN_OR_RETURN(const auto prepared, Prepare(graph));
    RegionFormsOptions options{.sizes = {{5, 7}}, .machine = Machine::Typical(target)};
    options.limits.nodes = 4000;
    ASSIGN_OR_RETURN(all.emplace_back(), RegionForms::Create(prepared.graph, options));
  }
  return all;
}

// Changes some decisions of the rule of thumb, and draws a schedule for each kernel; says both in
// `about`.
inline ScheduledGraph RandomGenome(const Graph& graph, const v1::Target& target,
                                   std::mt19937_64& random, std::string* about) {
  const auto one_of = [&](const auto& all) -> const auto& { return all[random() % all.size()]; };
  Fusion fusion{{}, {.one_panel = random() % 2 == 0}};
  for (int change = static_cast<int>(random() % 4); change > 0; --change) {
    const auto flips = FusionFlips(graph, ChooseKernels(graph, target, fusion));
    if (flips.empty()) break;
    const auto& [node, say] = one_of(flips);
    fusion.nodes[node] = say;
    absl::StrAppend(about, " %", node, say == Fuse::kMemory ? "=memory" : "=inline");
  }
  ScheduledGraph scheduled{graph, ChooseKernels(graph, target, fusion)};
  const std::vector<bool> memory = MemoryOf(graph, scheduled.genome);
  const std::vector<bool> weights = WeightsOf(graph);
  for (KernelChoice& kernel : scheduled.genome.kernels) {
    const KernelTask task = CutTask(graph, memory, weights, kernel);
    std::vector<KernelChoice> schedules = Schedules(task, target);
    // Draws each way to read a contraction's columns as often, however many schedules it has.
    std::set<int> ways;
    for (const KernelChoice& s : schedules) ways.insert(WayOf(s.contract));
    const int way = one_of(std::vector<int>(ways.begin(), ways.end()));
    std::erase_if(schedules, [&](const KernelChoice& s) { return WayOf(s.contract) != way; });
    const KernelChoice& chosen = one_of(schedules);
    kernel.contract = chosen.contract;
    kernel.attention = chosen.attention;
    kernel.walk = chosen.walk;
    kernel.team = chosen.team;
    absl::StrAppend(about, "; ", ScheduleText(kernel));
  }
  PackWeights(&scheduled.graph, &scheduled.genome, target);
  return scheduled;
}

}  // namespace athanor

#endif  // ATHANOR_TESTS_TUNER_RANDOM_GENOME_H_
