// Grows the e-graph of a graph by the rules until no rule adds anything or a limit is reached.
//
//   absl::StatusOr<egraph::Report> report =
//       Saturate(terms.get(), {.disabled = {"layout"}}, {.limits = {.time = absl::Seconds(1)}});
//   report->reason;                                          // why it stopped
//   RuleRows()[report->rules[0].tag].name;                   // the row of a rule
//   report->rules[static_cast<uint32_t>(terms->terms().added_by(n))];   // the rule that added n
//
// E-graph rules and decomposition rows run in the engine's Runner. Recognition rows look far along
// a term, so they run between its runs, on graphs extracted from the e-graph: first the original,
// then the cheapest, until they find nothing new. Their matches are imported and united node by
// node.
//
// The rule numbers in `added_by` are those of the last call for this TermGraph; nodes of an earlier
// call keep their own numbers. So call Saturate once per graph.
//
// Deterministic, unless the time limit or `cancel` stops it.
#ifndef ATHANOR_COMPILER_RULES_SATURATE_H_
#define ATHANOR_COMPILER_RULES_SATURATE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/extract/extract.h"
#include "compiler/egraph/match/rule.h"
#include "compiler/egraph/report.h"
#include "compiler/egraph/runner.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/terms/term_graph.h"

namespace athanor {

struct SaturationOptions {
  // Limits over all runs; bytes include the payloads.
  egraph::Limits limits;
  // Number of matches of one rule in one iteration, above which it is banned for a while.
  uint64_t match_limit = 1000;
  // Called every few thousand rows and between recognition rows; true stops with kCancelled.
  std::function<bool()> cancel;
  // Cost that selects the cheapest graph for recognition; nullptr: number of ops, with views at a
  // tenth.
  egraph::NodeCost cost;
};

// Saturates with the rows that `choice` allows. The report has one entry per rule (several for a
// row with several rules), then one per recognition row, whose matches are the nodes it found;
// `tag` is the row's index in RuleRows(). INTERNAL: a row is wrong.
absl::StatusOr<egraph::Report> Saturate(TermGraph* terms, const RuleChoice& choice,
                                        const SaturationOptions& options);
// Saturates with these rows; switches among them do nothing. A row that is not in the registry gets
// the registry's size as its tag.
absl::StatusOr<egraph::Report> SaturateWith(TermGraph* terms, absl::Span<const RuleRow* const> rows,
                                            const SaturationOptions& options);

// Returns the e-graph rules of rewriting and decomposition rows, tagged by the rows' indexes; other
// rows have none. INTERNAL names the row that is wrong. The rules borrow the language and the
// facts.
absl::StatusOr<std::vector<egraph::Rule>> CompileRules(absl::Span<const RuleRow* const> rows,
                                                       const TermLanguage& language,
                                                       const FactsAnalysis& facts);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_SATURATE_H_
