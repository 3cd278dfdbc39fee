// Refines a choice by DAG cost: local search with reference counts, which price a change by exactly
// the classes that it adds and frees.
#include <utility>

#include "compiler/egraph/extract/choice_walk.h"
#include "compiler/egraph/extract/extract.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

class Refiner {
 public:
  Refiner(const EGraph& graph, const Extractor& extractor, Choice* choice)
      : graph_(graph),
        extractor_(extractor),
        choice_(*choice),
        users_(graph.class_bound()),
        places_(graph.class_bound(), kNowhere),
        seen_(graph.class_bound()) {}

  absl::Status Start(absl::Span<const ClassId> roots) {
    roots_.assign(roots.begin(), roots.end());
    RETURN_IF_ERROR(FindOrder());
    for (const ClassId id : graph_.Classes()) {
      if (places_[id.value] == kNowhere) choice_.Set(id, extractor_.tree().Get(id));
    }
    for (const ClassId root : roots_) Acquire(graph_.Find(root));
    return absl::OkStatus();
  }

  // Visits the classes from the roots down. Returns true if any class changed.
  bool Pass() {
    bool changed = false;
    const std::vector<ClassId> order = order_;
    for (size_t i = order.size(); i-- > 0;) {
      const bool has_others = graph_.nodes(order[i]).size() > 1;
      if (has_others && users_[order[i].value] > 0 && Improve(order[i])) changed = true;
    }
    return changed;
  }

 private:
  static constexpr uint32_t kNowhere = ~uint32_t{0};

  // Computes the order and positions of the currently needed classes.
  absl::Status FindOrder() {
    ASSIGN_OR_RETURN(std::vector<ClassId> order, ChosenOrder(graph_, choice_, roots_));
    for (const ClassId id : order_) places_[id.value] = kNowhere;
    order_ = std::move(order);
    for (size_t i = 0; i < order_.size(); ++i) {
      places_[order_[i].value] = static_cast<uint32_t>(i);
    }
    return absl::OkStatus();
  }

  double Cost(ClassId id) const { return extractor_.cost(choice_.Get(id)); }

  // Adds a user to `id` and returns the additional cost.
  double Acquire(ClassId id) {
    double cost = 0;
    work_ = {id};
    while (!work_.empty()) {
      const ClassId next = work_.back();
      work_.pop_back();
      if (users_[next.value]++ > 0) continue;
      cost += Cost(next);
      for (const ClassId child : graph_.children(choice_.Get(next))) work_.push_back(child);
    }
    return cost;
  }

  // Removes a user from `id` and returns the saved cost.
  double Release(ClassId id) {
    double cost = 0;
    work_ = {id};
    while (!work_.empty()) {
      const ClassId next = work_.back();
      work_.pop_back();
      if (--users_[next.value] > 0) continue;
      cost += Cost(next);
      for (const ClassId child : graph_.children(choice_.Get(next))) work_.push_back(child);
    }
    return cost;
  }

  double AcquireChildren(NodeId n) {
    double cost = 0;
    for (const ClassId child : graph_.children(n)) cost += Acquire(child);
    return cost;
  }
  double ReleaseChildren(NodeId n) {
    double cost = 0;
    for (const ClassId child : graph_.children(n)) cost += Release(child);
    return cost;
  }

  // Releases the children of the current node, prices each node without them, and takes the
  // cheapest.
  bool Improve(ClassId id) {
    const NodeId current = choice_.Get(id);
    const double now = extractor_.cost(current) + ReleaseChildren(current);
    NodeId best = current;
    double least = now;
    for (const NodeId n : graph_.nodes(id)) {
      if (n == current || extractor_.cost(n) >= least || LeadsTo(n, id)) continue;
      const double cost = extractor_.cost(n) + AcquireChildren(n);
      ReleaseChildren(n);
      // Sums in another order differ by rounding, which is no gain.
      if (cost >= least - 1e-9 * now) continue;
      best = n;
      least = cost;
    }
    choice_.Set(id, best);
    AcquireChildren(best);
    return best != current && FindOrder().ok();
  }

  // Reports whether `n` depends on `id` or on a class without a chosen node. The whole choice is
  // acyclic, also for classes that are not needed, and this check keeps it so.
  bool LeadsTo(NodeId n, ClassId id) {
    ++walk_;
    work_.assign(graph_.children(n).begin(), graph_.children(n).end());
    while (!work_.empty()) {
      const ClassId next = work_.back();
      work_.pop_back();
      if (next == id || !choice_.Get(next).valid()) return true;
      // Classes earlier in the order depend on none that come later.
      const bool earlier =
          places_[next.value] != kNowhere && places_[next.value] < places_[id.value];
      if (earlier || seen_[next.value] == walk_) continue;
      seen_[next.value] = walk_;
      for (const ClassId child : graph_.children(choice_.Get(next))) work_.push_back(child);
    }
    return false;
  }

  const EGraph& graph_;
  const Extractor& extractor_;
  Choice& choice_;
  std::vector<ClassId> roots_;
  std::vector<uint32_t> users_;   // by class: number of chosen nodes and roots that need it
  std::vector<ClassId> order_;    // needed classes, children first
  std::vector<uint32_t> places_;  // by class: index in the order
  std::vector<uint32_t> seen_;    // by class: the last walk that visited it
  uint32_t walk_ = 0;
  std::vector<ClassId> work_;
};

}  // namespace

absl::Status Extractor::Refine(absl::Span<const ClassId> roots, Choice* choice,
                               int max_passes) const {
  choice->Resize(graph_);
  Refiner refiner(graph_, *this, choice);
  RETURN_IF_ERROR(refiner.Start(roots));
  for (int pass = 0; pass < max_passes && refiner.Pass(); ++pass) {
  }
  return absl::OkStatus();
}

}  // namespace athanor::egraph
