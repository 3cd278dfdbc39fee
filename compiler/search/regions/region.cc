#include "compiler/search/regions/region.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/search/kernels/fusion.h"

namespace athanor {
namespace {

// A larger literal is known by its type only, like a weight.
constexpr size_t kMaxLiteralBytes = 64 << 10;
// A longer chain of views belongs to a region.
constexpr int kMaxCopied = 4;

// Returns what a region may know of a leaf that stands for `node`: a state's role, or facts about
// the contents.
Attrs LeafAttrs(const Graph& graph, const Node& node) {
  if (IsStateWrite(node.op)) return graph.node(node.inputs[0]).attrs;
  if (IsParameter(node.op) || IsStateRead(node.op)) return node.attrs;
  if (!IsConstant(node.op)) return {};
  const Tensor& value = GetAttr<Tensor>(node.attrs, "value");
  Node parameter{DeclaredOp(/*parameter=*/true)};
  SetMagnitude(MagnitudeOf(value.dtype, value.bytes), &parameter);
  return parameter.attrs;
}

// Gives equal byte strings equal numbers.
class Numbers {
 public:
  int Of(std::string bytes) {
    return numbers_.try_emplace(std::move(bytes), static_cast<int>(numbers_.size())).first->second;
  }

 private:
  absl::flat_hash_map<std::string, int> numbers_;
};

// A region node by node, before its graph is made.
struct Draft {
  struct Item {
    NodeId node;              // copied, or stood for by a leaf
    Op leaf;                  // kInput, kParameter, kStateRead; else the node's own op
    bool inside;              // the node is in the interval
    std::vector<int> inputs;  // indices in `items`
  };
  std::vector<Item> items;
  std::vector<int> results;
  RegionInstance instance;
};

class RegionCutter {
 public:
  explicit RegionCutter(const Graph& graph) : graph_(graph), weights_(WeightsOf(graph)) {
    FindCopied();
    FindOrder();
    NumberNodes();
  }

  const std::vector<NodeId>& order() const { return order_; }
  CutSequence Sequence() const;
  Regions Make(const std::vector<int>& cuts);

 private:
  const Node& node(NodeId n) const { return graph_.nodes[n]; }
  bool IsLeaf(NodeId n) const {
    return IsDeclared(node(n).op) || (IsConstant(node(n).op) && !IsCopied(n));
  }
  bool IsCopied(NodeId n) const { return copied_[n] > 0; }

  void FindCopied();
  void FindOrder();
  void NumberNodes();
  Draft MakeDraft(int begin, int end) const;
  std::vector<int> Fingerprint(const Draft& draft) const;
  Graph MakeGraph(const Draft& draft) const;

  const Graph& graph_;
  const std::vector<bool> weights_;
  std::vector<int> copied_;  // 0: not copied; else the length of the copied chain
  std::vector<NodeId> order_;
  std::vector<int> place_;            // index in order_; -1: in no region
  std::vector<bool> needed_outside_;  // graph outputs and updates
  std::vector<int> last_use_;         // last place that uses the node
  Numbers numbers_;
  // Equal payload_: equal op, attributes and type. Equal type_: equal type and known facts about
  // the contents.
  std::vector<int> payload_, type_;
  std::vector<Attrs> leaf_attrs_;  // of a leaf that stands for the node
};

void RegionCutter::FindCopied() {
  copied_.assign(graph_.nodes.size(), 0);
  for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
    const Node& x = node(n);
    if (FormOf(x.op) == OpForm::kCount) copied_[n] = 1;
    if (IsConstant(x.op) && GetAttr<Tensor>(x.attrs, "value").bytes.size() <= kMaxLiteralBytes) {
      copied_[n] = 1;
    }
    if (!IsIndexMap(x.op)) continue;
    const NodeId viewed = x.inputs[0];
    if ((IsCopied(viewed) || IsLeaf(viewed)) && copied_[viewed] < kMaxCopied) {
      copied_[n] = copied_[viewed] + 1;
    }
  }
}

// Walks with a stack of its own, because graphs may be deeper than the call stack allows.
void RegionCutter::FindOrder() {
  const size_t count = graph_.nodes.size();
  std::vector<int> depth(count, 0);
  for (size_t n = 0; n < count; ++n) {
    for (NodeId i : graph_.nodes[n].inputs) depth[n] = std::max(depth[n], depth[i] + 1);
  }
  std::vector<NodeId> ends;
  for (const Output& o : graph_.outputs) ends.push_back(o.node);
  ends.insert(ends.end(), graph_.updates.begin(), graph_.updates.end());
  std::vector<std::pair<int, int>> roots;  // depth and index of an end
  needed_outside_.assign(count, false);
  for (const NodeId end : ends) {
    roots.emplace_back(depth[end], static_cast<int>(roots.size()));
    needed_outside_[end] = true;
  }
  std::sort(roots.begin(), roots.end());
  place_.assign(count, -1);
  std::vector<std::pair<NodeId, size_t>> stack;
  const auto enter = [&](NodeId n) {
    if (place_[n] < 0 && !IsLeaf(n) && !IsCopied(n)) stack.emplace_back(n, 0);
  };
  for (const auto& [root_depth, end] : roots) {
    enter(ends[end]);
    while (!stack.empty()) {
      const NodeId n = stack.back().first;
      if (place_[n] >= 0) {
        stack.pop_back();
      } else if (stack.back().second < node(n).inputs.size()) {
        enter(node(n).inputs[stack.back().second++]);
      } else {
        place_[n] = static_cast<int>(order_.size());
        order_.push_back(n);
        stack.pop_back();
      }
    }
  }
  last_use_.assign(count, -1);
  for (size_t i = 0; i < order_.size(); ++i) {
    for (NodeId operand : node(order_[i]).inputs) last_use_[operand] = static_cast<int>(i);
  }
}

void RegionCutter::NumberNodes() {
  for (const Node& x : graph_.nodes) {
    std::string bytes;
    EncodeNode({x.op, {}, x.attrs, x.type, ""}, &bytes);
    payload_.push_back(numbers_.Of(std::move(bytes)));
    bytes.clear();
    leaf_attrs_.push_back(LeafAttrs(graph_, x));
    EncodeNode({DeclaredOp(/*parameter=*/false), {}, leaf_attrs_.back(), x.type, ""}, &bytes);
    type_.push_back(numbers_.Of(std::move(bytes)));
  }
}

// Nodes look alike if their op, attributes and type are equal and their operands are of the same
// kinds and types. The source of an operand is left to the comparison of regions: the first layer
// reads an input where the others read a result.
CutSequence RegionCutter::Sequence() const {
  enum Kind { kWeight, kCopy, kValue };
  CutSequence sequence;
  std::map<std::vector<int>, int> symbols;
  sequence.operands.resize(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    std::vector<int> look = {payload_[order_[i]]};
    for (NodeId operand : node(order_[i]).inputs) {
      const Kind kind = IsCopied(operand) ? kCopy : weights_[operand] ? kWeight : kValue;
      look.push_back(kind);
      look.push_back(kind == kCopy ? payload_[operand] : type_[operand]);
      if (place_[operand] >= 0) sequence.operands[i].push_back(place_[operand]);
    }
    sequence.symbols.push_back(
        symbols.try_emplace(std::move(look), static_cast<int>(symbols.size())).first->second);
  }
  return sequence;
}

// Lists the items in the order in which they are met, which is canonical for equal intervals.
Draft RegionCutter::MakeDraft(int begin, int end) const {
  Draft draft;
  absl::flat_hash_map<NodeId, int> at;
  // Recurses no deeper than a chain of views.
  const auto visit = [&](auto& self, NodeId n) -> int {
    const auto found = at.find(n);
    if (found != at.end()) return found->second;
    Draft::Item item{n, node(n).op, place_[n] >= begin && place_[n] < end, {}};
    if (item.inside || IsCopied(n)) {
      for (NodeId operand : node(n).inputs) item.inputs.push_back(self(self, operand));
    } else if (IsState(node(n).op)) {
      // Another region's write is this one's state, as it is a task's.
      item.leaf = Op::kStateRead;
      draft.instance.states.push_back(n);
    } else {
      item.leaf = DeclaredOp(weights_[n]);
      (weights_[n] ? draft.instance.parameters : draft.instance.inputs).push_back(n);
    }
    const int place = static_cast<int>(draft.items.size());
    draft.items.push_back(std::move(item));
    at[n] = place;
    return place;
  };
  for (int i = begin; i < end; ++i) {
    const NodeId n = order_[i];
    const int place = visit(visit, n);
    draft.instance.nodes.push_back(n);
    if (!needed_outside_[n] && last_use_[n] < end) continue;
    draft.results.push_back(place);
    draft.instance.results.push_back(n);
  }
  return draft;
}

// Returns equal numbers for drafts that give equal graphs.
std::vector<int> RegionCutter::Fingerprint(const Draft& draft) const {
  std::vector<int> numbers;
  for (const Draft::Item& item : draft.items) {
    const bool stands_in = IsDeclared(item.leaf);
    numbers.push_back(stands_in ? type_[item.node] : payload_[item.node]);
    numbers.push_back(static_cast<int>(item.leaf));
    numbers.push_back(static_cast<int>(item.inputs.size()));
    numbers.insert(numbers.end(), item.inputs.begin(), item.inputs.end());
  }
  numbers.push_back(-1);
  numbers.insert(numbers.end(), draft.results.begin(), draft.results.end());
  return numbers;
}

Graph RegionCutter::MakeGraph(const Draft& draft) const {
  Graph region;
  region.name = "region";
  region.dims = graph_.dims;
  int inputs = 0, parameters = 0, states = 0;
  for (const Draft::Item& item : draft.items) {
    const Node& from = node(item.node);
    Node made{item.leaf, {item.inputs.begin(), item.inputs.end()}, {}, from.type, ""};
    if (IsInput(item.leaf)) {
      made.name = absl::StrCat("x", inputs++);
    } else if (IsParameter(item.leaf)) {
      made.name = absl::StrCat("p", parameters++);
      made.attrs = leaf_attrs_[item.node];
    } else if (IsStateRead(item.leaf)) {
      made.name = absl::StrCat("s", states++);
      made.attrs = leaf_attrs_[item.node];
    } else {
      made.attrs = from.attrs;
    }
    if (IsStateWrite(item.leaf)) region.updates.push_back(static_cast<NodeId>(region.nodes.size()));
    region.nodes.push_back(std::move(made));
  }
  for (size_t i = 0; i < draft.results.size(); ++i) {
    region.outputs.push_back({absl::StrCat("y", i), draft.results[i]});
  }
  return region;
}

// A dim's name means the same dim in all regions; its bounds are facts.
std::string KeyOf(const Graph& region) {
  std::vector<std::string> dims;
  Canonicalize(region, &dims);
  std::string key = CanonicalHash(region);
  for (const std::string& name : dims) {
    const auto dim = std::find_if(region.dims.begin(), region.dims.end(),
                                  [&](const Dim& d) { return d.name == name; });
    absl::StrAppend(&key, " ", name, "[", dim->min, ",", dim->max, "]");
  }
  return key;
}

Regions RegionCutter::Make(const std::vector<int>& cuts) {
  Regions regions;
  std::map<std::vector<int>, int> by_fingerprint;
  std::map<std::string, int> by_key;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    Draft draft = MakeDraft(cuts[i], cuts[i + 1]);
    // Most intervals repeat an earlier one: comparing fingerprints saves making and hashing a
    // graph.
    const auto [same, fresh] = by_fingerprint.try_emplace(Fingerprint(draft), 0);
    if (fresh) {
      Region region{.graph = MakeGraph(draft), .nodes = cuts[i + 1] - cuts[i]};
      region.key = KeyOf(region.graph);
      const auto [known, first] =
          by_key.try_emplace(region.key, static_cast<int>(regions.distinct.size()));
      if (first) regions.distinct.push_back(std::move(region));
      same->second = known->second;
    }
    draft.instance.region = same->second;
    ++regions.distinct[same->second].instances;
    regions.instances.push_back(std::move(draft.instance));
  }
  return regions;
}

}  // namespace

Regions CutRegions(const Graph& graph, const CutOptions& options) {
  RegionCutter cutter(graph);
  return cutter.Make(ChooseCuts(cutter.Sequence(), options));
}

Regions JoinRegions(const Graph& graph, const Regions& regions, int first, int second) {
  std::vector<int> cuts = {0};
  const std::vector<RegionInstance>& all = regions.instances;
  int end = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    end += static_cast<int>(all[i].nodes.size());
    if (all[i].region == first && i + 1 < all.size() && all[i + 1].region == second) {
      end += static_cast<int>(all[++i].nodes.size());
    }
    cuts.push_back(end);
  }
  return RegionCutter(graph).Make(cuts);
}

}  // namespace athanor
