// Values attached to e-classes: each class has an element of a semilattice that holds for all of
// its nodes (Willsey et al., egg, POPL 2021, section 4). Examples are shapes, bounds, constants and
// costs.
//
//   class Bounds : public TypedAnalysis<Interval> {
//     absl::StatusOr<Interval> Make(const EGraph& g, NodeId n) const override;  // from children
//     absl::StatusOr<DidMerge> Merge(Interval* into, const Interval& from) const override;
//   };
//   Bounds bounds;
//   EGraph graph(&language, &bounds);
//   bounds.Get(graph, c).low;
//
// An e-graph has one analysis; for several facts, use a value with several fields. An analysis
// belongs to one e-graph, must outlive it, and is used only from its thread.
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_ANALYSIS_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_ANALYSIS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/ids.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {

// The effect of a merge on its two sides.
struct DidMerge {
  bool into_changed = false;  // the result differs from the old `into`
  bool from_differs = false;  // the result differs from `from`
};

// The interface that the engine calls. Users derive from TypedAnalysis.
class Analysis {
 public:
  virtual ~Analysis() = default;

  // Sets the value of the new class `id`, which consists of `node` alone. An error refuses the
  // node.
  virtual absl::Status MakeClass(const EGraph& graph, NodeId node, ClassId id) = 0;
  // Merges the current value of `node` into that of its class `id`. Returns true if that changed
  // it.
  virtual absl::StatusOr<bool> Update(const EGraph& graph, NodeId node, ClassId id) = 0;
  // Merges the value of `from` into that of `into`, before the classes are united. An error refuses
  // the union and must leave both values unchanged.
  virtual absl::StatusOr<DidMerge> MergeClasses(ClassId into, ClassId from) = 0;
  // Called during Rebuild for each class that is new or whose value changed. May add nodes and
  // request unions (cause kAnalysis), as constant folding does. Must terminate by itself: limits
  // are checked only between rebuilds.
  virtual void Modify(EGraph* graph, ClassId id) {}
  // Returns OK if the value of `id` already includes that of `node`.
  virtual absl::Status CheckFixpoint(const EGraph& graph, NodeId node, ClassId id) const = 0;
  // Returns the bytes of the values, for the byte limit.
  virtual size_t Bytes() const = 0;
  // Returns text for DotText; empty to omit it.
  virtual std::string ValueText(const EGraph& graph, ClassId id) const { return ""; }
};

// Keeps one Data per class. Merge must be a semilattice join (associative, commutative,
// idempotent), and values must not grow for ever; otherwise Rebuild does not terminate.
template <typename Data>
class TypedAnalysis : public Analysis {
 public:
  // Returns the value of a class, given any of its ids; the default value if there is no such
  // class.
  const Data& Get(const EGraph& graph, ClassId id) const {
    static const Data* const kNothing = new Data();
    const ClassId root = graph.Find(id);
    return root.value < values_.size() ? values_[root.value] : *kNothing;
  }

  // Returns the value of `node` alone, computed from the values of its children.
  virtual absl::StatusOr<Data> Make(const EGraph& graph, NodeId node) const = 0;
  // Joins `from` into `into`. An error says why the two cannot be joined, and leaves `into`
  // unchanged.
  virtual absl::StatusOr<DidMerge> Merge(Data* into, const Data& from) const = 0;

  absl::Status MakeClass(const EGraph& graph, NodeId node, ClassId id) final {
    ASSIGN_OR_RETURN(Data value, Make(graph, node));
    if (values_.size() <= id.value) values_.resize(id.value + 1);
    values_[id.value] = std::move(value);
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Update(const EGraph& graph, NodeId node, ClassId id) final {
    const absl::StatusOr<Data> value = Make(graph, node);
    if (!value.ok()) return value.status();
    ASSIGN_OR_RETURN(const DidMerge did, Merge(&values_[id.value], *value));
    return did.into_changed;
  }

  absl::StatusOr<DidMerge> MergeClasses(ClassId into, ClassId from) final {
    const absl::StatusOr<DidMerge> did = Merge(&values_[into.value], values_[from.value]);
    if (did.ok()) values_[from.value] = Data();
    return did;
  }

  absl::Status CheckFixpoint(const EGraph& graph, NodeId node, ClassId id) const final {
    ASSIGN_OR_RETURN(const Data value, Make(graph, node));
    Data copy = values_[id.value];
    ASSIGN_OR_RETURN(const DidMerge did, Merge(&copy, value));
    if (!did.into_changed) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("class ", id.value, " lacks the data of node ", node.value));
  }

  // Counts only the values themselves; a Data that owns memory must override this.
  size_t Bytes() const override { return values_.capacity() * sizeof(Data); }

 private:
  std::vector<Data> values_;  // by ClassId; only representatives have values
};

// --- a merge of a common lattice, for the fields of a value ---

// Merges optionals that have only one possible value once known. `what` names it in the error.
template <typename Optional>
absl::StatusOr<DidMerge> MergeKnown(Optional* into, const Optional& from, const std::string& what) {
  if (*into && from && !(**into == *from)) {
    return absl::FailedPreconditionError(absl::StrCat(what, " differ"));
  }
  const DidMerge did{.into_changed = !*into && from, .from_differs = *into && !from};
  if (did.into_changed) *into = from;
  return did;
}

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_ANALYSIS_H_
