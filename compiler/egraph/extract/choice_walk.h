// The walk behind every question about a choice: depth-first along chosen nodes, without recursion,
// as terms may be deep. What to do about a class without a usable node, or a cycle, is up to the
// derived class: report it, or repair the choice and go on.
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
  // The choice may change under the walk, but only for classes that a hook is called with.
  ChoiceWalk(const EGraph& graph, const Choice& choice)
      : graph_(graph), choice_(choice), marks_(graph.class_bound(), Mark::kNew) {}
  virtual ~ChoiceWalk() = default;

  absl::Status Visit(absl::Span<const ClassId> roots);
  // The classes met, children first.
  const std::vector<ClassId>& order() const { return order_; }

 protected:
  // Whether the chosen node of `id` is one of its nodes.
  virtual bool Usable(ClassId id) const;
  // `id` has no usable node. OK: it has one now.
  virtual absl::Status OnUnusable(ClassId id);
  // Each class of `cycle` chose the next, the last one the first. OK: the class whose node is
  // another one now.
  virtual absl::StatusOr<ClassId> OnCycle(const std::vector<ClassId>& cycle);

  const EGraph& graph_;
  const Choice& choice_;

 private:
  enum class Mark : uint8_t { kNew, kOnPath, kDone };
  struct Frame {
    ClassId id;
    size_t next;  // child to look at
  };

  absl::Status Enter(ClassId id);
  absl::Status CloseCycle(ClassId id);

  std::vector<Mark> marks_;
  std::vector<Frame> path_;
  std::vector<ClassId> order_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_EXTRACT_CHOICE_WALK_H_
