// The layouts that values between regions may have, and the best combinations of them.
//
//   RegionJoins joins = *RegionJoins::Create(graph, regions, sources);
//   joins.variants()[0].stored;            // one region with its ends in a tuple of layouts
//   RegionJoins::Join best = joins.Best(costs, prices, 1)[0];
//   best.variants[3];                      // of the fourth region instance; -1: as it is
//
// A value may have the layouts that an e-node of a region making or using it prefers, and those
// that these regions then prefer at their other ends, a few steps far. Values that the graph takes
// or returns, weights, and values of rank below 2 stay as they are. Each distinct region has a
// variant for each tuple of its ends' layouts, up to a limit. Dynamic programming over the chain of
// instances (layout_join.h) finds which instance takes which variant. Equal instances share
// variants and prices and may take different ones, as the first and the last of equal layers must.
//
// Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_JOINS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_JOINS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/regions/layout_join.h"
#include "compiler/search/regions/region.h"
#include "compiler/search/regions/region_layouts.h"
#include "compiler/search/regions/region_terms.h"

namespace athanor {

struct JoinOptions {
  size_t tuples = 16;     // per region
  size_t ways = 2;        // per tuple
  size_t variants = 128;  // for all regions
  int rounds = 3;         // times that layouts wanted at one end spread to other ends
  JoinLimits limits;
};

class RegionJoins {
 public:
  // Knowledge about the regions; borrowed for the time of Create.
  struct Sources {
    // Distinct regions that may have variants, most important first.
    std::vector<int> regions;
    // By distinct region; null if it has no e-graph.
    std::vector<const RegionTerms*> terms;
    // Saturates a region with these layouts; null if no memory or time is left.
    std::function<absl::StatusOr<std::unique_ptr<LayoutTerms>>(int region, const PortLayouts&)>
        make;
    std::function<bool()> has_time;
  };
  static absl::StatusOr<std::unique_ptr<RegionJoins>> Create(const Graph& graph,
                                                             const Regions& regions,
                                                             const Sources& sources,
                                                             const JoinOptions& options);

  struct Variant {
    int region;
    LayoutTuple tuple;
    Graph stored;  // with the tuple's layouts; kernels are priced on this graph
    // with the region's own ends, for stitching: views on both sides of a cut cancel
    Graph as_it_is;
    std::set<std::string> rows;
  };
  const std::vector<Variant>& variants() const { return variants_; }

  struct Join {
    std::vector<int> variants;  // by region instance; -1: as it is
    double cost;
  };
  // Returns at most `count` joins, cheapest first, that cost less than no change. `as_it_is`: cost
  // of an unchanged instance of each distinct region; `prices`: cost of each variant.
  std::vector<Join> Best(const std::vector<double>& as_it_is, const std::vector<double>& prices,
                         size_t count) const;
  // Describes where values cross in other layouts: "r0.y1[1,0]x5" is the second result of five
  // instances of the first region. Entries are separated by commas.
  std::string About(const std::vector<int>& variants) const;

  // Returns graphs with random layouts for all values and random e-nodes in regions, for tests;
  // nullopt for instances that have no variants. The graphs have the regions' own ends.
  absl::StatusOr<std::vector<std::optional<Graph>>> Random(uint64_t seed) const;

 private:
  RegionJoins(const Regions& regions, JoinOptions options) : regions_(regions), options_(options) {}
  void FindValues(const Graph& graph, const Sources& sources);
  bool Spread();
  absl::Status Solve(const Sources& sources);
  void AddVariants(int region, const RegionTerms& as_cut, const Sources& sources);
  int LayoutId(const BoundaryLayout& layout);

  const Regions& regions_;
  const JoinOptions options_;
  std::vector<LayoutStep> steps_;  // by instance
  // layouts_: of each value; wanted_, ports_: of each distinct region's ends.
  std::vector<std::vector<BoundaryLayout>> layouts_;
  std::vector<PortLayouts> wanted_, ports_;
  std::vector<std::unique_ptr<LayoutTerms>> terms_;  // by distinct region
  std::vector<Variant> variants_;
  // layout ids of each variant's inputs and outputs
  std::vector<std::pair<std::vector<int>, std::vector<int>>> ids_;
  std::map<BoundaryLayout, int> layout_ids_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_JOINS_H_
