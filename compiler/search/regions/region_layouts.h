// A region that reads and writes some of its boundary values with their axes in another order.
//
//   BoundaryLayout swapped{{1, 0}};                   // of a value [m, n]: stored as [n, m]
//   auto terms = *LayoutTerms::Create(region, {.inputs = {{swapped}}, .outputs = {{}}}, ...);
//   LayoutTerms::Way way = terms->Ways({.inputs = {swapped}, .outputs = {{}}}, 1)[0];
//   way.stored;                                       // its Input "x0" is [n, m]
//   Graph same = AsItIs(way.stored, region, tuple);   // with the region's Inputs and outputs
//
// An input may be read from two leaves that are known to be equal: the value, and a view of the
// stored tensor. An output has a twin, the view that is stored. All are in one e-graph, so the
// rules that move views find cheaper ways to compute the region for other layouts of its ends. The
// tuple of layouts is chosen when a choice is extracted.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_LAYOUTS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_LAYOUTS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/saturate.h"
#include "compiler/rules/terms/term_graph.h"
#include "compiler/search/regions/region_cost.h"
#include "compiler/search/regions/region_terms.h"

namespace athanor {

// Layout of a value that crosses from region to region. To add a kind that is no order of axes, add
// a field here and its meaning to StoredMap and ValueMap.
struct BoundaryLayout {
  std::vector<int> axes;  // axis i as stored is axis axes[i] of the value; empty: as it is

  bool as_it_is() const { return axes.empty(); }
  auto operator<=>(const BoundaryLayout&) const = default;
  bool operator==(const BoundaryLayout&) const = default;
};

std::string LayoutText(const BoundaryLayout& layout);  // "[1,0]"
// StoredMap returns the view of a value of this shape that is stored, ValueMap the view of the
// stored tensor that is the value. REQUIRES: layout.axes is an order of the shape's axes, or empty.
IndexMap StoredMap(const Shape& shape, const BoundaryLayout& layout);
IndexMap ValueMap(const Shape& shape, const BoundaryLayout& layout);

// Layouts that a region's ports may have besides "as it is", by its Inputs and outputs.
struct PortLayouts {
  std::vector<std::vector<BoundaryLayout>> inputs, outputs;
  bool empty() const;
  bool operator==(const PortLayouts&) const = default;
};

// A layout for each port.
struct LayoutTuple {
  std::vector<BoundaryLayout> inputs, outputs;
  bool operator==(const LayoutTuple&) const = default;
};

// Returns at most `limit` tuples, from none to all ports changed, in the order of the ports. The
// first changes nothing. If not all fit, the last changes every port that may change.
std::vector<LayoutTuple> TuplesOf(const PortLayouts& layouts, size_t limit);

// Returns the layouts that e-nodes prefer: for inputs that are read through a view that reorders
// their axes, or by a contraction along the wrong axis; for outputs that are such a view of what is
// computed. `region` is the graph that `terms` began with, whatever was appended to it. At most two
// for each port.
PortLayouts WantedLayouts(const TermGraph& terms, const Graph& region);

// Returns `stored`, which has the tuple's layouts, with the Inputs and outputs of `region`.
Graph AsItIs(const Graph& stored, const Graph& region, const LayoutTuple& tuple);

// Used by one thread at a time.
class LayoutTerms {
 public:
  // Saturates, like RegionTerms. Borrows nothing.
  static absl::StatusOr<std::unique_ptr<LayoutTerms>> Create(const Graph& region,
                                                             const PortLayouts& layouts,
                                                             const RuleChoice& rules,
                                                             const SaturationOptions& options,
                                                             const NodeCosts& costs);

  struct Way {
    Graph stored;  // Inputs and outputs named and ordered as the region's, in the tuple's layouts
    std::set<std::string> rows;  // rule rows that led to it
    double seconds;              // by NodeCosts
  };
  // Returns the cheapest extraction and, cheapest first, choices that differ from it in one class;
  // fewer than `limit` if there are no more, none if the region cannot be computed so. REQUIRES:
  // the tuple is one of `layouts`.
  std::vector<Way> Ways(const LayoutTuple& tuple, size_t limit) const;
  // Returns a random choice of e-nodes; NOT_FOUND if the region cannot be computed so.
  absl::StatusOr<Graph> Random(const LayoutTuple& tuple, uint64_t seed) const;
  PortLayouts Wanted() const { return WantedLayouts(*saturated_->terms, region_); }

  const PortLayouts& layouts() const { return layouts_; }
  size_t Bytes() const { return saturated_->terms->terms().Bytes(); }

 private:
  LayoutTerms(const Graph& region, const PortLayouts& layouts)
      : region_(region), layouts_(layouts) {}

  Graph WithEnds() const;
  absl::Status UniteLeaves(TermGraph* terms) const;
  std::unique_ptr<RegionTerms> Under(const LayoutTuple& tuple) const;
  absl::StatusOr<Graph> Stored(const RegionTerms& terms, const egraph::Choice& choice,
                               const LayoutTuple& tuple) const;
  std::string LeafName(size_t input, const BoundaryLayout& layout) const;
  size_t OutputAt(size_t output, const BoundaryLayout& layout) const;

  const Graph region_;
  const PortLayouts layouts_;
  std::shared_ptr<const SaturatedTerms> saturated_;
  std::vector<double> costs_;                           // by e-node
  std::vector<std::pair<std::string, size_t>> leaves_;  // names and e-nodes of Inputs
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_LAYOUTS_H_
