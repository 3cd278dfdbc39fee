#include "compiler/egraph/graph/class_lists.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor::egraph {
namespace {

// Orders nodes by operator, then by id.
auto ByOp(const NodeTable& nodes) {
  return [&nodes](NodeId a, NodeId b) {
    return std::pair(nodes[a].op, a) < std::pair(nodes[b].op, b);
  };
}

bool Alive(const NodeTable& nodes, NodeId n) { return nodes[n].state != ENode::State::kDead; }

}  // namespace

absl::Span<const NodeId> ClassLists::WithOp(absl::Span<const NodeId> sorted, OpId op,
                                            const NodeTable& nodes) {
  constexpr size_t kShort = 8;
  const auto before = [&](NodeId n, OpId o) { return nodes[n].op < o; };
  const auto after = [&](OpId o, NodeId n) { return o < nodes[n].op; };
  auto first = sorted.begin();
  if (sorted.size() > kShort) {
    first = std::lower_bound(first, sorted.end(), op, before);
    return {first, static_cast<size_t>(std::upper_bound(first, sorted.end(), op, after) - first)};
  }
  while (first != sorted.end() && before(*first, op)) ++first;
  auto last = first;
  while (last != sorted.end() && !after(op, *last)) ++last;
  return {first, static_cast<size_t>(last - first)};
}

size_t ClassLists::Bytes() const { return lists_.capacity() * sizeof(Lists) + pool_.Bytes(); }

void ClassLists::AddClass(NodeId n) { pool_.PushBack(&lists_.emplace_back().nodes, n); }

void ClassLists::AddParent(ClassId id, NodeId n) {
  pool_.PushBack(&lists_[id.value].parents, n);
  MarkUntidy(id);
}

void ClassLists::Merge(ClassId winner, ClassId loser) {
  Lists& to = lists_[winner.value];
  Lists& from = lists_[loser.value];
  pool_.Append(&to.nodes, &from.nodes);
  pool_.Append(&to.parents, &from.parents);
  MarkUntidy(winner);
}

void ClassLists::MarkUntidy(ClassId id) {
  if (lists_[id.value].untidy) return;
  lists_[id.value].untidy = true;
  untidy_.push_back(id);
}

void ClassLists::Tidy(const NodeTable& nodes, const UnionFind& sets) {
  const auto by_op = ByOp(nodes);
  for (const ClassId id : untidy_) {
    Lists& lists = lists_[id.value];
    lists.untidy = false;
    if (sets.Find(id) != id) continue;
    for (List* list : {&lists.nodes, &lists.parents}) {
      const absl::Span<NodeId> items = pool_.GetMutable(*list);
      const auto live_end =
          std::remove_if(items.begin(), items.end(), [&](NodeId n) { return !Alive(nodes, n); });
      if (!std::is_sorted(items.begin(), live_end, by_op)) {
        std::sort(items.begin(), live_end, by_op);
      }
      pool_.Truncate(list, std::unique(items.begin(), live_end) - items.begin());
    }
  }
  untidy_.clear();
}

absl::Status ClassLists::Verify(const NodeTable& nodes, const UnionFind& sets) const {
  std::vector<std::vector<NodeId>> members(lists_.size()), parents(lists_.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const NodeId n{i};
    if (!Alive(nodes, n)) continue;
    members[sets.Find(nodes[n].cls).value].push_back(n);
    for (const ClassId child : nodes.children(n)) parents[child.value].push_back(n);
  }
  for (uint32_t i = 0; i < lists_.size(); ++i) {
    for (auto* list : {&members[i], &parents[i]}) {
      std::sort(list->begin(), list->end(), ByOp(nodes));
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    const auto broken = [i](const char* what) {
      return absl::InternalError(absl::StrCat("class ", i, ": ", what));
    };
    const ClassId id{i};
    if (this->nodes(id) != absl::MakeConstSpan(members[i])) {
      return broken("its list of nodes is wrong");
    }
    if (this->parents(id) != absl::MakeConstSpan(parents[i])) {
      return broken("its list of parents is wrong");
    }
    if ((sets.Find(id) == id) == members[i].empty()) {
      return broken("a class has nodes, an id that was united has none");
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor::egraph
