// A write into a state: an item a row of the update, which goes to the slot that the index says.
// What the update is computed from is computed here, element by element, so rotary embeddings and
// casts need no memory of their own.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/search/kernels/access.h"

namespace athanor {
namespace {

// Returns the bytes of the widest dtype that an element of the update is computed with.
int WidestOf(const KernelBuilder& b, NodeId update) {
  const TensorType& type = b.input.graph.node(update).type;
  const int own = DTypeBytes(AccumulatorOf(type.dtype));
  if (b.input.has_memory[update]) return own;
  Bounds bounds = b.emitter.bounds();
  Coordinates at;
  for (const Expr& extent : type.shape) {
    const std::string name = absl::StrCat("x", at.size());
    bounds.SetExtent(name, extent);
    at.push_back(Expr::Symbol(name));
  }
  const Accesses accesses = CollectAccesses(b.input.graph, b.input.has_memory, update, at, bounds);
  return std::max(own, accesses.widest_bytes);
}

}  // namespace

// Items that are given one slot write it in any order, an element each.
absl::Status LowerStateWrite(KernelBuilder& b) {
  kir::Emitter& e = b.emitter;
  const Expr& slots = b.root.type.shape[0];
  const NodeId update = b.root.inputs[2];
  const Shape& shape = b.input.graph.node(update).type.shape;
  const Coordinates row = b.SplitItem({shape[0]});
  const kir::Var slot = e.Cast(b.at.At(b.root.inputs[1], row), DType::kI64);
  const kir::Var inside = e.CheckIndex(slot, slots, {});
  e.bounds().SetExtent(e.Symbol(slot).ToString(), slots);
  Coordinates from = row, to = {e.Symbol(slot)};
  const auto store = [&](const Expr& last, int lanes) {
    Coordinates source = from, target = to;
    if (shape.size() > 1) {
      source.push_back(last);
      target.push_back(last);
    }
    const kir::Var value = b.at.At(update, source);
    e.Store(b.out, b.at.Offset(b.choice.root, target), e.Broadcast(value, lanes), b.at.mask());
  };
  const std::function<void(size_t)> nest = [&](size_t axis) {
    if (axis == shape.size()) return store(0, 1);
    if (axis + 1 < shape.size()) {
      return e.For(0, shape[axis], 1, [&](const Expr& i) {
        from.push_back(i);
        to.push_back(i);
        nest(axis + 1);
        from.pop_back();
        to.pop_back();
      });
    }
    const int lanes = b.LanesFor(WidestOf(b, update));
    e.VectorFor(0, shape[axis], lanes, [&](const Expr& i, const std::optional<Expr>& count) {
      PointLowering::Context context(&b.at, lanes, count);
      store(i + e.Lane(lanes), lanes);
    });
  };
  e.If(inside, [&] { nest(1); });
  return absl::OkStatus();
}

}  // namespace athanor
