// Facts about every value in the e-graph: its type, whether it is a weight, whether all its
// elements are one number.
//
//   FactsAnalysis facts(&language, graph.dims);
//   egraph::EGraph terms(&language.operators(), &facts);
//   facts.Get(terms, c).type;                          // f32[b, 64]
//   if (facts.Uniform(terms, c) == 0.0) ...
//
// The analysis refuses nodes that the op table refuses, with the table's message, and unions of
// classes whose types differ (sizes are compared by normal form, never guessed). Facts only become
// stronger.
#ifndef ATHANOR_COMPILER_RULES_TERMS_FACTS_H_
#define ATHANOR_COMPILER_RULES_TERMS_FACTS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/egraph/graph/analysis.h"
#include "compiler/ir/graph/check.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/ops/value_facts.h"
#include "compiler/rules/terms/term_language.h"

namespace athanor {

struct Facts {
  TensorType type;
  // True if the value depends on parameters and constants only and no dim changes its shape, so
  // that it can be computed once per model.
  bool weight = false;
  // True for a weight as given, or a view of one: no rule computed it.
  bool stored = false;
  // Bounds on its numbers.
  ValueFacts values;
  // The scalar (of the type's dtype) that every element equals, if there are elements. Derived from
  // constants through views and elementwise ops.
  std::optional<Tensor> uniform;
  // True if equal terms gave two different scalars, as sums in different order do; then neither is
  // used.
  bool uniform_disputed = false;
  // The Input or Parameter that this value is; invalid for other values. Two different ones are
  // never united.
  egraph::PayloadId declared;

  bool operator==(const Facts&) const = default;
};

// Returns the largest number of terms per element of a sum or contraction; nullopt beyond 2^63; 1
// for other ops.
std::optional<int64_t> MostTerms(Op op, const Attrs& attrs, absl::Span<const TensorType> operands,
                                 const Bounds& bounds);

class FactsAnalysis : public egraph::TypedAnalysis<Facts> {
 public:
  // Borrows the language. `dims` are those of every graph in the e-graph.
  FactsAnalysis(const TermLanguage* language, std::vector<Dim> dims);
  ~FactsAnalysis() override;

  const std::vector<Dim>& dims() const { return dims_; }
  const Bounds& bounds() const { return bounds_; }

  const TensorType& Type(const egraph::EGraph& graph, egraph::ClassId id) const {
    return Get(graph, id).type;
  }
  // Returns the number that all elements equal, if it is known: floats and integers as double if
  // that is exact, bools as 0 and 1.
  std::optional<double> Uniform(const egraph::EGraph& graph, egraph::ClassId id) const;

  // Returns the type of a node over operands of these types. Errors are those of the op table,
  // prefixed with the op's name.
  absl::StatusOr<TensorType> Infer(Op op, egraph::PayloadId payload,
                                   absl::Span<const TensorType> operands) const;

  absl::StatusOr<Facts> Make(const egraph::EGraph& graph, egraph::NodeId node) const override;
  absl::StatusOr<egraph::DidMerge> Merge(Facts* into, const Facts& from) const override;
  size_t Bytes() const override;
  // Returns text such as "f32[b, 64] weight =0.5" or "f32[64] weight <=2^20".
  std::string ValueText(const egraph::EGraph& graph, egraph::ClassId id) const override;

 private:
  std::optional<Tensor> MakeUniform(const egraph::EGraph& graph, egraph::NodeId node,
                                    const TensorType& type) const;
  std::optional<Tensor> EvaluateUniform(const egraph::EGraph& graph, egraph::NodeId node,
                                        DType dtype) const;

  const TermLanguage& language_;
  const std::vector<Dim> dims_;
  const Bounds bounds_;
  const GraphLimits limits_;
  const NodeChecker checker_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_FACTS_H_
