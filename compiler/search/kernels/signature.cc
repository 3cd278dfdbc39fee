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

std::string About(const Graph& graph, const Node& node) {
  std::string text = absl::StrCat(std::string(OpName(node.op)), " {", AttrsText(node.attrs), "}");
  for (NodeId i : node.inputs) absl::StrAppend(&text, " ", TypeToString(graph.node(i).type));
  return absl::StrCat(text, " -> ", TypeToString(node.type));
}

std::string OrderOf(const PanelSchedule& s, int lanes) {
  if (s.columns == ColumnAccess::kDots) return absl::StrCat("dots ", lanes);
  // One chain an element, whatever the tile; the panel says whose copy of the weight it reads.
  return s.columns == ColumnAccess::kAhead ? absl::StrCat("chain ahead ", s.panel) : "chain";
}

class Orders {
 public:
  Orders(const Graph& graph, const std::vector<bool>& memory, const KernelChoice& choice,
         const v1::Target& target)
      : graph_(graph), memory_(memory), choice_(choice), target_(target) {}

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
      if (IsFunction(node)) order = OfFunction(summed[n]);
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
      case KernelKind::kMap:
        return "lane";  // one chain an element
      case KernelKind::kRow:
      case KernelKind::kPoint:
        return absl::StrCat(choice_.kind == KernelKind::kRow ? "row " : "point ", WidestLanes(),
                            "x", choice_.walk.unroll);
      default:
        return ScheduleText(choice_);
    }
  }

  std::string OfFunction(bool summed) {
    const bool alone = choice_.kind == KernelKind::kPoint
                           ? !summed
                           : Product(graph_.node(choice_.root).type.shape).IsConstant(1);
    return absl::StrCat("lanes ", alone ? 1 : WidestLanes());
  }

  // Returns the lanes of a kernel whose vectors have as many elements as its widest dtype allows.
  int WidestLanes() {
    if (!lanes_.has_value()) {
      Bounds bounds = graph_.DimBounds();
      std::vector<Expr> at;
      const Shape& shape = graph_.node(choice_.root).type.shape;
      for (size_t i = 0; i < shape.size(); ++i) {
        const std::string name = absl::StrCat("x", i);
        bounds.SetExtent(name, shape[i]);
        at.push_back(Expr::Symbol(name));
      }
      const int bytes =
          CollectAccesses(graph_, memory_, choice_.root, at, std::move(bounds)).widest_bytes;
      lanes_ = LanesOf(target_, bytes, choice_.team);
    }
    return *lanes_;
  }

  const Graph& graph_;
  const std::vector<bool>& memory_;
  const KernelChoice& choice_;
  const v1::Target& target_;
  std::optional<int> lanes_;
  std::map<NodeId, std::string> found_;
};

}  // namespace

std::map<NodeId, std::string> OrdersOf(const Graph& graph, const std::vector<bool>& memory,
                                       const KernelChoice& choice, const v1::Target& target) {
  return Orders(graph, memory, choice, target).Find();
}

bool SameOrders(const KernelChoice& a, const KernelChoice& b) {
  if (a.kind != b.kind || a.team != b.team) return false;
  switch (a.kind) {
    case KernelKind::kContract: {
      const auto* first = std::get_if<PanelSchedule>(&a.contract);
      const auto* second = std::get_if<PanelSchedule>(&b.contract);
      if (first == nullptr || second == nullptr) return a.contract == b.contract;
      return OrderOf(*first, 1) == OrderOf(*second, 1);
    }
    case KernelKind::kAttention:
      return a.attention == b.attention;
    case KernelKind::kRow:
    case KernelKind::kPoint:
      return a.walk.unroll == b.walk.unroll;
    default:
      return true;
  }
}

std::string SignatureOf(const Graph& graph, const Genome& genome, const v1::Target& target) {
  const std::vector<bool> memory = MemoryOf(graph, genome);
  const std::vector<bool> behind = MemoryBehindPanels(graph, genome);
  std::set<std::pair<NodeId, std::string>> orders;
  for (const KernelChoice& choice : genome.kernels) {
    const std::vector<bool>& seen = choice.packed >= 0 ? behind : memory;
    for (auto& [node, order] : OrdersOf(graph, seen, choice, target)) {
      orders.emplace(node, std::move(order));
    }
  }
  std::vector<std::string> lines;
  for (const auto& [node, order] : orders) lines.push_back(order);
  std::sort(lines.begin(), lines.end());
  std::string text = absl::StrCat(target.device(), " ", target.vector_bytes());
  for (const std::string& line : lines) absl::StrAppend(&text, "\n", line);
  return Sha256Hex(text).substr(0, 16);
}

}  // namespace athanor
