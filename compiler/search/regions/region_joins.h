// The layouts that values between regions may have, and which of them are the best together.
//
//   RegionJoins joins = *RegionJoins::Create(graph, regions, sources);
//   joins.variants()[0].stored;            // one region with its ends in a tuple of layouts
//   RegionJoins::Join best = joins.Best(costs, prices, 1)[0];
//   best.variants[3];                      // of the fourth region instance; -1: as it is
//
// A value gets layouts that an e-node of a region that makes or uses it would rather have, and
// those that these regions would then rather have of their other ends, a few steps far. Values that
// the graph takes or gives, weights, and values of rank below 2 stay as they are. Each distinct
// region has a variant for each tuple of its ends' layouts, at most a few; which instance takes
// which is found by dynamic programming over the chain of instances (layout_join.h). Equal
// instances share variants and prices, and may take different ones, as the first and the last of
// equal layers must.
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
  size_t tuples = 16;     // of one region
  size_t ways = 2;        // of one tuple
  size_t variants = 128;  // of all regions
  int rounds = 3;         // that what is wanted of one end leads to what is wanted of others
  JoinLimits limits;
};

class RegionJoins {
 public:
  // What is known of the regions; borrowed for the time of Create.
  struct Sources {
    // Distinct regions that may have variants, those that matter most first.
    std::vector<int> regions;
    // By distinct region; null where there is none.
    std::vector<const RegionTerms*> terms;
    // Null: there is no room or no time left.
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
    Graph stored;    // with the tuple's layouts: what a kernel's cost is asked of
    Graph as_it_is;  // with the region's ends, to be stitched: views of both sides of a cut cancel
    std::set<std::string> rows;
  };
  const std::vector<Variant>& variants() const { return variants_; }

  struct Join {
    std::vector<int> variants;  // by region instance; -1: as it is
    double cost;
  };
  // `as_it_is`: what an instance of each distinct region costs without; `prices`: each variant. At
  // most `count`, cheapest first, of those that cost less than no change.
  std::vector<Join> Best(const std::vector<double>& as_it_is, const std::vector<double>& prices,
                         size_t count) const;
  // Where values cross otherwise than as they are: "r0.y1[1,0]x5", the second result of five
  // instances of the first region; comma between several.
  std::string About(const std::vector<int>& variants) const;

  // Any layouts for all values, any e-nodes in regions; nullopt for instances that have no
  // variants. The graphs have the regions' ends. For tests.
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
  // Of each value, and of each distinct region's ends.
  std::vector<std::vector<BoundaryLayout>> layouts_;
  std::vector<PortLayouts> wanted_, ports_;
  std::vector<std::unique_ptr<LayoutTerms>> terms_;  // by distinct region
  std::vector<Variant> variants_;
  std::vector<std::pair<std::vector<int>, std::vector<int>>> ids_;  // of variants' layouts
  std::map<BoundaryLayout, int> layout_ids_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_JOINS_H_
