// One region in an e-graph: what the rules make of it, and choices among that.
//
//   std::unique_ptr<RegionTerms> terms = *RegionTerms::Create(region, rules, options, costs);
//   for (const egraph::Choice& c : terms->Mutations(terms->Original(), 20)) {
//     Graph other = *terms->Extract(c);     // computes what the region does
//   }
//
// A choice is the region's part of a genome. All choices given out are programs: acyclic, and of
// nodes that have kernels. Deterministic unless the time limit stopped the saturation. Used by one
// thread at a time.
//
// Several RegionTerms may look at one e-graph, each with ends of its own: region_layouts.h does.
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

// An e-graph that is done, and how it went.
struct SaturatedTerms {
  // INTERNAL: a rule is wrong.
  static absl::StatusOr<std::shared_ptr<const SaturatedTerms>> Of(std::unique_ptr<TermGraph> terms,
                                                                  const RuleChoice& rules,
                                                                  const SaturationOptions& options);
  // Seconds, by e-node.
  std::vector<double> CostsOf(const NodeCosts& costs) const;

  std::unique_ptr<TermGraph> terms;
  egraph::Report report;
  double seconds = 0;  // that saturation took
};

class RegionTerms {
 public:
  // Saturates; a limit that is reached is no error, the report says which. INTERNAL: a rule is
  // wrong. Borrows nothing but `costs`, for the time of the call.
  static absl::StatusOr<std::unique_ptr<RegionTerms>> Create(const Graph& region,
                                                             const RuleChoice& rules,
                                                             const SaturationOptions& options,
                                                             const NodeCosts& costs);

  // Of an e-graph's graph only these outputs; each e-node costs what `costs` say, infinitely much
  // if it must not be chosen.
  static std::unique_ptr<RegionTerms> Over(std::shared_ptr<const SaturatedTerms> saturated,
                                           const std::vector<size_t>& outputs,
                                           std::vector<double> costs);

  const egraph::Report& report() const { return saturated_->report; }
  const egraph::EGraph& terms() const { return saturated_->terms->terms(); }
  const TermGraph& term_graph() const { return *saturated_->terms; }
  double seconds() const { return saturated_->seconds; }  // that saturation took

  // Whether there is a way to compute the region; without, choices have nodes without kernels.
  bool Computable() const;
  // The region as it was cut out. Composites without a kernel stand there as what is cheapest.
  const egraph::Choice& Original() const { return original_; }
  // The greedy extraction under `costs`, improved by mutations.
  const egraph::Choice& Cheapest() const { return cheapest_; }
  // Sum over the nodes, each once.
  double Cost(const egraph::Choice& choice) const;

  // Choices that have another node in one class, and in those classes that can make use of it for
  // less: what three contractions share is taken by all three. By cost, at most `limit`.
  std::vector<egraph::Choice> Mutations(const egraph::Choice& from, size_t limit) const;
  // Any node in any class.
  egraph::Choice Random(uint64_t seed) const;
  // The nodes of `form`, which has the Inputs, Parameters and dims of the region; nullopt where the
  // e-graph has not all of them as what the region computes. Of values that are one here, the first
  // stands for all.
  std::optional<egraph::Choice> ChoiceOf(const Graph& form) const;

  // With all outputs of the e-graph's graph, those that are no ends of this one too.
  absl::StatusOr<Graph> Extract(const egraph::Choice& choice) const {
    return saturated_->terms->Extract(choice);
  }
  // The rows that added what the choice has and the region had not.
  std::set<std::string> Rows(const egraph::Choice& choice) const;

 private:
  // A node that a class could have instead.
  struct Change {
    double gain;  // as far as it can be told without trying
    egraph::ClassId id;
    egraph::NodeId node;
  };

  RegionTerms() = default;
  void FindChoices();
  std::vector<egraph::ClassId> Order(const egraph::Choice& choice) const;
  bool IsUsable(egraph::NodeId n) const;
  std::vector<Change> Changes(const egraph::Choice& from) const;
  // What needs no class of `from` follows the cheapest tree.
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
