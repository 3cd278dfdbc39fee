#include "compiler/search/kernels/signature.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/text.h"
#include "compiler/ir/value/digest.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/fusion.h"

namespace athanor {
namespace {

// Reports whether the bits of a result depend on the order of its terms.
bool Sums(const Node& node) {
  if (!IsFloat(node.type.dtype)) return false;
  switch (OpInfo(node.op).traits.errors) {
    case ErrorRule::kSum:
    case ErrorRule::kProduct:
    case ErrorRule::kContraction:
      return true;
    case ErrorRule::kBags:
      return !ModeChooses(node.attrs);
    default:
      return FormOf(node.op) == OpForm::kAttention || IsPagedAttention(node.op) || IsLoop(node.op);
  }
}

// Reports whether it is a function that is not rounded exactly, and so by the code for its lanes.
bool IsFunction(const Node& node) {
  return IsElementwise(node.op) && IsFloat(node.type.dtype) && OpInfo(node.op).ulp > 0;
}

// Sums of more terms are never of multiply-adds.
constexpr int64_t kMostFusedTerms = 32;

std::string About(const Graph& graph, const Node& node) {
  std::string text = absl::StrCat(std::string(OpName(node.op)), " {", AttrsText(node.attrs), "}");
  for (NodeId i : node.inputs) absl::StrAppend(&text, " ", TypeToString(graph.node(i).type));
  return absl::StrCat(text, " -> ", TypeToString(node.type));
}

std::string OrderOf(const PanelSchedule& s, int lanes) {
  if (s.columns == ColumnAccess::kDots) return absl::StrCat("dots ", lanes);
  // An element has one chain, whatever the tile; the panel says which copy of the weight it reads.
  return s.columns == ColumnAccess::kAhead ? absl::StrCat("chain ahead ", s.panel) : "chain";
}

class Orders {
 public:
  Orders(const Graph& graph, const std::vector<bool>& memory, const KernelChoice& choice,
         const v1::Target& target)
      : graph_(graph),
        memory_(memory),
        choice_(choice),
        target_(target),
        from_(choice.kind == KernelKind::kStateWrite ? graph.node(choice.root).inputs[2]
                                                     : choice.root),
        bounds_(graph.DimBounds()) {
    const Shape& shape = graph.node(from_).type.shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      const std::string name = absl::StrCat("x", i);
      bounds_.SetExtent(name, shape[i]);
      at_.push_back(Expr::Symbol(name));
      // A write's items are its rows, whatever their length.
      const bool last = choice.kind == KernelKind::kStateWrite ? i > 0 : !shape[i].IsConstant(1);
      if (last) lane_ = name;
    }
  }

  std::map<NodeId, std::string> Find() {
    std::vector<bool> computed(choice_.root + 1);
    // Nodes that a sum of this kernel takes: a point computes these in vectors.
    std::vector<bool> summed(choice_.root + 1);
    computed[choice_.root] = true;
    for (NodeId n = choice_.root; n >= 0; --n) {
      if (!computed[n] || (memory_[n] && n != choice_.root)) continue;
      const Node& node = graph_.node(n);
      for (NodeId i : node.inputs) {
        computed[i] = true;
        summed[i] = summed[i] || summed[n] || Sums(node);
      }
      std::string order;
      if (Sums(node)) order = OfSum(n);
      if (IsFunction(node)) order = OfFunction(n, summed[n]);
      if (!order.empty()) found_[n] = absl::StrCat(About(graph_, node), ": ", order);
    }
    return std::move(found_);
  }

 private:
  std::string OfSum(NodeId n) {
    // Its splits lie at fixed keys, and a row's chains are its own, whatever the tile.
    if (IsPagedAttention(graph_.node(n).op)) return "paged";
    const int lanes =
        LanesOf(target_, DTypeBytes(AccumulatorOf(graph_.node(n).type.dtype)), choice_.team);
    switch (choice_.kind) {
      case KernelKind::kContract:
        if (n != choice_.anchor) return "epilogue";
        if (const auto* panels = std::get_if<PanelSchedule>(&choice_.contract)) {
          return OrderOf(*panels, lanes);
        }
        return ScheduleText(choice_);
      case KernelKind::kMap: {
        // An element has one chain, but one that all lanes need is summed by all of them.
        const std::string spread = Spread(n);
        return absl::StrCat(spread == kLane ? "lane" : absl::StrCat("lane, ", spread), Products(n));
      }
      case KernelKind::kRow:
      case KernelKind::kPoint:
        return absl::StrCat(choice_.kind == KernelKind::kRow ? "row " : "point ", WidestLanes(),
                            "x", choice_.walk.unroll);
      default:
        return ScheduleText(choice_);
    }
  }

  std::string OfFunction(NodeId n, bool summed) {
    if (choice_.kind == KernelKind::kPoint) return Lanes(summed ? WidestLanes() : 1);
    if (Product(graph_.node(choice_.root).type.shape).IsConstant(1)) return Lanes(1);
    if (WidestLanes() == 1) return Lanes(1);
    const std::string spread = Spread(n);
    return spread == kLane ? Lanes(WidestLanes()) : absl::StrCat(spread, " ", WidestLanes());
  }
  static std::string Lanes(int lanes) { return absl::StrCat("lanes ", lanes); }

  // A short sum of products that are not in memory is one of multiply-adds, or not, as the kernel
  // walks (PointLowering, LowerMap): all that may decide it is named.
  std::string Products(NodeId n) const {
    const Node& node = graph_.node(n);
    if (node.op != Op::kSumReduce) return "";
    const NodeId operand = node.inputs[0];
    if (graph_.node(operand).op != Op::kMul || memory_[operand]) return "";
    Expr terms = 1;
    for (int64_t axis : GetAttr<std::vector<int64_t>>(node.attrs, "axes")) {
      terms = terms * graph_.node(operand).type.shape[axis];
    }
    const std::optional<int64_t> count = terms.constant();
    if (!count || *count > kMostFusedTerms) return "";
    std::string text = absl::StrCat(", of products, ", ScheduleText(choice_));
    for (const Dim& dim : graph_.dims) {
      absl::StrAppend(&text, ", ", dim.name, " in [", dim.min, ", ", dim.max, "]");
    }
    std::vector<bool> computed(choice_.root + 1);
    computed[choice_.root] = true;
    for (NodeId i = choice_.root; i >= 0; --i) {
      if (!computed[i] || (memory_[i] && i != choice_.root)) continue;
      absl::StrAppend(&text, ", ", About(graph_, graph_.node(i)));
      for (NodeId input : graph_.node(i).inputs) computed[input] = true;
    }
    return text;
  }

  // Says which lanes have a value of their own of the node: all, or fewer where it is needed at
  // coordinates that are equal in all lanes, or of a sum's terms.
  std::string Spread(NodeId n) {
    if (n == from_) return kLane;
    std::vector<bool> memory = memory_;
    memory[n] = true;
    bool own = false, terms = false, equal = false;
    for (const Access& load : CollectAccesses(graph_, memory, from_, at_, bounds_).loads) {
      if (load.node != n) continue;
      std::set<std::string> symbols;
      for (const Expr& c : load.coordinates) c.CollectSymbols(&symbols);
      if (symbols.contains(lane_)) {
        own = true;
      } else if (!symbols.empty() && symbols.begin()->starts_with('$')) {
        terms = true;
      } else {
        equal = true;
      }
    }
    // A node without loads belongs to a kernel that walks over more than its root.
    if (!terms && !equal) return own || choice_.kind != KernelKind::kStateWrite ? kLane : "equal";
    return absl::StrCat(own ? "own " : "", terms ? "terms " : "", equal ? "equal " : "", "of");
  }

  // Returns the lanes of a kernel whose vectors have as many elements as its widest dtype allows.
  int WidestLanes() {
    if (!lanes_.has_value()) {
      const TensorType& type = graph_.node(from_).type;
      // A write's elements are computed as the update's, which may be in memory.
      const bool stored = choice_.kind == KernelKind::kStateWrite && memory_[from_];
      int bytes = DTypeBytes(AccumulatorOf(type.dtype));
      if (!stored) {
        bytes = std::max(bytes, CollectAccesses(graph_, memory_, from_, at_, bounds_).widest_bytes);
      }
      lanes_ = lane_.empty() && choice_.kind == KernelKind::kStateWrite
                   ? 1
                   : LanesOf(target_, bytes, choice_.team);
    }
    return *lanes_;
  }

  static constexpr char kLane[] = "lanes";
  const Graph& graph_;
  const std::vector<bool>& memory_;
  const KernelChoice& choice_;
  const v1::Target& target_;
  const NodeId from_;  // what elements are computed of: the root, or a write's update
  Bounds bounds_;
  std::vector<Expr> at_;  // x0, x1, ...
  std::string lane_;      // the symbol along which lanes run; "": none
  std::optional<int> lanes_;
  std::map<NodeId, std::string> found_;
};

// Names nodes as graphs of other boxes do: by what they are, and their place among those alike.
class Places {
 public:
  explicit Places(const Graph& graph) : graph_(graph) {}

  const std::string& Of(NodeId n) {
    if (names_.empty()) {
      std::map<std::string, int> alike;
      for (const Node& node : graph_.nodes) {
        const std::string about = About(graph_, node);
        names_.push_back(absl::StrCat(about, " ", alike[about]++));
      }
    }
    return names_[n];
  }

 private:
  const Graph& graph_;
  std::vector<std::string> names_;  // of all nodes, once one was asked for
};

}  // namespace

std::map<NodeId, std::string> OrdersOf(const Graph& graph, const std::vector<bool>& memory,
                                       const KernelChoice& choice, const v1::Target& target) {
  return Orders(graph, memory, choice, target).Find();
}

SameOrders::SameOrders(const KernelTask& task, const v1::Target& target)
    : task_(task), target_(target) {
  if (task.choice.kind != KernelKind::kMap) return;
  memory_ = MemoryOf(task.graph, {{task.choice}});
  orders_ = OrdersOf(task.graph, memory_, task.choice, target);
}

bool SameOrders::operator()(const KernelChoice& other) const {
  const KernelChoice& own = task_.choice;
  if (own.kind != other.kind || own.team != other.team) return false;
  switch (own.kind) {
    case KernelKind::kContract: {
      const auto* first = std::get_if<PanelSchedule>(&own.contract);
      const auto* second = std::get_if<PanelSchedule>(&other.contract);
      if (first == nullptr || second == nullptr) return own.contract == other.contract;
      return OrderOf(*first, 1) == OrderOf(*second, 1);
    }
    case KernelKind::kAttention:
      return own.attention == other.attention;
    case KernelKind::kRow:
    case KernelKind::kPoint:
      return own.walk.unroll == other.walk.unroll;
    case KernelKind::kMap:
      // A short sum of products depends on the whole schedule, anything else on none of it.
      return OrdersOf(task_.graph, memory_, other, target_) == orders_;
    default:
      return true;
  }
}

std::string SignatureOf(const Graph& graph, const NodeOrders& orders, const v1::Target& target) {
  Places places(graph);
  // Nodes that are alike are told apart by their places, so theirs are in the graph's order.
  std::map<std::string, std::string> alike;
  for (const auto& [node, of_node] : orders) {
    std::string& text = alike[About(graph, graph.node(node))];
    absl::StrAppend(&text, "\nnode");
    const bool one = of_node.begin()->first == of_node.rbegin()->first;
    if (one) absl::StrAppend(&text, "\n", of_node.begin()->first);
    for (const auto& [order, root] : of_node) {
      if (!one) absl::StrAppend(&text, "\n", order, " for ", places.Of(root));
    }
  }
  std::string text = absl::StrCat(target.device(), " ", target.vector_bytes());
  for (const auto& [about, lines] : alike) text += lines;
  return Sha256Hex(text).substr(0, 16);
}

std::string SignatureOf(const Graph& graph, const Genome& genome, const v1::Target& target) {
  const std::vector<bool> memory = MemoryOf(graph, genome);
  const std::vector<bool> behind = MemoryBehindPanels(graph, genome);
  NodeOrders orders;
  for (const KernelChoice& choice : genome.kernels) {
    const std::vector<bool>& seen = choice.packed >= 0 ? behind : memory;
    for (auto& [node, order] : OrdersOf(graph, seen, choice, target)) {
      orders[node].emplace(std::move(order), choice.root);
    }
  }
  return SignatureOf(graph, orders, target);
}

}  // namespace athanor
