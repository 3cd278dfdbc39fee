// A region in an e-graph: the ways to compute it that the rules found, and choices among them.
//
//   std::unique_ptr<RegionTerms> terms = *RegionTerms::Create(region, rules, options, costs);
//   for (const egraph::Choice& c : terms->Mutations(terms->Original(), 20)) {
//     Graph other = *terms->Extract(c);     // computes what the region does
//   }
//
// A choice is the region's part of a genome. All returned choices are programs: acyclic, and of
// nodes that have kernels. Deterministic unless the time limit stopped the saturation. Used by one
// thread at a time.
//
// Several RegionTerms may share one e-graph, each with its own ends, as in region_layouts.h.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_TERMS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_TERMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/egraph/extract/extract.h"
#include "compiler/egraph/report.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/saturate.h"
#include "compiler/rules/terms/term_graph.h"
#include "compiler/search/regions/region_cost.h"

namespace athanor {

// A saturated e-graph and its report.
struct SaturatedTerms {
  // Saturates `terms`. INTERNAL: a rule is wrong.
  static absl::StatusOr<std::shared_ptr<const SaturatedTerms>> Of(std::unique_ptr<TermGraph> terms,
                                                                  const RuleChoice& rules,
                                                                  const SaturationOptions& options);
  // Returns the seconds of each e-node.
  std::vector<double> CostsOf(const NodeCosts& costs) const;

  std::unique_ptr<TermGraph> terms;
  egraph::Report report;
  double seconds = 0;  // taken by saturation
};

class RegionTerms {
 public:
  // Saturates the region. A limit that is reached is no error; the report says which. INTERNAL: a
  // rule is wrong. Borrows only `costs`, for the time of the call.
  static absl::StatusOr<std::unique_ptr<RegionTerms>> Create(const Graph& region,
                                                             const RuleChoice& rules,
                                                             const SaturationOptions& options,
                                                             const NodeCosts& costs);

  // Looks at only these outputs of an e-graph's graph. `costs`: by e-node, infinite if it must not
  // be chosen.
  static std::unique_ptr<RegionTerms> Over(std::shared_ptr<const SaturatedTerms> saturated,
                                           const std::vector<size_t>& outputs,
                                           std::vector<double> costs);

  const egraph::Report& report() const { return saturated_->report; }
  const egraph::EGraph& terms() const { return saturated_->terms->terms(); }
  const TermGraph& term_graph() const { return *saturated_->terms; }
  double seconds() const { return saturated_->seconds; }  // taken by saturation

  // Reports whether the region can be computed. If not, choices have nodes without kernels.
  bool Computable() const;
  // Returns the region as it was cut out, with the cheapest equivalent of each composite that has
  // no kernel.
  const egraph::Choice& Original() const { return original_; }
  // Returns the greedy extraction under `costs`, improved by mutations.
  const egraph::Choice& Cheapest() const { return cheapest_; }
  // Returns the sum over the nodes, each once.
  double Cost(const egraph::Choice& choice) const;

  // Returns at most `limit` choices, cheapest first, that have another node in one class, and in
  // those classes that become cheaper with it: if three contractions can share a node, all three
  // do.
  std::vector<egraph::Choice> Mutations(const egraph::Choice& from, size_t limit) const;
  // Returns a choice with random nodes in random classes.
  egraph::Choice Random(uint64_t seed) const;
  // Returns the choice of the nodes of `form`, which has the Inputs, Parameters and dims of the
  // region; nullopt unless the e-graph has all of them as a way to compute the region. If several
  // values of `form` are equal here, the first stands for all.
  std::optional<egraph::Choice> ChoiceOf(const Graph& form) const;

  // Extracts all outputs of the e-graph's graph, also those that are no ends of this one.
  absl::StatusOr<Graph> Extract(const egraph::Choice& choice) const {
    return saturated_->terms->Extract(choice);
  }
  // Returns the rule rows that added the nodes which the choice has and the region had not.
  std::set<std::string> Rows(const egraph::Choice& choice) const;

 private:
  // Another node that a class could take.
  struct Change {
    double gain;  // estimated, without applying it
    egraph::ClassId id;
    egraph::NodeId node;
  };

  RegionTerms() = default;
  void FindChoices();
  std::vector<egraph::ClassId> Order(const egraph::Choice& choice) const;
  bool IsUsable(egraph::NodeId n) const;
  std::vector<Change> Changes(const egraph::Choice& from) const;
  // Returns `from` with the cheapest tree in all classes that it does not need.
  egraph::Choice Completed(const egraph::Choice& from) const;
  std::optional<egraph::Choice> Apply(const egraph::Choice& from, const Change& change) const;
  void TakeWhatIsThere(egraph::ClassId changed, egraph::Choice* choice) const;

  std::shared_ptr<const SaturatedTerms> saturated_;
  std::vector<egraph::ClassId> roots_;
  std::vector<double> costs_;  // by node
  std::unique_ptr<egraph::Extractor> extractor_;
  egraph::Choice original_, cheapest_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_TERMS_H_
