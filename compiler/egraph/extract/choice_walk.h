// Walks along the chosen nodes of a choice, depth-first and without recursion, since terms may be
// deep. All functions on choices use it. For a class without a usable node, and for a cycle, the
// derived class decides: it reports an error, or repairs the choice and goes on.
#ifndef ATHANOR_COMPILER_EGRAPH_EXTRACT_CHOICE_WALK_H_
#define ATHANOR_COMPILER_EGRAPH_EXTRACT_CHOICE_WALK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/extract/extract.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/ids.h"

namespace athanor::egraph {

class ChoiceWalk {
 public:
  // The choice may change during the walk, but only for classes that a hook is called with.
  ChoiceWalk(const EGraph& graph, const Choice& choice)
      : graph_(graph), choice_(choice), marks_(graph.class_bound(), Mark::kNew) {}
  virtual ~ChoiceWalk() = default;

  absl::Status Visit(absl::Span<const ClassId> roots);
  // Returns the visited classes, children first.
  const std::vector<ClassId>& order() const { return order_; }

 protected:
  // Reports whether the chosen node of `id` is one of its nodes.
  virtual bool Usable(ClassId id) const;
  // Called if `id` has no usable node. Returns OK if it has one now.
  virtual absl::Status OnUnusable(ClassId id);
  // Called if each class of `cycle` chose the next one, and the last chose the first. Returns the
  // class whose node was changed.
  virtual absl::StatusOr<ClassId> OnCycle(const std::vector<ClassId>& cycle);

  const EGraph& graph_;
  const Choice& choice_;

 private:
  enum class Mark : uint8_t { kNew, kOnPath, kDone };
  struct Frame {
    ClassId id;
    size_t next;  // next child to visit
  };

  absl::Status Enter(ClassId id);
  absl::Status CloseCycle(ClassId id);

  std::vector<Mark> marks_;
  std::vector<Frame> path_;
  std::vector<ClassId> order_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_EXTRACT_CHOICE_WALK_H_
