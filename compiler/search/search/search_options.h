// Options of a search, and the candidates that it asks to be measured.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_OPTIONS_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "compiler/search/regions/recipe.h"

namespace athanor {

// Effort of a search.
enum class SearchMode : uint8_t {
  kFast,     // takes forms, fusions and schedules from the cost model; measures a few plans
  kBudget,   // goes on until nothing left promises a gain
  kExhaust,  // goes on until all schedules and all changes within reach are measured
};

struct SearchOptions {
  // Sizes at which everything is measured, all with the same weight. Not empty.
  std::vector<SizePoint> sizes;
  uint64_t seed = 1;
  SearchMode mode = SearchMode::kBudget;
  int64_t max_kernels = 1 << 20;  // measured candidates, failed ones included
  int batch = 8;                  // kernels asked for at once
  int race = 4;                   // of these, of one task: they are measured in turn
  double least_gain = 0.02;       // least share of the whole time that makes a plan worth proposing
  FusionRules fusion;             // fusions that genomes may have
  bool library = true;            // schedules may call the target's library
  // All plans have the baseline's signature (signature.h): no schedule or genome of another is
  // measured. Signatures compare genomes of one graph, so this wants a space of one form.
  bool fixed_sums = false;
  // Recipes to try before the search's own candidates; those of one region in the order to be
  // tried. Give the same ones to the space of forms that should know them.
  std::vector<RegionRecipe> recipes = {};
};

struct KernelCandidate {
  int task;
  KernelChoice choice;  // in nodes of task(task).graph
};

struct PlanCandidate {
  int form;
  Fusion fusion;
  ScheduledGraph scheduled;
  double predicted = 1;  // time as a share of the baseline's, by the sum of its tasks
  Genome genome = {};    // over the form's graph, nothing packed
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_OPTIONS_H_
