// Packs weights for contractions, and computes what is stored otherwise on the way.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/fusion.h"

namespace athanor {

namespace {

// Finds the kernels of weights that packs, and other kernels of weights, can compute on their way.
class PackedChains {
 public:
  // Borrows both. The roots of packs are nodes from `first_pack` on.
  PackedChains(const Graph& graph, const std::vector<KernelChoice>& kernels, NodeId first_pack)
      : graph_(graph),
        kernels_(kernels),
        first_pack_(first_pack),
        weights_(WeightsOf(graph)),
        memory_(MemoryOf(graph, {kernels})) {}

  // Returns the kernels without these, in order.
  std::vector<KernelChoice> Drop() {
    for (const Output& o : graph_.outputs) weights_[o.node] = false;
    const auto suits = [&](const KernelChoice& k) { return IsCandidate(k); };
    if (std::none_of(kernels_.begin(), kernels_.end(), suits)) return kernels_;
    for (const KernelChoice& k : kernels_) {
      Look(k);
      if (IsCandidate(k)) candidates_.insert(k.root);
    }
    std::vector<KernelChoice> kept;
    // From the last one backwards: a kernel's readers are decided before it.
    for (size_t i = kernels_.size(); i-- > 0;) {
      if (!IsCandidate(kernels_[i]) || !Join(kernels_[i].root)) kept.push_back(kernels_[i]);
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

 private:
  // Index maps on the way from a kernel's root to a node that it reads. Elements that it reads on
  // different ways may be different ones.
  using Way = std::vector<NodeId>;
  // A kernel's nodes that it computes, and those that it reads.
  struct Part {
    std::set<NodeId> computed;
    std::map<NodeId, std::set<Way>> read;
  };

  bool IsCandidate(const KernelChoice& k) const {
    const Node& root = graph_.node(k.root);
    return k.root < first_pack_ && weights_[k.root] && k.kind == KernelKind::kMap &&
           (IsElementwise(root.op) || IsIndexMap(root.op));
  }

  // Notes what the kernel computes and reads. It does not read an operand in panels. Ways are only
  // told apart in kernels of weights: these compute one op, and views, so that there are few.
  void Look(const KernelChoice& k) {
    Part& part = parts_[k.root];
    std::set<std::pair<NodeId, Way>> seen;
    std::vector<std::pair<NodeId, Way>> todo = {{k.root, {}}};
    while (!todo.empty()) {
      auto [n, way] = std::move(todo.back());
      todo.pop_back();
      if (memory_[n] && n != k.root) {
        part.read[n].insert(std::move(way));
        readers_[n].insert(k.root);
        continue;
      }
      if (!seen.emplace(n, way).second) continue;
      part.computed.insert(n);
      if (weights_[k.root] && IsIndexMap(graph_.node(n).op)) way.push_back(n);
      const std::vector<NodeId>& inputs = graph_.node(n).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const bool packed = k.packed >= 0 && n == k.anchor && i == (Swaps(k.contract) ? 0 : 1);
        if (!packed) todo.emplace_back(inputs[i], way);
      }
    }
    if (k.packed >= 0) readers_[k.packed].insert(k.root);
  }

  // Lets the readers of `root` compute it, and returns true, if they are packs only or one other
  // kernel of weights. Returns false if one of them would be too large, or compute an element more
  // often than kMostTimes (a pack) or once (another): for several of its own, or on several ways.
  bool Join(NodeId root) {
    constexpr double kMostTimes = 4;
    const Part& chain = parts_[root];
    const std::set<NodeId> readers = readers_[root];
    const double elements = ElementsOf(root);
    if (readers.empty()) return false;
    for (const NodeId reader : readers) {
      const bool pack = reader >= first_pack_;
      if (!pack && (readers.size() > 1 || !candidates_.contains(reader))) return false;
      const Part& part = parts_[reader];
      const auto ways = static_cast<double>(part.read.at(root).size());
      if (ways * std::max(ElementsOf(reader), elements) > (pack ? kMostTimes : 1) * elements ||
          part.computed.size() + chain.computed.size() > kMaxKernelNodes) {
        return false;
      }
    }
    for (const NodeId reader : readers) {
      Part& part = parts_[reader];
      part.computed.insert(chain.computed.begin(), chain.computed.end());
      const std::set<Way> to_root = part.read.extract(root).mapped();
      for (const auto& [n, from_root] : chain.read) {
        for (Way way : to_root) {
          const size_t size = way.size();
          for (const Way& rest : from_root) {
            way.resize(size);
            way.insert(way.end(), rest.begin(), rest.end());
            part.read[n].insert(way);
          }
        }
      }
    }
    for (const auto& [n, ways] : chain.read) {
      readers_[n].erase(root);
      readers_[n].insert(readers.begin(), readers.end());
    }
    return true;
  }

  double ElementsOf(NodeId weight) const {
    return static_cast<double>(*Product(graph_.node(weight).type.shape).constant());
  }

  const Graph& graph_;
  const std::vector<KernelChoice>& kernels_;
  const NodeId first_pack_;
  std::vector<bool> weights_;
  const std::vector<bool> memory_;
  std::map<NodeId, Part> parts_;                // by root
  std::map<NodeId, std::set<NodeId>> readers_;  // roots of the kernels that read a node
  std::set<NodeId> candidates_;                 // roots that IsCandidate takes
};

}  // namespace

std::vector<bool> MemoryBehindPanels(const Graph& graph, const Genome& genome) {
  std::vector<bool> memory = MemoryOf(graph, genome);
  for (const KernelChoice& k : genome.kernels) {
    if (k.packed < 0) continue;
    NodeId n = graph.node(k.packed).inputs[0];
    const auto is_view = [&] {
      return IsIndexMap(graph.node(n).op) && !graph.node(n).attrs.contains("fill");
    };
    while (!memory[n] && is_view()) n = graph.node(n).inputs[0];
    // Constants and Iotas never have kernels of their own, which packs could have taken over.
    const Op op = graph.node(n).op;
    if (!IsConstant(op) && FormOf(op) != OpForm::kCount) memory[n] = true;
  }
  return memory;
}

void PackWeights(Graph* graph, Genome* genome, const v1::Target& target) {
  const auto first_pack = static_cast<NodeId>(graph->nodes.size());
  std::vector<KernelChoice> kernels;
  // Kernels that read an operand in the same panels share the packed node.
  std::map<std::string, NodeId> packed;
  for (KernelChoice k : genome->kernels) {
    const auto* panels = std::get_if<PanelSchedule>(&k.contract);
    if (k.kind == KernelKind::kContract && panels != nullptr &&
        panels->columns == ColumnAccess::kAhead) {
      const NodeId operand = graph->node(k.anchor).inputs[panels->swap ? 0 : 1];
      const int width = PanelWidth(*graph, k.anchor, *panels, target, k.team);
      const NodeId added = AddPackedOperand(graph, k.anchor, panels->swap, width);
      std::string key = absl::StrCat(operand, " ", width);
      for (const Expr& c : GetAttr<IndexMap>(graph->node(added).attrs, "map").coordinates) {
        absl::StrAppend(&key, ";", c.ToString());
      }
      auto [it, is_new] = packed.emplace(key, added);
      if (is_new) {
        kernels.push_back({.root = added});
      } else {
        graph->nodes.pop_back();
      }
      k.packed = it->second;
    }
    kernels.push_back(k);
  }
  genome->kernels = std::ssize(graph->nodes) == first_pack
                        ? std::move(kernels)
                        : PackedChains(*graph, kernels, first_pack).Drop();
}

}  // namespace athanor
