#include "compiler/egraph/extract/extract.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/egraph/extract/choice_walk.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

absl::Status NoTerm(ClassId id) {
  return absl::NotFoundError(absl::StrCat("class ", id.value,
                                          " has no term: each of its nodes needs itself or has "
                                          "infinite cost"));
}

}  // namespace

Extractor::Extractor(const EGraph& graph, const NodeCost& cost)
    : graph_(graph),
      costs_(graph.node_bound(), kInfinity),
      tree_(graph),
      tree_costs_(graph.class_bound(), kInfinity),
      ranks_(graph.class_bound(), kNone) {
  for (uint32_t i = 0; i < graph.node_bound(); ++i) {
    if (graph.alive(NodeId{i})) costs_[i] = cost(NodeId{i});
  }
  Settle();
}

void Extractor::Settle() {
  using Entry = std::tuple<double, NodeId>;  // tree cost through the node
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  // Per node: the number of distinct children not settled, and the sum of costs of settled
  // children, repeated ones counted each time.
  std::vector<uint32_t> missing(graph_.node_bound());
  std::vector<double> sums(graph_.node_bound());
  for (const ClassId id : graph_.Classes()) {
    for (const NodeId p : graph_.parents(id)) ++missing[p.value];
  }
  for (uint32_t i = 0; i < graph_.node_bound(); ++i) {
    sums[i] = costs_[i];
    if (missing[i] == 0 && costs_[i] < kInfinity) queue.push({costs_[i], NodeId{i}});
  }
  uint32_t settled = 0;
  while (!queue.empty()) {
    const auto [total, node] = queue.top();
    queue.pop();
    const ClassId id = graph_.class_of(node);
    if (ranks_[id.value] != kNone) continue;
    ranks_[id.value] = settled++;
    tree_costs_[id.value] = total;
    tree_.Set(id, node);
    for (const NodeId p : graph_.parents(id)) {
      for (const ClassId child : graph_.children(p)) {
        if (child == id) sums[p.value] += total;
      }
      if (--missing[p.value] == 0 && sums[p.value] < kInfinity) queue.push({sums[p.value], p});
    }
  }
}

absl::StatusOr<Choice> Extractor::Extract(absl::Span<const ClassId> roots) const {
  for (const ClassId root : roots) {
    if (!graph_.IsClass(root) || TreeRank(root) == kNone) return NoTerm(root);
  }
  Choice choice = tree_;
  RETURN_IF_ERROR(Refine(roots, &choice));
  return choice;
}

namespace {

// Repairs a choice with the nodes that the tree extraction settled on. Their children have lower
// ranks. So the class of lowest rank on a cycle uses another node, and once it follows the tree it
// lies on no cycle among the same classes: every class changes at most once.
class RepairWalk : public ChoiceWalk {
 public:
  RepairWalk(const EGraph& graph, const Extractor& extractor, Choice* choice)
      : ChoiceWalk(graph, *choice), extractor_(extractor), changing_(*choice) {}

  int num_changed() const { return num_changed_; }

 protected:
  bool Usable(ClassId id) const override {
    return ChoiceWalk::Usable(id) && extractor_.cost(choice_.Get(id)) < kInfinity;
  }
  absl::Status OnUnusable(ClassId id) override { return FollowTree(id); }
  absl::StatusOr<ClassId> OnCycle(const std::vector<ClassId>& cycle) override {
    const ClassId lowest = *std::min_element(
        cycle.begin(), cycle.end(),
        [this](ClassId a, ClassId b) { return extractor_.TreeRank(a) < extractor_.TreeRank(b); });
    RETURN_IF_ERROR(FollowTree(lowest));
    return lowest;
  }

 private:
  absl::Status FollowTree(ClassId id) {
    if (extractor_.TreeRank(id) == Extractor::kNone) return NoTerm(id);
    changing_.Set(id, extractor_.tree().Get(id));
    ++num_changed_;
    return absl::OkStatus();
  }

  const Extractor& extractor_;
  Choice& changing_;
  int num_changed_ = 0;
};

}  // namespace

absl::StatusOr<int> Extractor::EnforceAcyclic(absl::Span<const ClassId> roots,
                                              Choice* choice) const {
  choice->Resize(graph_);
  RepairWalk walk(graph_, *this, choice);
  RETURN_IF_ERROR(walk.Visit(roots));
  return walk.num_changed();
}

}  // namespace athanor::egraph
