// Functions on choices: order, cycles, cost, term.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/egraph/extract/choice_walk.h"
#include "compiler/egraph/extract/extract.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {

absl::Status ChoiceWalk::Visit(absl::Span<const ClassId> roots) {
  for (const ClassId root : roots) {
    if (!graph_.IsClass(root)) {
      return absl::InvalidArgumentError(
          absl::StrCat("root ", root.value, " is not a class of this e-graph"));
    }
    absl::Status status = Enter(graph_.Find(root));
    while (status.ok() && !path_.empty()) {
      Frame& frame = path_.back();
      const auto children = graph_.children(choice_.Get(frame.id));
      if (frame.next < children.size()) {
        status = Enter(children[frame.next++]);
        continue;
      }
      marks_[frame.id.value] = Mark::kDone;
      order_.push_back(frame.id);
      path_.pop_back();
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ChoiceWalk::Enter(ClassId id) {
  if (marks_[id.value] == Mark::kDone) return absl::OkStatus();
  if (marks_[id.value] == Mark::kOnPath) return CloseCycle(id);
  if (!Usable(id)) {
    RETURN_IF_ERROR(OnUnusable(id));
  }
  marks_[id.value] = Mark::kOnPath;
  path_.push_back({id, 0});
  return absl::OkStatus();
}

// Returns to the class that changed. Finished classes stay finished, because none of them leads to
// the path.
absl::Status ChoiceWalk::CloseCycle(ClassId id) {
  size_t first = path_.size() - 1;
  while (path_[first].id != id) --first;
  std::vector<ClassId> cycle;
  for (size_t i = first; i < path_.size(); ++i) cycle.push_back(path_[i].id);
  ASSIGN_OR_RETURN(const ClassId changed, OnCycle(cycle));
  while (path_.back().id != changed) {
    marks_[path_.back().id.value] = Mark::kNew;
    path_.pop_back();
  }
  path_.back().next = 0;
  return absl::OkStatus();
}

bool ChoiceWalk::Usable(ClassId id) const {
  const NodeId n = choice_.Get(id);
  return n.value < graph_.node_bound() && graph_.alive(n) && graph_.class_of(n) == id;
}

absl::Status ChoiceWalk::OnUnusable(ClassId id) {
  const NodeId n = choice_.Get(id);
  return absl::FailedPreconditionError(
      n.valid()
          ? absl::StrCat("class ", id.value, ": the chosen node ", n.value, " is not in this class")
          : absl::StrCat("class ", id.value, ": no node is chosen"));
}

absl::StatusOr<ClassId> ChoiceWalk::OnCycle(const std::vector<ClassId>& cycle) {
  std::string text = "the choice has a cycle:";
  for (const ClassId id : cycle) {
    absl::StrAppend(&text, " c", id.value, " = ", graph_.NodeText(choice_.Get(id)), ",");
  }
  return absl::FailedPreconditionError(absl::StrCat(text, " c", cycle.front().value));
}

absl::StatusOr<std::vector<ClassId>> ChosenOrder(const EGraph& graph, const Choice& choice,
                                                 absl::Span<const ClassId> roots) {
  ChoiceWalk walk(graph, choice);
  RETURN_IF_ERROR(walk.Visit(roots));
  return walk.order();
}

absl::Status CheckChoice(const EGraph& graph, const Choice& choice,
                         absl::Span<const ClassId> roots) {
  return ChosenOrder(graph, choice, roots).status();
}

absl::StatusOr<Term> ChoiceTerm(const EGraph& graph, const Choice& choice, ClassId root) {
  ASSIGN_OR_RETURN(const std::vector<ClassId> order, ChosenOrder(graph, choice, {root}));
  std::vector<uint32_t> places(graph.class_bound());
  Term term;
  for (const ClassId id : order) {
    const NodeId n = choice.Get(id);
    TermNode node{graph.op(n), graph.payload(n), {}};
    for (const ClassId child : graph.children(n)) node.children.push_back(places[child.value]);
    places[id.value] = static_cast<uint32_t>(term.nodes.size());
    term.nodes.push_back(std::move(node));
  }
  return term;
}

absl::StatusOr<double> ChoiceCost(const EGraph& graph, const Choice& choice,
                                  absl::Span<const ClassId> roots, const NodeCost& cost) {
  ASSIGN_OR_RETURN(const std::vector<ClassId> order, ChosenOrder(graph, choice, roots));
  double sum = 0;
  for (const ClassId id : order) sum += cost(choice.Get(id));
  return sum;
}

}  // namespace athanor::egraph
