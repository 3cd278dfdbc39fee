// Saturates the distinct regions of a graph within limits for all of them together, the most
// expensive first, and makes one region of two where that pays.
//
//   RegionSolver solver(&options, &costs);
//   absl::StatusOr<RegionSolver::Solutions> terms = solver.Solve(graph, &regions);
//   (*terms)[regions.distinct[0].key];   // null: no memory or time was left for it
//
// Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_SOLVER_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_SOLVER_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compiler/egraph/stopwatch.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/rules/saturate.h"
#include "compiler/search/regions/region.h"
#include "compiler/search/regions/region_cost.h"
#include "compiler/search/regions/region_forms_options.h"
#include "compiler/search/regions/region_terms.h"

namespace athanor {

class RegionSolver {
 public:
  using Solutions = std::map<std::string, std::shared_ptr<RegionTerms>>;  // by the region's key

  // Borrows both. The time of all regions runs from now on.
  RegionSolver(const RegionFormsOptions* options, const NodeCosts* costs);

  // Saturates the regions and joins adjacent ones where one e-graph knows a cheaper way than two.
  // `regions` are those of `graph`, and receive the joined ones. Call once. INTERNAL: a rule is
  // wrong.
  absl::StatusOr<Solutions> Solve(const Graph& graph, Regions* regions);

  // Returns the limits left until `end`, counted as Elapsed; nullopt if no time or memory is left.
  std::optional<SaturationOptions> Left(absl::Duration end) const;
  absl::Duration Elapsed() const { return watch_.Elapsed(); }
  // Counts memory that another e-graph of the space takes.
  void AddBytes(size_t bytes) { bytes_ += bytes; }

 private:
  absl::StatusOr<std::shared_ptr<RegionTerms>> TermsOf(const Region& region);
  absl::Status SaturateAll(const Regions& regions);
  std::vector<std::pair<int, int>> PairsInRow(const Regions& regions) const;
  absl::Status JoinWherePays(const Graph& graph, Regions* regions);

  const RegionFormsOptions& options_;
  const NodeCosts& costs_;
  const egraph::Stopwatch watch_;
  Solutions known_;
  size_t bytes_ = 0;
};

// Returns the predicted seconds of a graph whose nodes each have a kernel.
double SecondsOf(const Graph& graph, const NodeCosts& costs);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_SOLVER_H_
