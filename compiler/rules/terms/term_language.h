// The ops of the IR as the e-graph sees them: one operator per op, of the same name, with its
// attributes as payload.
//
//   TermLanguage language;
//   egraph::OpId add = ToOpId(Op::kAdd);
//   egraph::PayloadId p = language.Intern(Op::kSoftmax, {{"axis", int64_t{1}}});
//   language.attrs(p);                             // {axis=1}
//   "(Softmax[axis=1] (Mul ?x ?y))"                // patterns: payloads as the text form has them,
//   "(IndexMap[?map] (Constant[?value]))"          // or as variables
//
// Payloads are canonical (CanonicalAttrs), so equal attributes have one id: defaults written out,
// the letters of a contraction in order of appearance. A literal is known by its content, an Input
// or Parameter by its name, type and magnitude. Ops without attributes have no payload.
//
// Interning remembers and changes no meaning, so it is const. The same calls in the same order give
// the same ids. Not thread-safe: a language belongs to one e-graph, and to its thread.
#ifndef ATHANOR_COMPILER_RULES_TERMS_TERM_LANGUAGE_H_
#define ATHANOR_COMPILER_RULES_TERMS_TERM_LANGUAGE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/text.h"

namespace athanor {

inline egraph::OpId ToOpId(Op op) { return egraph::OpId{static_cast<uint32_t>(op)}; }
// REQUIRES: `op` is an operator of the language.
inline Op ToOp(egraph::OpId op) { return static_cast<Op>(op.value); }

class TermLanguage {
 public:
  TermLanguage();
  ~TermLanguage();
  TermLanguage(const TermLanguage&) = delete;
  TermLanguage& operator=(const TermLanguage&) = delete;

  const egraph::Language& operators() const { return operators_; }

  // The payload of a node of `op` with these attributes; an invalid id for ops that have none. That
  // the op takes them is checked when a node is made of it (FactsAnalysis::Make).
  // REQUIRES: `op` is no Input or Parameter.
  egraph::PayloadId Intern(Op op, const Attrs& attrs) const;
  // Of an Input or Parameter.
  egraph::PayloadId InternDeclaration(Op op, const Declaration& declaration) const;
  // Of any node; its name counts for Input and Parameter only.
  egraph::PayloadId Intern(const Node& node) const;

  // The attributes behind a payload; none for an invalid id. Valid as long as the language.
  const Attrs& attrs(egraph::PayloadId payload) const;
  // REQUIRES: the payload of an Input or Parameter.
  const Declaration& declaration(egraph::PayloadId payload) const;

  // Of the payloads.
  size_t Bytes() const;

 private:
  struct Payloads;

  std::unique_ptr<Payloads> payloads_;
  egraph::Language operators_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_TERM_LANGUAGE_H_
