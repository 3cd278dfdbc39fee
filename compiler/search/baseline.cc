#include "compiler/search/baseline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/access.h"
#include "compiler/search/contract_schedule.h"

namespace athanor {

std::vector<bool> MemoryOf(const Graph& graph, const Genome& genome) {
  std::vector<bool> memory(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    memory[n] = node.op == Op::kInput || node.op == Op::kParameter ||
                (node.op == Op::kConstant && GetAttr<Tensor>(node.attrs, "value").elements() != 1);
  }
  for (const KernelChoice& k : genome.kernels) memory[k.root] = true;
  return memory;
}

namespace {

// Lowering recurses through a kernel's nodes, and Clang's time grows with them.
constexpr int kMaxKernelNodes = 200;

// What a kernel's root has gathered so far.
struct Group {
  int nodes = 0;
  NodeId anchor = -1;
  bool row = false;      // reductions over the root's last axis
  bool inline_ = false;  // other reductions, computed where they are met
  bool point = false;    // of those, one runs along its operand's last axis
  bool has_reduction() const { return row || inline_; }
};

class Baseline {
 public:
  Baseline(Graph* graph, const v1::Target& target, bool epilogues)
      : graph_(*graph), target_(target), epilogues_(epilogues), bounds_(graph->DimBounds()) {}
  Genome Choose();

 private:
  void FindUsers();
  void Visit(NodeId n);
  void MakeRoot(NodeId n);
  bool CanInline(NodeId n);
  // A view that a contraction reads with a division per element: worth memory of its own, best as
  // the epilogue of what it views.
  bool NeedsDivision(NodeId n) const;
  bool CanInlineReduction(NodeId n, NodeId root);
  bool CanInlineAnchor(NodeId n, NodeId root);
  // Counts `n` into its kernels; false if one has enough nodes already.
  bool HasRoom(NodeId n);
  KernelChoice ChoiceOf(NodeId root);
  // The root's coordinates as symbols "x0", ..., known to `bounds`.
  std::vector<Expr> RootSymbols(NodeId root, Bounds& bounds) const;

  const Node& node(NodeId n) const { return graph_.nodes[n]; }
  // Movement that costs nothing where it is read.
  bool IsView(NodeId n) const {
    return (node(n).op == Op::kIndexMap && !node(n).attrs.contains("fill")) ||
           node(n).op == Op::kConstant || node(n).op == Op::kIota;
  }

  Graph& graph_;
  const v1::Target& target_;
  const bool epilogues_;
  Bounds bounds_;
  std::vector<bool> memory_, is_weight_, is_output_, views_only_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::set<NodeId>> groups_;  // roots whose kernels compute the node
  std::map<NodeId, Group> roots_;
  std::map<NodeId, ContractSchedule> contracts_;
};

void Baseline::FindUsers() {
  const size_t count = graph_.nodes.size();
  memory_ = MemoryOf(graph_, {});
  users_.resize(count);
  groups_.resize(count);
  is_output_.resize(count);
  views_only_.resize(count);
  is_weight_.resize(count);
  for (size_t n = 0; n < count; ++n) {
    const Node& node = graph_.nodes[n];
    is_weight_[n] = node.op != Op::kInput &&
                    std::all_of(node.type.shape.begin(), node.type.shape.end(),
                                [](const Expr& e) { return e.constant().has_value(); });
    for (NodeId i : node.inputs) {
      users_[i].push_back(static_cast<NodeId>(n));
      if (!is_weight_[i]) is_weight_[n] = false;
    }
  }
  for (const Output& o : graph_.outputs) is_output_[o.node] = true;
}

std::vector<Expr> Baseline::RootSymbols(NodeId root, Bounds& bounds) const {
  std::vector<Expr> at;
  const Shape& shape = node(root).type.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    std::string name = absl::StrCat("x", i);
    bounds.SetExtent(name, shape[i]);
    at.push_back(shape[i].IsConstant(1) ? Expr(0) : Expr::Symbol(name));
  }
  return at;
}

void Baseline::MakeRoot(NodeId n) {
  memory_[n] = true;
  groups_[n] = {n};
  Group& g = roots_[n];
  const Node& root = node(n);
  if (root.op == Op::kContract) {
    if (auto s = ScheduleContract(graph_, n, is_weight_, target_)) {
      g.anchor = n;
      contracts_[n] = *s;
    } else {
      g.inline_ = g.point = true;
    }
  } else if (root.op == Op::kAttention) {
    g.anchor = n;
  } else if (root.op == Op::kSumReduce || root.op == Op::kMaxReduce) {
    const auto& axes = GetAttr<std::vector<int64_t>>(root.attrs, "axes");
    int64_t last = static_cast<int64_t>(node(root.inputs[0]).type.shape.size()) - 1;
    g.inline_ = true;
    g.point = std::find(axes.begin(), axes.end(), last) != axes.end();
  }
}

void Baseline::Visit(NodeId n) {
  if (memory_[n]) {
    if (is_output_[n] || !users_[n].empty()) groups_[n] = {n};
    return;
  }
  // A literal that is an output is copied out as it is.
  if (is_output_[n] && node(n).op != Op::kConstant) return MakeRoot(n);
  for (NodeId u : users_[n]) {
    groups_[n].insert(groups_[u].begin(), groups_[u].end());
    const Op op = node(u).op;
    bool anchor = op == Op::kContract || op == Op::kAttention || op == Op::kEmbeddingBag ||
                  op == Op::kScatter;
    if (anchor || (views_only_[u] && !memory_[u])) views_only_[n] = true;
  }
  if (groups_[n].empty()) return;  // nobody needs it
  if (!CanInline(n) || NeedsDivision(n) || !HasRoom(n)) MakeRoot(n);
}

bool Baseline::CanInline(NodeId n) {
  const Node& x = node(n);
  if (IsView(n)) return true;
  if (views_only_[n] || is_weight_[n]) return false;
  if (groups_[n].size() != 1) return false;
  const NodeId root = *groups_[n].begin();
  switch (x.op) {
    case Op::kScatter:
    case Op::kEmbeddingBag:
    case Op::kRandomBits:
      return false;
    case Op::kSumReduce:
    case Op::kMaxReduce:
      return CanInlineReduction(n, root);
    case Op::kContract:
    case Op::kAttention:
      return CanInlineAnchor(n, root);
    default:
      return true;
  }
}

bool Baseline::HasRoom(NodeId n) {
  bool room = true;
  for (NodeId root : groups_[n]) room = ++roots_[root].nodes <= kMaxKernelNodes && room;
  return room;
}

bool Baseline::NeedsDivision(NodeId n) const {
  if (node(n).op != Op::kIndexMap) return false;
  const bool operand = std::any_of(users_[n].begin(), users_[n].end(),
                                   [&](NodeId u) { return node(u).op == Op::kContract; });
  if (!operand || is_weight_[n]) return false;
  Bounds bounds = bounds_;
  std::vector<Expr> at = RootSymbols(n, bounds);
  NodeId source = n;
  while (node(source).op == Op::kIndexMap && !memory_[source]) {
    at = MapCoordinates(GetAttr<IndexMap>(node(source).attrs, "map"), at, bounds);
    source = node(source).inputs[0];
  }
  Expr offset = bounds.Simplify(RowMajorOffset(node(source).type.shape, at));
  for (size_t i = 0; i < node(n).type.shape.size(); ++i) {
    if (!offset.AsAffine(absl::StrCat("x", i))) return true;
  }
  return false;
}

bool Baseline::CanInlineReduction(NodeId n, NodeId root) {
  Group& g = roots_[root];
  if (g.anchor >= 0 || node(root).op == Op::kScatter || node(root).op == Op::kEmbeddingBag)
    return false;
  Bounds bounds = bounds_;
  std::vector<Expr> at = RootSymbols(root, bounds);
  if (at.empty()) return false;
  Accesses a = CollectAccesses(graph_, memory_, root, at, bounds, n);
  bool row = true, same = true;
  for (const Access& r : a.reductions) {
    if (r.node != n) continue;
    std::set<std::string> symbols, wanted;
    for (const Expr& c : r.coordinates) c.CollectSymbols(&symbols);
    for (size_t i = 0; i + 1 < at.size(); ++i) at[i].CollectSymbols(&wanted);
    row = row && symbols == wanted;
    at.back().CollectSymbols(&wanted);
    same = same && symbols == wanted && r.coordinates == at;
  }
  if (row && !same && !g.inline_) {
    const auto& axes = GetAttr<std::vector<int64_t>>(node(n).attrs, "axes");
    g.row = true;
    return !axes.empty();
  }
  if (same && !g.has_reduction()) {
    const auto& axes = GetAttr<std::vector<int64_t>>(node(n).attrs, "axes");
    int64_t last = static_cast<int64_t>(node(node(n).inputs[0]).type.shape.size()) - 1;
    g.inline_ = true;
    g.point = std::find(axes.begin(), axes.end(), last) != axes.end();
    return true;
  }
  return false;
}

bool Baseline::CanInlineAnchor(NodeId n, NodeId root) {
  Group& g = roots_[root];
  if (!epilogues_ || g.anchor >= 0 || g.has_reduction()) return false;
  if (node(root).op == Op::kScatter || node(root).op == Op::kEmbeddingBag) return false;
  std::optional<ContractSchedule> schedule;
  if (node(n).op == Op::kContract) {
    schedule = ScheduleContract(graph_, n, is_weight_, target_);
    if (!schedule) return false;
  }
  // The epilogue must need each element of the anchor once, at one place of the root.
  Bounds bounds = bounds_;
  std::vector<Expr> at = RootSymbols(n, bounds);
  auto places = RootCoordinates(graph_, memory_, root, n, at, bounds);
  if (!places) return false;
  Accesses a = CollectAccesses(graph_, memory_, root, *places, bounds, n);
  bool found = false;
  for (const Access& r : a.reductions) {
    if (r.node != n) continue;
    if (r.coordinates != at || r.inside_reduction) return false;
    found = true;
  }
  if (!found) return false;
  g.anchor = n;
  if (schedule) contracts_[n] = *schedule;
  return true;
}

KernelChoice Baseline::ChoiceOf(NodeId root) {
  const Group& g = roots_[root];
  KernelChoice k;
  k.root = root;
  k.anchor = g.anchor;
  if (g.anchor >= 0) {
    k.kind = node(g.anchor).op == Op::kContract ? KernelKind::kContract : KernelKind::kAttention;
    if (k.kind == KernelKind::kContract) k.contract = contracts_[g.anchor];
    if (target_.vector_registers() < 32) k.attention.mr = 6;
  } else if (node(root).op == Op::kScatter) {
    k.kind = KernelKind::kScatter;
  } else if (g.row) {
    k.kind = KernelKind::kRow;
  } else if (g.point) {
    k.kind = KernelKind::kPoint;
  }
  return k;
}

Genome Baseline::Choose() {
  FindUsers();
  for (NodeId n = static_cast<NodeId>(graph_.nodes.size()); n-- > 0;) Visit(n);
  Genome genome;
  std::vector<KernelChoice> later;
  for (const auto& [root, group] : roots_) later.push_back(ChoiceOf(root));
  // A packed layout is one more root, computed from the weight before the first contraction that
  // reads it.
  std::map<std::string, NodeId> packed;
  for (KernelChoice& k : later) {
    if (k.kind == KernelKind::kContract) {
      const Node& anchor = node(k.anchor);
      NodeId operand = anchor.inputs[k.contract.swap ? 0 : 1];
      if (is_weight_[operand]) {
        int width = PanelWidth(graph_, k.anchor, k.contract, target_);
        NodeId added = AddPackedOperand(&graph_, k.anchor, k.contract, width);
        std::string key = absl::StrCat(operand, " ", width);
        for (const Expr& c : GetAttr<IndexMap>(node(added).attrs, "map").coordinates) {
          absl::StrAppend(&key, ";", c.ToString());
        }
        auto [it, is_new] = packed.emplace(key, added);
        if (is_new) {
          KernelChoice pack;
          pack.root = added;
          genome.kernels.push_back(pack);
        } else {
          graph_.nodes.pop_back();
        }
        k.contract.packed = it->second;
      }
    }
    genome.kernels.push_back(k);
  }
  return genome;
}

}  // namespace

Genome ChooseBaseline(Graph* graph, const v1::Target& target, bool epilogues) {
  return Baseline(graph, target, epilogues).Choose();
}

}  // namespace athanor
