#include "compiler/egraph/match/match.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace athanor::egraph {
namespace {

// Plans with the same beginning share their first steps. Node 0 is the root and has no step.
struct TrieNode {
  const JoinStep* step = nullptr;
  std::vector<uint32_t> next;
  struct Leaf {
    uint32_t request;
    const Plan* plan;
  };
  std::vector<Leaf> leaves;
  std::vector<uint32_t> requests;  // requests with a leaf here or below
  size_t open = 0;                 // number of these that are within their limit
  uint64_t work = 0;
};

class Walker {
 public:
  Walker(const EGraph& graph, absl::Span<const MatchRequest> requests, uint32_t since,
         bool reads_values, const MatchOptions& options, std::vector<MatchList>* lists)
      : graph_(graph),
        requests_(requests),
        since_(since),
        reads_values_(reads_values),
        options_(options),
        lists_(*lists),
        trie_(1) {}

  void AddRequest(uint32_t request) {
    const Query& query = *requests_[request].query;
    const size_t atoms = query.atoms().size();
    if (since_ > 0) {
      for (size_t first = 0; first < atoms; ++first) {
        if (AnyNew(query.atoms()[first].op)) AddPlan(request, query.delta_plan(first));
      }
      return;
    }
    size_t rarest = 0;
    for (size_t i = 1; i < atoms; ++i) {
      const auto rows = [&](size_t a) { return graph_.NumNodesOf(query.atoms()[a].op); };
      if (rows(i) < rows(rarest)) rarest = i;
    }
    AddPlan(request, query.full_plan(rarest));
  }

  // Returns false if it was stopped.
  bool Run() {
    const auto begin = std::chrono::steady_clock::now();
    for (const uint32_t next : trie_[0].next) Walk(next);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    DivideWork(time.count());
    return !stopped_;
  }

 private:
  bool IsNew(NodeId n) const {
    return graph_.stamp(n) > since_ || (reads_values_ && graph_.value_stamp(n) > since_);
  }

  bool AnyNew(OpId op) const {
    const auto ends_new = [this](absl::Span<const EGraph::Change> changes) {
      return !changes.empty() && changes.back().stamp > since_;
    };
    return ends_new(graph_.changes(op)) || (reads_values_ && ends_new(graph_.value_changes(op)));
  }

  void AddPlan(uint32_t request, const Plan& plan) {
    uint32_t at = 0;
    uint32_t registers = 0;
    for (const JoinStep& step : plan.steps) {
      Enter(at, request);
      at = Child(at, step);
    }
    Enter(at, request);
    trie_[at].leaves.push_back({request, &plan});
    for (const uint32_t reg : plan.registers) registers = std::max(registers, reg + 1);
    if (registers_.size() < registers) registers_.resize(registers);
  }

  void Enter(uint32_t at, uint32_t request) {
    TrieNode& node = trie_[at];
    if (!node.requests.empty() && node.requests.back() == request) return;
    node.requests.push_back(request);
    ++node.open;
  }

  uint32_t Child(uint32_t at, const JoinStep& step) {
    for (const uint32_t next : trie_[at].next) {
      if (trie_[next].step->SameAs(step)) return next;
    }
    trie_[at].next.push_back(static_cast<uint32_t>(trie_.size()));
    trie_.push_back({.step = &step});
    return trie_[at].next.back();
  }

  bool Done(const TrieNode& node) const { return stopped_ || node.open == 0; }

  void CountWork(TrieNode& node) {
    constexpr uint64_t kWorkPerQuestion = 4096;
    ++node.work;
    if (++work_ % kWorkPerQuestion == 0 && options_.stop && options_.stop(MatchBytes())) {
      stopped_ = true;
    }
  }

  size_t MatchBytes() const {
    size_t bytes = 0;
    for (const MatchList& list : lists_) bytes += list.Bytes();
    return bytes;
  }

  void Walk(uint32_t at) {
    TrieNode& node = trie_[at];
    if (Done(node)) return;
    const JoinStep& step = *node.step;
    if (step.condition) {
      CountWork(node);
      if (Holds(step)) Descend(node);
    } else if (step.window == Window::kNew) {
      WalkNew(node);
    } else {
      WalkRows(node);
    }
  }

  void Descend(const TrieNode& node) {
    for (const TrieNode::Leaf& leaf : node.leaves) Emit(leaf);
    for (const uint32_t next : node.next) Walk(next);
  }

  bool Holds(const JoinStep& step) const {
    absl::InlinedVector<uint32_t, 16> values;
    for (const uint32_t reg : step.condition_regs) values.push_back(registers_[reg]);
    return step.condition->Holds(Match(&graph_, &step.condition_variables, values));
  }

  void TryRow(TrieNode& node, NodeId n) {
    CountWork(node);
    const JoinStep& step = *node.step;
    if (step.window == Window::kOld && IsNew(n)) return;
    if (Bind(step, n)) Descend(node);
  }

  // Walks the new rows of an operator: first the later entries of its changes that still count,
  // then the rows with a new value and an old stamp.
  void WalkNew(TrieNode& node) {
    const OpId op = node.step->op;
    const auto later = [this](absl::Span<const EGraph::Change> changes) {
      const auto is_old = [this](const EGraph::Change& c) { return c.stamp <= since_; };
      return std::partition_point(changes.begin(), changes.end(), is_old);
    };
    const auto changes = graph_.changes(op);
    for (auto c = later(changes); c != changes.end() && !Done(node); ++c) {
      if (graph_.alive(c->node) && graph_.stamp(c->node) == c->stamp) TryRow(node, c->node);
    }
    if (!reads_values_) return;
    const auto values = graph_.value_changes(op);
    for (auto c = later(values); c != values.end() && !Done(node); ++c) {
      const NodeId n = c->node;
      const bool counts = graph_.alive(n) && graph_.value_stamp(n) == c->stamp;
      if (counts && graph_.stamp(n) <= since_) TryRow(node, n);
    }
  }

  void WalkRows(TrieNode& node) {
    const JoinStep& step = *node.step;
    if (const auto row = OnlyRow(step)) {
      if (row->valid()) TryRow(node, *row);
      return;
    }
    if (const auto rows = ShortestList(step)) {
      for (const NodeId n : *rows) {
        if (Done(node)) return;
        TryRow(node, n);
      }
      return;
    }
    for (const EGraph::Change& c : graph_.changes(step.op)) {
      if (Done(node)) return;
      if (graph_.alive(c.node) && graph_.stamp(c.node) == c.stamp) TryRow(node, c.node);
    }
  }

  // Returns the only possible row, if everything but the root is known; otherwise nullopt.
  std::optional<NodeId> OnlyRow(const JoinStep& step) const {
    const bool payload_known =
        !step.has_payload_column || step.payload_column.use == Column::Use::kKey;
    if (step.has_rest || !payload_known) return std::nullopt;
    absl::InlinedVector<ClassId, 8> children;
    for (const Column& column : step.children) {
      if (column.use != Column::Use::kKey) return std::nullopt;
      children.push_back(ClassId{registers_[column.reg]});
    }
    const PayloadId payload =
        step.has_payload_column ? PayloadId{registers_[step.payload_column.reg]} : step.payload;
    return graph_.LookupNode(step.op, payload, children);
  }

  // Returns the shortest list by a known class; nullopt if no class is known.
  std::optional<absl::Span<const NodeId>> ShortestList(const JoinStep& step) const {
    std::optional<absl::Span<const NodeId>> shortest;
    const auto offer = [&](absl::Span<const NodeId> list) {
      if (!shortest || list.size() < shortest->size()) shortest = list;
    };
    if (step.root.use == Column::Use::kKey) {
      offer(graph_.NodesOf(ClassId{registers_[step.root.reg]}, step.op));
    }
    for (const Column& column : step.children) {
      if (column.use != Column::Use::kKey) continue;
      offer(graph_.ParentsOf(ClassId{registers_[column.reg]}, step.op));
    }
    return shortest;
  }

  // Compares the row with the known values and writes its other values to registers.
  bool Bind(const JoinStep& step, NodeId n) {
    const absl::Span<const ClassId> children = graph_.children(n);
    const size_t fixed = step.children.size();
    if (step.has_rest ? children.size() < fixed : children.size() != fixed) return false;
    if (step.payload.valid() && graph_.payload(n) != step.payload) return false;
    if (step.has_payload_column && !Meet(step.payload_column, graph_.payload(n).value)) {
      return false;
    }
    if (!Meet(step.root, graph_.class_of(n).value)) return false;
    for (size_t i = 0; i < fixed; ++i) {
      if (!Meet(step.children[i], children[i].value)) return false;
    }
    if (step.has_rest) registers_[step.rest_reg] = n.value;
    return true;
  }

  bool Meet(const Column& column, uint32_t value) {
    if (column.use != Column::Use::kBind) return registers_[column.reg] == value;
    registers_[column.reg] = value;
    return true;
  }

  void Emit(const TrieNode::Leaf& leaf) {
    MatchList& list = lists_[leaf.request];
    if (list.over_limit) return;
    if (list.size() >= requests_[leaf.request].limit) {
      list.over_limit = true;
      list.values = {};
      for (TrieNode& node : trie_) {
        const auto& users = node.requests;
        if (std::find(users.begin(), users.end(), leaf.request) != users.end()) --node.open;
      }
      return;
    }
    for (const uint32_t reg : leaf.plan->registers) list.values.push_back(registers_[reg]);
  }

  void DivideWork(double microseconds) {
    for (const TrieNode& node : trie_) {
      const double share =
          static_cast<double>(node.work) / std::max<size_t>(1, node.requests.size());
      for (const uint32_t request : node.requests) {
        lists_[request].work += share;
        if (work_ > 0) lists_[request].microseconds += microseconds * share / work_;
      }
    }
  }

  const EGraph& graph_;
  const absl::Span<const MatchRequest> requests_;
  const uint32_t since_;
  const bool reads_values_;
  const MatchOptions& options_;
  std::vector<MatchList>& lists_;
  std::vector<TrieNode> trie_;
  std::vector<uint32_t> registers_;
  uint64_t work_ = 0;
  bool stopped_ = false;
};

}  // namespace

MatchOutcome FindMatches(const EGraph& graph, absl::Span<const MatchRequest> requests,
                         const MatchOptions& options) {
  MatchOutcome outcome;
  outcome.lists.resize(requests.size());
  // Walks once per group of requests with the same new rows; for requests since the beginning, all
  // rows are new.
  std::map<std::vector<uint32_t>, std::vector<uint32_t>> groups;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    const MatchRequest& r = requests[i];
    outcome.lists[i].num_variables = r.query->variables().size();
    groups[{options.share ? 0 : i, r.since, r.since > 0 && r.reads_values}].push_back(i);
  }
  for (const auto& [key, members] : groups) {
    Walker walker(graph, requests, key[1], key[2] != 0, options, &outcome.lists);
    for (const uint32_t request : members) walker.AddRequest(request);
    if (walker.Run()) continue;
    outcome.stopped = true;
    break;
  }
  return outcome;
}

}  // namespace athanor::egraph
