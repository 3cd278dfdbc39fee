// What is known of every value in the e-graph: its type, whether it is a weight, whether all its
// elements are one number.
//
//   FactsAnalysis facts(&language, graph.dims);
//   egraph::EGraph terms(&language.operators(), &facts);
//   facts.Get(terms, c).type;                          // f32[b, 64]
//   if (facts.Uniform(terms, c) == 0.0) ...
//
// Nodes that the op table refuses are refused here, with its message; so is a union of classes
// whose types are not equal (sizes by normal form, never by guess). Facts only ever gain.
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
  // It depends on parameters and constants only, and no dim changes its shape: it can be computed
  // once per model.
  bool weight = false;
  // A weight as it was given, or a view of one: no rule computed it.
  bool stored = false;
  // What its numbers never are.
  ValueFacts values;
  // Every element is this scalar (rank 0, of the type's dtype), as far as there are elements. Found
  // from constants through views and elementwise ops.
  std::optional<Tensor> uniform;
  // Equal terms gave two such numbers, as sums in different order do: nobody may say which.
  bool uniform_disputed = false;
  // The Input or Parameter that this value is, invalid for others. Two of them are never one.
  egraph::PayloadId declared;

  bool operator==(const Facts&) const = default;
};

// How many terms each element of a sum or contraction has at most; nullopt beyond 2^63. 1 of
// others.
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
  // The number that all elements are, where it is known: floats and integers as double where that
  // loses nothing, bools as 0 and 1.
  std::optional<double> Uniform(const egraph::EGraph& graph, egraph::ClassId id) const;

  // The type of a node over operands of these types; errors are those of the op table, with the
  // op's name before them.
  absl::StatusOr<TensorType> Infer(Op op, egraph::PayloadId payload,
                                   absl::Span<const TensorType> operands) const;

  absl::StatusOr<Facts> Make(const egraph::EGraph& graph, egraph::NodeId node) const override;
  absl::StatusOr<egraph::DidMerge> Merge(Facts* into, const Facts& from) const override;
  size_t Bytes() const override;
  // "f32[b, 64] weight =0.5", "f32[64] weight <=2^20"
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
