#include "compiler/search/kernels/fusion.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/paged_schedule.h"
#include "compiler/search/kernels/repeats.h"
#include "compiler/search/kernels/state_layout.h"

namespace athanor {

namespace {

// Reports whether a node is cheap enough for several kernels: no reduction, no random numbers.
bool CanRepeat(const Node& node) {
  return IsElementwise(node.op) || IsIndexMap(node.op) || FormOf(node.op) == OpForm::kGather;
}

// Reports whether an op needs a kernel of its own, which walks the operands in its own order.
bool IsAlone(Op op) {
  const OpForm form = FormOf(op);
  return form == OpForm::kScatter || form == OpForm::kStateWrite || form == OpForm::kBags ||
         form == OpForm::kOrder;
}

// Rows computed side by side: their sums and what they read stay in 16 registers.
constexpr int64_t kWindowRows = 4;

// Properties of a kernel while nodes are added to its root.
struct Group {
  int nodes = 0;
  NodeId anchor = -1;
  bool row = false;      // reductions over the root's last axis
  bool inline_ = false;  // other reductions, computed inline
  bool point = false;    // one of those is long and runs along its operand's last axis
  bool windows = false;  // one of those is over small windows
  // Most elements along the axis of a reduction that its lanes run along; nullopt: any number.
  std::optional<int64_t> along = 0;
  bool has_reduction() const { return row || inline_; }
};

void Append(int32_t number, std::string* bytes) {
  char raw[sizeof(number)];
  std::memcpy(raw, &number, sizeof(number));
  bytes->append(raw, sizeof(number));
}

// Returns the memo's entry for `key`, made by `find` if there is none.
template <typename Map, typename Find>
auto Remembered(Map& memo, std::string key, Find find) {
  if (auto known = memo.find(key); known != memo.end()) return known->second;
  return memo.emplace(std::move(key), find()).first->second;
}

class Grouping {
 public:
  Grouping(const Graph& graph, const v1::Target& target, const Fusion& fusion,
           const std::optional<FusionKnowledge>& known)
      : graph_(graph),
        target_(target),
        fusion_(fusion),
        known_(known),
        bounds_(graph.DimBounds()),
        repeats_(graph),
        cast_has_memory_(graph.nodes.size(), true),
        at_(known ? graph.nodes.size() : 0),
        place_(at_.size()) {}
  Genome Choose();

 private:
  void FindUsers();
  // Finds casts that are computed inside all contractions that read them, since matrix instructions
  // take what they cast.
  void FindInnerCasts();
  void Visit(NodeId n);
  void MakeRoot(NodeId n);
  bool CanInline(NodeId n);
  // Reports whether `n` is windows that each contraction reading them packs into panels: they need
  // no memory.
  bool IsPacked(NodeId n) const;
  // Reports whether `n` is a view that a contraction would read with a division per element. It is
  // worth memory of its own, best as the epilogue of the node it views.
  bool NeedsDivision(NodeId n) const;
  bool ReadsWithDivision(NodeId n) const;
  FusionMemo::Reduction ReductionIn(NodeId root, NodeId n) const;
  std::optional<ContractSchedule> ScheduleOf(NodeId n) const;
  std::optional<ContractSchedule> UsualScheduleOf(NodeId n) const;
  // Keys of the memo: Between for the nodes from root to node, AppendViews for views below a node.
  std::string Between(NodeId root, NodeId n);
  void AppendViews(NodeId n, std::string* key) const;
  bool CanInlineReduction(NodeId n, NodeId root);
  void FindWindows(const Node& reduction, Group* group) const;
  void AddReduction(const Node& reduction, Group* group) const;
  // Returns how many threads compute an item of the kernel together.
  int TeamOf(const Group& group, const KernelChoice& kernel) const;
  bool CanInlineAnchor(NodeId n, NodeId root);
  // False if one of the kernels that need `n` is full.
  bool HasRoom(NodeId n) const;
  KernelChoice ChoiceOf(NodeId root);
  // Returns the root's coordinates as symbols "x0", ..., and adds these to `bounds`.
  std::vector<Expr> RootSymbols(NodeId root, Bounds& bounds) const;

  const Node& node(NodeId n) const { return graph_.nodes[n]; }
  // Reports whether `n` is movement that costs nothing where it is read.
  bool IsView(NodeId n) const {
    return (IsIndexMap(node(n).op) && !node(n).attrs.contains("fill")) || IsConstant(node(n).op) ||
           FormOf(node(n).op) == OpForm::kCount;
  }

  const Graph& graph_;
  const v1::Target& target_;
  const Fusion& fusion_;
  const std::optional<FusionKnowledge>& known_;
  Bounds bounds_;
  Repeats repeats_;
  std::vector<bool> memory_, is_weight_, is_output_, views_only_;
  std::vector<bool> cast_has_memory_;  // false of the casts that FindInnerCasts finds
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::set<NodeId>> groups_;  // roots whose kernels compute the node
  std::map<NodeId, Group> roots_;
  std::map<NodeId, ContractSchedule> contracts_;
  // By node: `at_` is `turn_` if it belongs to the key being built; `place_` is its place in it.
  std::vector<int64_t> at_;
  std::vector<int> place_;
  int64_t turn_ = 0;
};

// Covers the nodes that CollectAccesses and RootCoordinates see: none behind memory or before `n`.
std::string Grouping::Between(NodeId root, NodeId n) {
  ++turn_;
  std::vector<NodeId> nodes, open = {root};
  at_[root] = turn_;
  const auto inside = [&](NodeId m) { return m == root || (m >= n && !memory_[m]); };
  while (!open.empty()) {
    const NodeId m = open.back();
    open.pop_back();
    nodes.push_back(m);
    if (!inside(m) || m == n) continue;
    for (NodeId i : node(m).inputs) {
      if (std::exchange(at_[i], turn_) != turn_) open.push_back(i);
    }
  }
  for (NodeId i : node(n).inputs) {
    if (std::exchange(at_[i], turn_) != turn_) nodes.push_back(i);
  }
  // Operands are named by their place among these nodes, so equal layers have equal keys.
  std::sort(nodes.begin(), nodes.end());
  for (size_t i = 0; i < nodes.size(); ++i) place_[nodes[i]] = static_cast<int>(i);
  std::string key;
  Append(place_[n], &key);
  for (NodeId m : nodes) {
    Append((*known_->kinds)[m], &key);
    if (!inside(m)) continue;
    for (NodeId i : node(m).inputs) Append(-1 - place_[i], &key);
  }
  return key;
}

void Grouping::AppendViews(NodeId n, std::string* key) const {
  for (; IsIndexMap(node(n).op); n = node(n).inputs[0]) {
    Append((*known_->kinds)[n], key);
    Append(memory_[n] ? -1 : -2, key);
  }
  Append((*known_->kinds)[n], key);
  // A write has the layout of its state.
  if (IsStateWrite(node(n).op)) Append((*known_->kinds)[node(n).inputs[0]], key);
}

std::optional<ContractSchedule> Grouping::ScheduleOf(NodeId n) const {
  std::optional<ContractSchedule> schedule = UsualScheduleOf(n);
  if (!schedule || !fusion_.rules.one_panel || HasTeams(target_)) return schedule;
  auto* panels = std::get_if<PanelSchedule>(&*schedule);
  if (panels == nullptr || panels->columns != ColumnAccess::kAhead) return schedule;
  const ContractRoles roles = FindContractRoles(graph_, node(n), panels->swap);
  const int bytes = DTypeBytes(AccumulatorOf(node(n).type.dtype));
  panels->panel = SharedPanel(*roles.SizeOf(roles.columns).constant(), LanesOf(target_, bytes));
  return schedule;
}

std::optional<ContractSchedule> Grouping::UsualScheduleOf(NodeId n) const {
  const auto find = [&] {
    return ScheduleContract(graph_, n, is_weight_, target_, &cast_has_memory_);
  };
  if (!known_) return find();
  std::string key;
  Append((*known_->kinds)[n], &key);
  for (NodeId i : node(n).inputs) {
    Append(is_weight_[i] ? -3 : -4, &key);
    AppendViews(i, &key);
    if (!cast_has_memory_[i]) Append((*known_->kinds)[node(i).inputs[0]], &key);
  }
  return Remembered(known_->memo->contracts, std::move(key), find);
}

void Grouping::FindUsers() {
  const size_t count = graph_.nodes.size();
  memory_ = MemoryOf(graph_, {});
  users_.resize(count);
  groups_.resize(count);
  is_output_.resize(count);
  views_only_.resize(count);
  is_weight_ = WeightsOf(graph_);
  for (size_t n = 0; n < count; ++n) {
    for (NodeId i : graph_.nodes[n].inputs) users_[i].push_back(static_cast<NodeId>(n));
  }
  for (const Output& o : graph_.outputs) is_output_[o.node] = true;
  for (NodeId update : graph_.updates) is_output_[update] = true;
  if (HasTeams(target_) && fusion_.rules.tiles && fusion_.rules.producers) FindInnerCasts();
}

// Starts with all casts that instructions could look behind and that contractions alone read. If a
// contraction turns out to be no tile of matrix instructions its casts get memory, and then perhaps
// those of others that read them too.
void Grouping::FindInnerCasts() {
  const auto is_contract = [&](NodeId n) { return FormOf(node(n).op) == OpForm::kContract; };
  std::vector<NodeId> contracts;
  for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
    if (!is_contract(n)) continue;
    contracts.push_back(n);
    const std::optional<TensorOperands> behind = FindTensorOperands(graph_, node(n));
    if (!behind) continue;
    for (size_t side = 0; side < 2; ++side) {
      const NodeId cast = node(n).inputs[side];
      const auto asked = fusion_.nodes.find(cast);
      const bool memory = asked != fusion_.nodes.end() && asked->second == Fuse::kMemory;
      if (cast == behind->operands[side] || is_output_[cast] || memory) continue;
      cast_has_memory_[cast] = !std::all_of(users_[cast].begin(), users_[cast].end(), is_contract);
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId n : contracts) {
      const std::vector<NodeId>& operands = node(n).inputs;
      if (cast_has_memory_[operands[0]] && cast_has_memory_[operands[1]]) continue;
      if (const auto s = ScheduleOf(n); s && IsTensor(*s)) continue;
      cast_has_memory_[operands[0]] = cast_has_memory_[operands[1]] = true;
      changed = true;
    }
  }
}

std::vector<Expr> Grouping::RootSymbols(NodeId root, Bounds& bounds) const {
  std::vector<Expr> at;
  const Shape& shape = node(root).type.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    std::string name = absl::StrCat("x", i);
    bounds.SetExtent(name, shape[i]);
    at.push_back(shape[i].IsConstant(1) ? Expr(0) : Expr::Symbol(name));
  }
  return at;
}

void Grouping::MakeRoot(NodeId n) {
  memory_[n] = true;
  groups_[n] = {n};
  Group& g = roots_[n];
  const Node& root = node(n);
  if (FormOf(root.op) == OpForm::kContract) {
    if (auto s = ScheduleOf(n)) {
      g.anchor = n;
      contracts_[n] = *s;
    } else {
      g.inline_ = g.point = true;
    }
  } else if (FormOf(root.op) == OpForm::kAttention) {
    g.anchor = n;
  } else if (OpInfo(root.op).op_class == OpClass::kReduction) {
    const auto& axes = GetAttr<std::vector<int64_t>>(root.attrs, "axes");
    int64_t last = static_cast<int64_t>(node(root.inputs[0]).type.shape.size()) - 1;
    g.inline_ = true;
    g.point = std::find(axes.begin(), axes.end(), last) != axes.end();
    FindWindows(root, &g);
    AddReduction(root, &g);
  }
}

void Grouping::AddReduction(const Node& reduction, Group* group) const {
  const auto& axes = GetAttr<std::vector<int64_t>>(reduction.attrs, "axes");
  if (axes.empty() || !group->along) return;
  const std::optional<int64_t> extent =
      graph_.DimBounds().Maximum(node(reduction.inputs[0]).type.shape[axes.back()]);
  group->along = extent ? std::max(*group->along, *extent) : extent;
}

void Grouping::FindWindows(const Node& reduction, Group* group) const {
  if (!IsShortReduction(graph_, reduction)) return;
  group->point = false;
  group->windows = ReadsWindows(graph_, reduction);
}

void Grouping::Visit(NodeId n) {
  if (memory_[n]) {
    if (is_output_[n] || !users_[n].empty()) groups_[n] = {n};
    return;
  }
  // A loop reads its operands from memory and writes its results there.
  const bool looped =
      std::any_of(users_[n].begin(), users_[n].end(), [&](NodeId u) { return IsLoop(node(u).op); });
  if (IsLoop(node(n).op) || (looped && !IsConstant(node(n).op))) {
    if (is_output_[n] || !users_[n].empty()) MakeRoot(n);
    return;
  }
  if (is_output_[n] && !IsConstant(node(n).op)) return MakeRoot(n);
  for (NodeId u : users_[n]) {
    groups_[n].insert(groups_[u].begin(), groups_[u].end());
    const Op op = node(u).op;
    const OpForm form = FormOf(op);
    // A write computes each element of its operands once, where it stores it.
    const bool anchor = form == OpForm::kContract || form == OpForm::kAttention ||
                        (IsAlone(op) && form != OpForm::kStateWrite);
    if (anchor || (views_only_[u] && !memory_[u])) views_only_[n] = true;
  }
  if (groups_[n].empty()) return;  // no output needs it
  auto asked = fusion_.nodes.find(n);
  const bool repeats = repeats_.Pay(n, users_[n], memory_);
  const bool memory =
      asked == fusion_.nodes.end() ? repeats || NeedsDivision(n) : asked->second == Fuse::kMemory;
  const bool inside = IsConstant(node(n).op) || !cast_has_memory_[n];
  if (!inside && (memory || !HasRoom(n) || !CanInline(n))) return MakeRoot(n);
  for (NodeId root : groups_[n]) ++roots_[root].nodes;
}

bool Grouping::CanInline(NodeId n) {
  const Node& x = node(n);
  if (IsView(n) || IsPacked(n)) return true;
  if (views_only_[n] || is_weight_[n]) return false;
  if (groups_[n].size() != 1) {
    if (repeats_.IsRowsPlace(n)) return fusion_.rules.producers;
    // It would be computed again in each kernel, which only the search asks for.
    auto asked = fusion_.nodes.find(n);
    return fusion_.rules.again && asked != fusion_.nodes.end() && asked->second == Fuse::kInline &&
           CanRepeat(x);
  }
  if (IsAlone(x.op)) return false;
  const NodeId root = *groups_[n].begin();
  switch (FormOf(x.op)) {
    case OpForm::kRandom:
      return false;
    case OpForm::kReduce:
      return fusion_.rules.reductions && CanInlineReduction(n, root);
    case OpForm::kContract:
    case OpForm::kAttention:
      return fusion_.rules.epilogues && CanInlineAnchor(n, root);
    default:
      return roots_.at(root).has_reduction() ? fusion_.rules.reductions : fusion_.rules.producers;
  }
}

bool Grouping::IsPacked(NodeId n) const {
  if (!IsIndexMap(node(n).op) || is_weight_[n]) return false;
  return std::all_of(users_[n].begin(), users_[n].end(), [&](NodeId u) {
    const auto contract = contracts_.find(u);
    if (groups_[u].empty()) return true;  // no output needs it
    if (contract == contracts_.end()) return false;
    const auto& [rows, columns] = Swaps(contract->second)
                                      ? std::pair(node(u).inputs[1], node(u).inputs[0])
                                      : std::pair(node(u).inputs[0], node(u).inputs[1]);
    // A tile copies both operands.
    const auto* panels = std::get_if<PanelSchedule>(&contract->second);
    if (panels == nullptr) return columns == n || rows == n;
    return panels->columns == ColumnAccess::kPack && columns == n && rows != n;
  });
}

bool Grouping::HasRoom(NodeId n) const {
  return std::all_of(groups_[n].begin(), groups_[n].end(),
                     [&](NodeId root) { return roots_.at(root).nodes < kMaxKernelNodes; });
}

bool Grouping::NeedsDivision(NodeId n) const {
  if (!IsIndexMap(node(n).op)) return false;
  const bool operand = std::any_of(users_[n].begin(), users_[n].end(), [&](NodeId u) {
    return FormOf(node(u).op) == OpForm::kContract;
  });
  if (!operand || is_weight_[n]) return false;
  if (!known_) return ReadsWithDivision(n);
  std::string key;
  AppendViews(n, &key);
  return Remembered(known_->memo->divisions, std::move(key), [&] { return ReadsWithDivision(n); });
}

bool Grouping::ReadsWithDivision(NodeId n) const {
  Bounds bounds = bounds_;
  std::vector<Expr> at = RootSymbols(n, bounds);
  NodeId source = n;
  while (IsIndexMap(node(source).op) && !memory_[source]) {
    at = MapCoordinates(GetAttr<IndexMap>(node(source).attrs, "map"), at, bounds);
    source = node(source).inputs[0];
  }
  Expr offset = bounds.Simplify(MemoryOffset(graph_, source, at));
  for (size_t i = 0; i < node(n).type.shape.size(); ++i) {
    // An offset that is not affine in a coordinate divides it.
    if (!offset.AsAffine(absl::StrCat("x", i))) return true;
  }
  return false;
}

FusionMemo::Reduction Grouping::ReductionIn(NodeId root, NodeId n) const {
  Bounds bounds = bounds_;
  const std::vector<Expr> at = RootSymbols(root, bounds);
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
  return {row, same};
}

bool Grouping::CanInlineReduction(NodeId n, NodeId root) {
  Group& g = roots_[root];
  if (g.anchor >= 0 || IsAlone(node(root).op)) return false;
  if (node(root).type.shape.empty()) return false;
  const auto find = [&] { return ReductionIn(root, n); };
  const auto [row, same] =
      known_ ? Remembered(known_->memo->reductions, Between(root, n), find) : find();
  // Needed once per row of the root: the kernel computes it before it walks the row (kRow).
  if (row && !same && !g.inline_) {
    const auto& axes = GetAttr<std::vector<int64_t>>(node(n).attrs, "axes");
    g.row = true;
    AddReduction(node(n), &g);
    return !axes.empty();
  }
  if (same && !g.has_reduction()) {
    const auto& axes = GetAttr<std::vector<int64_t>>(node(n).attrs, "axes");
    int64_t last = static_cast<int64_t>(node(node(n).inputs[0]).type.shape.size()) - 1;
    g.inline_ = true;
    g.point = std::find(axes.begin(), axes.end(), last) != axes.end();
    FindWindows(node(n), &g);
    AddReduction(node(n), &g);
    return true;
  }
  return false;
}

bool Grouping::CanInlineAnchor(NodeId n, NodeId root) {
  Group& g = roots_[root];
  if (g.anchor >= 0 || g.has_reduction()) return false;
  if (IsAlone(node(root).op)) return false;
  std::optional<ContractSchedule> schedule;
  if (FormOf(node(n).op) == OpForm::kContract) {
    schedule = ScheduleOf(n);
    if (!schedule) return false;
  }
  const auto find = [&] { return IsEpilogue(graph_, memory_, root, n); };
  if (!(known_ ? Remembered(known_->memo->epilogues, Between(root, n), find) : find())) {
    return false;
  }
  g.anchor = n;
  if (schedule) contracts_[n] = *schedule;
  return true;
}

KernelChoice Grouping::ChoiceOf(NodeId root) {
  const Group& g = roots_[root];
  KernelChoice k;
  k.walk.elements = WalkExtentsOf(target_).usual;
  k.root = root;
  k.anchor = g.anchor;
  if (g.anchor == root && FormOf(node(root).op) == OpForm::kContract && !fusion_.rules.tiles) {
    k.kind = KernelKind::kPoint;
    k.anchor = -1;
  } else if (g.anchor >= 0) {
    k.kind = FormOf(node(g.anchor).op) == OpForm::kContract ? KernelKind::kContract
                                                            : KernelKind::kAttention;
    if (k.kind == KernelKind::kContract) k.contract = contracts_[g.anchor];
    if (target_.vector_registers() < 32) k.attention.mr = 6;
    if (IsPagedAttention(node(g.anchor).op)) {
      k.kind = KernelKind::kPaged;
      k.attention = SchedulePaged(graph_, g.anchor, target_);
    }
  } else if (IsLoop(node(root).op)) {
    k.kind = KernelKind::kLoop;
  } else if (FormOf(node(root).op) == OpForm::kScatter) {
    k.kind = KernelKind::kScatter;
  } else if (FormOf(node(root).op) == OpForm::kStateWrite) {
    k.kind = KernelKind::kStateWrite;
  } else if (FormOf(node(root).op) == OpForm::kOrder) {
    k.kind = KernelKind::kSort;
  } else if (g.row) {
    k.kind = KernelKind::kRow;
  } else if (g.point) {
    k.kind = KernelKind::kPoint;
  } else if (g.windows && node(root).type.shape.size() > 1) {
    k.walk.rows = kWindowRows;
  }
  k.team = TeamOf(g, k);
  return k;
}

// Lanes run along rows, and along the columns of a tile, as vectors do. Neighbouring threads of
// maps read neighbours already.
int Grouping::TeamOf(const Group& group, const KernelChoice& kernel) const {
  if (!HasTeams(target_)) return 1;
  const Bounds bounds = graph_.DimBounds();
  const Shape& shape = node(kernel.root).type.shape;
  switch (kernel.kind) {
    case KernelKind::kContract:
      return ContractTeam(graph_, kernel.anchor, kernel.contract, target_);
    case KernelKind::kAttention: {
      const Shape& queries = node(node(kernel.anchor).inputs[0]).type.shape;
      return TeamFor(bounds.Maximum(queries[queries.size() - 2]));
    }
    case KernelKind::kScatter: {
      const auto axis = static_cast<size_t>(GetAttr<int64_t>(node(kernel.root).attrs, "axis"));
      return axis + 1 < shape.size() ? TeamFor(bounds.Maximum(shape.back())) : 1;
    }
    case KernelKind::kStateWrite:
      return shape.size() > 1 ? TeamFor(bounds.Maximum(shape.back())) : 1;
    case KernelKind::kRow:
    case KernelKind::kPoint: {
      const bool row = kernel.kind == KernelKind::kRow;
      // A reduction of a contraction has no axes.
      std::optional<int64_t> length = group.along == 0 ? std::nullopt : group.along;
      if (row && length) {
        const std::optional<int64_t> own = bounds.Maximum(shape.back());
        length = own ? std::max(*own, *length) : own;
      }
      std::vector<Expr> outer(shape.begin(), shape.end() - (row ? 1 : 0));
      return RowTeam(bounds.Maximum(Product(outer)), length, target_);
    }
    default:
      return 1;
  }
}

Genome Grouping::Choose() {
  FindUsers();
  // From the outputs backwards: a node's users are decided before it.
  for (NodeId n = static_cast<NodeId>(graph_.nodes.size()); n-- > 0;) Visit(n);
  Genome genome;
  for (const auto& [root, group] : roots_) genome.kernels.push_back(ChoiceOf(root));
  return genome;
}

}  // namespace

Genome ChooseKernels(const Graph& graph, const v1::Target& target, const Fusion& fusion,
                     std::optional<FusionKnowledge> known) {
  return Grouping(graph, target, fusion, known).Choose();
}

std::vector<std::pair<NodeId, Fuse>> FusionFlips(const Graph& graph, const Genome& genome,
                                                 const FusionRules& rules) {
  const std::vector<bool> memory = MemoryOf(graph, genome);
  const std::vector<bool> weights = WeightsOf(graph);
  std::vector<bool> computed(graph.nodes.size()), output(graph.nodes.size());
  for (const KernelChoice& k : genome.kernels) computed[k.root] = true;
  for (NodeId n = static_cast<NodeId>(graph.nodes.size()); n-- > 0;) {
    if (!computed[n]) continue;
    for (NodeId i : graph.node(n).inputs) computed[i] = true;
  }
  for (const Output& o : graph.outputs) output[o.node] = true;
  std::vector<std::pair<NodeId, Fuse>> flips;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& node = graph.node(n);
    if (!computed[n] || output[n] || weights[n] || node.inputs.empty()) continue;
    if (!memory[n]) {
      flips.emplace_back(n, Fuse::kMemory);
    } else if (CanRepeat(node) && (rules.again || rules.producers)) {
      flips.emplace_back(n, Fuse::kInline);
    }
  }
  return flips;
}

std::vector<bool> WeightsOf(const Graph& graph) {
  std::vector<bool> weights(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    weights[n] =
        !IsInput(node.op) && !IsStateRead(node.op) && !IsLoop(node.op) &&
        std::all_of(node.type.shape.begin(), node.type.shape.end(),
                    [](const Expr& e) { return e.constant().has_value(); }) &&
        std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId i) { return weights[i]; });
  }
  return weights;
}

}  // namespace athanor
