// Terms, which are added to an e-graph and extracted from it, as values and as text.
//
//   absl::StatusOr<Term> term = ParseTerm(language, "(* (+ a b) (+ a b))");
//   absl::StatusOr<ClassId> c = AddTerm(&graph, *term);
//   TermText(language, *term);
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_TERM_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_TERM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/egraph/graph/sexpr.h"

namespace athanor::egraph {

struct TermNode {
  OpId op;
  PayloadId payload;
  std::vector<uint32_t> children;  // indexes of earlier nodes
  bool operator==(const TermNode&) const = default;
};

// A DAG, children before parents; the last node is its root. A parsed term is a tree; an extracted
// one keeps shared parts shared.
struct Term {
  std::vector<TermNode> nodes;
  bool operator==(const Term&) const = default;
};

// INVALID_ARGUMENT names what the language lacks, or what is malformed.
absl::StatusOr<Term> ParseTerm(const Language& language, const std::string& text);

// Returns the term as a tree, so shared parts are repeated; ends in "..." after `max_chars`.
std::string TermText(const Language& language, const Term& term, size_t max_chars = 100000);

// Adds the term and returns its class. Errors are those of EGraph::Add.
absl::StatusOr<ClassId> AddTerm(EGraph* graph, const Term& term, Cause cause = Cause::kUser);

// Returns the term's class without adding; an invalid id if the e-graph lacks the term. REQUIRES:
// clean().
ClassId LookupTerm(const EGraph& graph, const Term& term);

// The operator of an expression's head; for a literal, with its payload. A payload in brackets is
// left to the caller, because in patterns it may be a variable.
struct Head {
  OpId op;
  PayloadId payload;
};
absl::StatusOr<Head> ParseHead(const Language& language, const Sexpr& sexpr);
absl::StatusOr<PayloadId> ParsePayload(const Language& language, OpId op, const std::string& text);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_TERM_H_
