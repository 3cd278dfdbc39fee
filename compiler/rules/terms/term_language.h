// The ops of the IR as operators of the e-graph: one operator per op, of the same name, with its
// attributes as payload.
//
//   TermLanguage language;
//   egraph::OpId add = ToOpId(Op::kAdd);
//   egraph::PayloadId p = language.Intern(Op::kSoftmax, {{"axis", int64_t{1}}});
//   language.attrs(p);                             // {axis=1}
//   "(Softmax[axis=1] (Mul ?x ?y))"                // patterns: payloads as the text form has them,
//   "(IndexMap[?map] (Constant[?value]))"          // or as variables
//
// Payloads are canonical (CanonicalAttrs), so equal attributes have one id: defaults are written
// out, and a contraction's letters are in order of appearance. A literal is identified by its
// content; an Input or Parameter by its name, type and magnitude. Ops without attributes have no
// payload.
//
// Interning only adds ids and changes no meaning, so it is const. The same calls in the same order
// give the same ids. Not thread-safe: a language belongs to one e-graph and is used by its thread.
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

  // Returns the payload of a node of `op` with these attributes; an invalid id for ops without
  // attributes. FactsAnalysis::Make checks that the op accepts them, when a node is made. REQUIRES:
  // `op` is no Input or Parameter.
  egraph::PayloadId Intern(Op op, const Attrs& attrs) const;
  // Returns the payload of an Input or Parameter.
  egraph::PayloadId InternDeclaration(Op op, const Declaration& declaration) const;
  // Returns the payload of any node. The name matters only for Input and Parameter.
  egraph::PayloadId Intern(const Node& node) const;

  // Returns the attributes of a payload; empty for an invalid id. Valid as long as the language.
  const Attrs& attrs(egraph::PayloadId payload) const;
  // REQUIRES: `payload` is that of an Input or Parameter.
  const Declaration& declaration(egraph::PayloadId payload) const;

  // Returns the bytes that the payloads use.
  size_t Bytes() const;

 private:
  struct Payloads;

  std::unique_ptr<Payloads> payloads_;
  egraph::Language operators_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_TERM_LANGUAGE_H_
