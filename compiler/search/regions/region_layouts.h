// A region that reads and writes some of its boundary values with their axes in another order.
//
//   BoundaryLayout swapped{{1, 0}};                   // of a value [m, n]: stored as [n, m]
//   auto terms = *LayoutTerms::Create(region, {.inputs = {{swapped}}, .outputs = {{}}}, ...);
//   LayoutTerms::Way way = terms->Ways({.inputs = {swapped}, .outputs = {{}}}, 1)[0];
//   way.stored;                                       // its Input "x0" is [n, m]
//   Graph same = AsItIs(way.stored, region, tuple);   // with the region's Inputs and outputs
//
// An input may be read from two leaves that are known to hold the same: the value, and a view of
// what is stored. An output has a twin, the view that is stored. All are in one e-graph, so the
// rules that move views find what a region computes more cheaply when its ends lie otherwise; which
// ends there are is said when a choice is extracted.
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

// How a value lies where it crosses from region to region. To add a kind that is no order of axes:
// a field here, and what it means in StoredMap and ValueMap.
struct BoundaryLayout {
  std::vector<int> axes;  // axis i of what is stored is axis axes[i] of the value; empty: as it is

  bool as_it_is() const { return axes.empty(); }
  auto operator<=>(const BoundaryLayout&) const = default;
  bool operator==(const BoundaryLayout&) const = default;
};

std::string LayoutText(const BoundaryLayout& layout);  // "[1,0]"
// The view of a value of this shape that is stored, and the view of what is stored that is the
// value. REQUIRES: layout.axes is an order of the shape's axes, or empty.
IndexMap StoredMap(const Shape& shape, const BoundaryLayout& layout);
IndexMap ValueMap(const Shape& shape, const BoundaryLayout& layout);

// Layouts that ports of a region may have besides as they are, by its Inputs and outputs.
struct PortLayouts {
  std::vector<std::vector<BoundaryLayout>> inputs, outputs;
  bool empty() const;
  bool operator==(const PortLayouts&) const = default;
};

// One layout for each port.
struct LayoutTuple {
  std::vector<BoundaryLayout> inputs, outputs;
  bool operator==(const LayoutTuple&) const = default;
};

// At most `limit`: of no port changed to all, in the order of the ports. The first changes nothing,
// the last, if not all are given, every port that may be.
std::vector<LayoutTuple> TuplesOf(const PortLayouts& layouts, size_t limit);

// What e-nodes would rather have: inputs that are read through a view that reorders their axes, or
// by a contraction along the wrong axis; outputs that are such a view of what is computed. `region`
// is what `terms` began with, whatever was appended to it. At most two for each port.
PortLayouts WantedLayouts(const TermGraph& terms, const Graph& region);

// `stored`, which has the tuple's layouts, as a graph that has the Inputs and outputs of `region`.
Graph AsItIs(const Graph& stored, const Graph& region, const LayoutTuple& tuple);

// Used by one thread at a time.
class LayoutTerms {
 public:
  // Saturates, as RegionTerms does. Borrows nothing.
  static absl::StatusOr<std::unique_ptr<LayoutTerms>> Create(const Graph& region,
                                                             const PortLayouts& layouts,
                                                             const RuleChoice& rules,
                                                             const SaturationOptions& options,
                                                             const NodeCosts& costs);

  struct Way {
    Graph stored;  // Inputs and outputs named and ordered as the region's, in the tuple's layouts
    std::set<std::string> rows;  // that led to it
    double seconds;              // by NodeCosts
  };
  // The cheapest extraction and, cheapest first, what differs from it in one class; fewer than
  // `limit` if there are no more, none if there is no way. REQUIRES: the tuple is of `layouts`.
  std::vector<Way> Ways(const LayoutTuple& tuple, size_t limit) const;
  // Any node in any class.
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
