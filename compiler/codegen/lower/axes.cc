#include "compiler/codegen/lower/axes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/state_layout.h"

namespace athanor {
namespace {

bool AffineIn(const std::vector<Expr>& indices, const std::string& symbol) {
  return std::all_of(indices.begin(), indices.end(),
                     [&](const Expr& e) { return e.AsAffine(symbol).has_value(); });
}

std::vector<Expr> IndexExpressions(const LowerInput& in, NodeId root, const Coordinates& at,
                                   const Bounds& bounds) {
  Accesses a = CollectAccesses(in.graph, in.has_memory, root, at, bounds);
  std::vector<Expr> indices = std::move(a.indices);
  for (const Access& load : a.loads) {
    indices.push_back(bounds.Simplify(MemoryOffset(in.graph, load.node, load.coordinates)));
  }
  // EmbeddingBags walk their rows with scalar bounds.
  for (const Access& r : a.reductions) {
    if (FormOf(in.graph.node(r.node).op) == OpForm::kBags) indices.push_back(r.coordinates[0]);
  }
  return indices;
}

// Merges axes i and i+1 into one if every index expression stays affine in it. `bounds` are those
// of the axes' symbols, and then also of the merged axis.
void TryMerge(const LowerInput& in, NodeId root, Axes& axes, size_t i, Bounds& bounds) {
  const std::string& symbol = axes.symbols[i];
  Expr f = Expr::Symbol(symbol);
  const Expr& inner = axes.extents[i + 1];
  std::map<std::string, Expr, std::less<>> split = {{symbol, FloorDiv(f, inner)},
                                                    {axes.symbols[i + 1], Mod(f, inner)}};
  Expr extent = axes.extents[i] * inner;
  Bounds merged = bounds;
  merged.SetExtent(symbol, extent);
  Coordinates at;
  for (const Expr& c : axes.root) at.push_back(merged.Simplify(c.Substitute(split)));
  if (!AffineIn(IndexExpressions(in, root, at, merged), symbol)) return;
  bounds = std::move(merged);
  axes.root = std::move(at);
  axes.extents[i] = extent;
  axes.symbols.erase(axes.symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  axes.extents.erase(axes.extents.begin() + static_cast<std::ptrdiff_t>(i) + 1);
}

bool HasBag(const LowerInput& in, NodeId root, const Axes& axes, const Bounds& bounds) {
  Accesses a = CollectAccesses(in.graph, in.has_memory, root, axes.root, bounds);
  return std::any_of(a.reductions.begin(), a.reductions.end(), [&](const Access& r) {
    return FormOf(in.graph.node(r.node).op) == OpForm::kBags;
  });
}

}  // namespace

Axes RootAxes(const Node& root) {
  Axes axes;
  for (size_t i = 0; i < root.type.shape.size(); ++i) {
    if (root.type.shape[i].IsConstant(1)) {
      axes.root.push_back(0);
      continue;
    }
    axes.symbols.push_back(absl::StrCat("x", i));
    axes.extents.push_back(root.type.shape[i]);
    axes.root.push_back(Expr::Symbol(axes.symbols.back()));
  }
  if (axes.extents.empty()) {
    axes.symbols.push_back("x");
    axes.extents.push_back(1);
  }
  return axes;
}

void MergeAxes(const LowerInput& in, NodeId root, Axes& axes, Bounds bounds) {
  for (size_t i = 0; i < axes.symbols.size(); ++i)
    bounds.SetExtent(axes.symbols[i], axes.extents[i]);
  if (HasBag(in, root, axes, bounds)) return;
  // From the last axis outwards: the lanes run along it, so it should be long.
  for (size_t i = axes.extents.size(); i-- > 1;) {
    if (i < axes.extents.size()) TryMerge(in, root, axes, i - 1, bounds);
  }
}

int WidestBytes(const LowerInput& in, NodeId root, const Coordinates& at, const Bounds& bounds) {
  return CollectAccesses(in.graph, in.has_memory, root, at, bounds).widest_bytes;
}

Coordinates Place(const Axes& axes, const Coordinates& values) {
  std::map<std::string, Expr, std::less<>> at;
  for (size_t i = 0; i < values.size(); ++i) at[axes.symbols[i]] = values[i];
  Coordinates c;
  for (const Expr& e : axes.root) c.push_back(e.Substitute(at));
  return c;
}

}  // namespace athanor
