#include "compiler/rules/saturate.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "compiler/egraph/stopwatch.h"
#include "compiler/ir/value/message.h"
#include "compiler/rules/terms/term_expansion.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using egraph::StopReason;

// Returns an e-graph rule that adds the row's expansion of each node of its op. It depends only on
// the node's attributes and the types of its operands.
egraph::RuleSpec DecompositionRule(const DecompositionRow& row, const TermLanguage& language,
                                   const FactsAnalysis& facts) {
  const OpRow& op = OpInfo(row.op);
  std::string pattern = Cat("?root = (", op.name, op.attrs.empty() ? "" : "[?attrs]");
  for (int i = 0; i < op.min_inputs; ++i) pattern += Cat(" ?x", i);
  if (op.max_inputs > op.min_inputs) pattern += " ?rest...";
  egraph::RuleSpec spec;
  spec.premises = {pattern + ")"};
  spec.apply = [&row, &op, &language, &facts](const egraph::Match& m, egraph::Rewriter* rewriter) {
    TermExpansion t(language, facts, rewriter);
    const egraph::ClassId root = m.Class("root");
    Node node{row.op, {}, {}, facts.Type(m.graph(), root), ""};
    if (!op.attrs.empty()) node.attrs = language.attrs(m.Payload("attrs"));
    for (int i = 0; i < op.min_inputs; ++i) {
      node.inputs.push_back(t.Operand(m.Class(Cat("x", i))));
    }
    for (const egraph::ClassId more : m.Rest("rest")) node.inputs.push_back(t.Operand(more));
    return t.Unite(row.expand(t.x(), node, node.inputs), root);
  };
  return spec;
}

absl::Status WrongRow(const RuleRow& row, const absl::Status& why) {
  return absl::InternalError(Cat("rule row ", row.name, ": ", std::string(why.message())));
}

egraph::NodeCost FewestOps(const egraph::EGraph& terms) {
  return [&terms](egraph::NodeId n) {
    const Op op = ToOp(terms.op(n));
    if (OpInfo(op).op_class == OpClass::kLeaf) return 0.0;
    return IsIndexMap(op) ? 0.1 : 1.0;
  };
}

// Returns the row's index in the registry; for rows that are not in it, the registry's size.
uint32_t TagOf(const RuleRow* row) {
  const absl::Span<const RuleRow> rows = RuleRows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (&rows[i] == row) return static_cast<uint32_t>(i);
  }
  return static_cast<uint32_t>(rows.size());
}

class Saturation {
 public:
  Saturation(TermGraph* terms, std::vector<egraph::Rule> rules,
             std::vector<const RuleRow*> recognitions, const SaturationOptions& options)
      : terms_(*terms),
        rules_(std::move(rules)),
        recognitions_(std::move(recognitions)),
        options_(options),
        runner_(&terms_.terms(), rules_,
                {.limits = options.limits,
                 .match_limit = options.match_limit,
                 .cancel = options.cancel}) {
    for (const egraph::Rule& rule : rules_) {
      report_.rules.push_back({.name = rule.name, .tag = rule.tag});
    }
    for (const RuleRow* row : recognitions_) {
      report_.rules.push_back({.name = std::string(row->name), .tag = TagOf(row)});
    }
  }

  absl::StatusOr<egraph::Report> Run() {
    egraph::Choice choice = terms_.Original();
    // A recognition looks at one extracted graph, not at the whole e-graph. So rules and
    // recognitions alternate until neither finds anything new.
    while (true) {
      ASSIGN_OR_RETURN(const bool found, Recognise(choice));
      if (runs_ > 0 && (recognitions_.empty() || !found)) break;
      if (!RunRules()) break;
      ASSIGN_OR_RETURN(choice, Cheapest());
    }
    return std::move(report_);
  }

 private:
  // Returns false if a limit was reached.
  bool RunRules() {
    egraph::Limits limits = options_.limits;
    limits.iterations -= report_.iterations.size();
    limits.time -= watch_.Elapsed();
    const egraph::Report run = runner_.Run(limits);
    ++runs_;
    report_.iterations.insert(report_.iterations.end(), run.iterations.begin(),
                              run.iterations.end());
    for (size_t i = 0; i < run.rules.size(); ++i) Accumulate(run.rules[i], &report_.rules[i]);
    report_.reason = run.reason;
    return run.reason == StopReason::kSaturated;
  }

  absl::StatusOr<egraph::Choice> Cheapest() const {
    const egraph::Extractor extractor(terms_.terms(),
                                      options_.cost ? options_.cost : FewestOps(terms_.terms()));
    return extractor.Extract(terms_.Roots());
  }

  // Applies the rows in order to the chosen graph, each to the result of the one before. Returns
  // true if a row found something new.
  absl::StatusOr<bool> Recognise(const egraph::Choice& choice) {
    if (recognitions_.empty()) return false;
    ASSIGN_OR_RETURN(TermGraph::Extracted at, terms_.ExtractWithClasses(choice));
    bool any = false;
    for (size_t i = 0; i < recognitions_.size(); ++i) {
      // The next run of the rules detects the stop and reports its reason.
      if (Stopped()) return true;
      const absl::StatusOr<bool> found = ApplyRow(i, &at);
      if (!found.ok()) return WrongRow(*recognitions_[i], found.status());
      any |= *found;
    }
    return any;
  }

  absl::StatusOr<bool> ApplyRow(size_t index, TermGraph::Extracted* at) {
    egraph::Stopwatch watch;
    egraph::RuleReport& report = report_.rules[rules_.size() + index];
    Recognition recognition;
    ASSIGN_OR_RETURN(Graph graph,
                     ApplyRecognition(at->graph, *recognitions_[index]->recognises, &recognition));
    watch.AddTo(&report.match_us);
    if (recognition.found.empty()) return false;
    // A node's successor in the new graph computes the same value, so it belongs to the node's
    // class.
    std::vector<TermGraph::Equality> equal;
    for (size_t n = 0; n < at->classes.size(); ++n) {
      if (at->classes[n].valid()) equal.emplace_back(recognition.at[n], at->classes[n]);
    }
    ASSIGN_OR_RETURN(
        TermGraph::Imported imported,
        terms_.Import(graph, equal, egraph::Cause{static_cast<uint32_t>(rules_.size() + index)}));
    report.matches += recognition.found.size();
    report.applied += recognition.found.size();
    report.nodes += imported.nodes;
    report.unions += imported.unions;
    report.refused += imported.refused;
    watch.AddTo(&report.apply_us);
    *at = {std::move(graph), std::move(imported.classes)};
    return imported.nodes + imported.unions > 0;
  }

  bool Stopped() const {
    return (options_.cancel && options_.cancel()) || watch_.Elapsed() > options_.limits.time;
  }

  TermGraph& terms_;
  const std::vector<egraph::Rule> rules_;
  const std::vector<const RuleRow*> recognitions_;
  const SaturationOptions& options_;
  const egraph::Stopwatch watch_;
  egraph::Runner runner_;
  int runs_ = 0;
  egraph::Report report_;
};

}  // namespace

absl::StatusOr<std::vector<egraph::Rule>> CompileRules(absl::Span<const RuleRow* const> rows,
                                                       const TermLanguage& language,
                                                       const FactsAnalysis& facts) {
  std::vector<egraph::Rule> rules;
  for (const RuleRow* row : rows) {
    std::vector<egraph::RuleSpec> specs;
    if (row->rewrites != nullptr) specs = row->rewrites(language, facts);
    if (row->decomposes != nullptr) {
      specs.push_back(DecompositionRule(*row->decomposes, language, facts));
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      if (i == 0 && specs[i].name.empty()) specs[i].name = std::string(row->name);
      specs[i].tag = TagOf(row);
      absl::StatusOr<egraph::Rule> rule =
          egraph::MakeRule(language.operators(), std::move(specs[i]));
      if (!rule.ok()) return WrongRow(*row, rule.status());
      rules.push_back(*std::move(rule));
    }
  }
  return rules;
}

absl::StatusOr<egraph::Report> SaturateWith(TermGraph* terms, absl::Span<const RuleRow* const> rows,
                                            const SaturationOptions& options) {
  ASSIGN_OR_RETURN(std::vector<egraph::Rule> rules,
                   CompileRules(rows, terms->language(), terms->facts()));
  std::vector<const RuleRow*> recognitions;
  for (const RuleRow* row : rows) {
    if (row->recognises != nullptr) recognitions.push_back(row);
  }
  return Saturation(terms, std::move(rules), std::move(recognitions), options).Run();
}

absl::StatusOr<egraph::Report> Saturate(TermGraph* terms, const RuleChoice& choice,
                                        const SaturationOptions& options) {
  std::vector<const RuleRow*> rows;
  for (const RuleRow& row : RuleRows()) {
    if (choice.Allows(row)) rows.push_back(&row);
  }
  return SaturateWith(terms, rows, options);
}

}  // namespace athanor
