// Options and limits of a space of forms.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_FORMS_OPTIONS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_FORMS_OPTIONS_H_

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/saturate.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/regions/recipe.h"
#include "compiler/search/regions/region_cuts.h"
#include "compiler/search/regions/region_joins.h"

namespace athanor {

struct RegionFormsOptions {
  std::vector<SizePoint> sizes;  // of the search; not empty
  Machine machine;
  RuleChoice rules;
  CutOptions cut;
  // Limits of one region.
  egraph::Limits limits = {
      .iterations = 30, .nodes = 20'000, .bytes = size_t{200} << 20, .time = absl::Seconds(1)};
  // For all regions together; a region that is not reached in time keeps its form.
  absl::Duration time = absl::Seconds(10);
  // Part of `time` that boundary layouts may take; they come last.
  absl::Duration join_time = absl::Seconds(2);
  size_t bytes = size_t{1} << 30;
  int max_joins = 4;  // pairs of regions tried as one
  // Per call of Neighbours: regions looked at (the most expensive), choices of each that GraphCost
  // is asked about, forms returned.
  int max_regions = 24;
  int choices_per_region = 12;
  int max_neighbours = 16;
  size_t max_joined = 2;  // of these forms: the best joins over boundary layouts
  // Over the life of the space: forms, and the nodes of all of them, about half a kilobyte each.
  int max_forms = 512;
  size_t max_form_nodes = 500'000;
  JoinOptions join;
  std::vector<RegionRecipe> recipes = {};  // recipes of one region are tried in this order
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_FORMS_OPTIONS_H_
