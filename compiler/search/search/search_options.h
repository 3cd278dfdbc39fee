// What a search is asked for, and what it asks for.
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

// How far a search goes.
enum class SearchMode : uint8_t {
  kFast,     // forms, fusions and schedules as the cost model has them; a few plans are measured
  kBudget,   // until nothing left promises a gain
  kExhaust,  // until all schedules and all changes within reach were measured
};

struct SearchOptions {
  // At which sizes everything is measured; each counts the same. Not empty.
  std::vector<SizePoint> sizes;
  uint64_t seed = 1;
  SearchMode mode = SearchMode::kBudget;
  int64_t max_kernels = 1 << 20;  // measured candidates, failed ones included
  int batch = 4;                  // kernels asked for at once
  double least_gain = 0.02;       // of the whole time, that makes a plan worth proposing
  FusionRules fusion;             // what genomes may fuse
  bool library = true;            // schedules may call the target's library
  // Tried before what the search makes up itself; of one region in the order to be tried. A space
  // of forms that is to know them is given the same.
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
  Genome genome = {};    // of the form's graph, nothing packed
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_OPTIONS_H_
