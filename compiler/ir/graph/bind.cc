// Solves dims from the concrete shapes of inputs.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Axis `axis` of node `id` has size `size`.
struct AxisSize {
  NodeId id;
  int axis;
  const Expr* size;
};

std::vector<AxisSize> AxesOf(const Graph& graph, const std::vector<NodeId>& ids) {
  std::vector<AxisSize> axes;
  for (NodeId id : ids) {
    const Shape& shape = graph.nodes[id].type.shape;
    for (size_t i = 0; i < shape.size(); ++i) axes.push_back({id, static_cast<int>(i), &shape[i]});
  }
  return axes;
}

// Returns the symbols of `e` for which `known` is false.
std::vector<std::string> Unknowns(const Expr& e,
                                  const std::function<bool(const std::string&)>& known) {
  std::vector<std::string> unknowns;
  if (e.constant()) return unknowns;
  std::set<std::string> symbols;
  e.CollectSymbols(&symbols);
  for (const std::string& symbol : symbols) {
    if (!known(symbol)) unknowns.push_back(symbol);
  }
  return unknowns;
}

class Binder {
 public:
  explicit Binder(const Graph& graph) : graph_(graph) {}

  // Returns true if the axis is settled, false if it needs dims that are not known yet.
  absl::StatusOr<bool> Settle(const AxisSize& axis, int64_t value) {
    const std::vector<std::string> unknowns =
        Unknowns(*axis.size, [this](const std::string& name) { return env_.contains(name); });
    if (unknowns.empty()) return Compare(axis, value);
    if (unknowns.size() > 1) return false;
    const std::optional<Expr::Affine> affine = axis.size->AsAffine(unknowns[0]);
    if (!affine) return false;
    const std::optional<int64_t> base = affine->base.Evaluate(env_);
    const std::optional<int64_t> stride = affine->stride.Evaluate(env_);
    int64_t rest;
    if (!base || !stride || *stride == 0 || __builtin_sub_overflow(value, *base, &rest)) {
      return false;
    }
    if (*stride == -1 ? rest == INT64_MIN : rest % *stride != 0) {
      return Invalid(Place(axis), " is ", value, ", but no integer ", unknowns[0],
                     " gives its size ", axis.size->ToString(), " this value");
    }
    return Bind(axis, value, unknowns[0], rest / *stride);
  }

  const Expr::Env& env() const { return env_; }

 private:
  std::string Place(const AxisSize& axis) const {
    return Cat(graph_.Describe(axis.id), " axis ", axis.axis);
  }

  absl::StatusOr<bool> Compare(const AxisSize& axis, int64_t value) const {
    const std::optional<int64_t> size = axis.size->Evaluate(env_);
    if (size == value) return true;
    std::string given;
    std::set<std::string> symbols;
    axis.size->CollectSymbols(&symbols);
    for (const std::string& symbol : symbols) {
      given += Cat(given.empty() ? " with " : ", ", symbol, " = ", env_.at(symbol));
    }
    return Invalid(Place(axis), " is ", value, "; it must be ", axis.size->ToString(),
                   given.empty() ? "" : Cat(" = ", size ? Cat(*size) : "a number beyond 64 bits"),
                   given);
  }

  absl::StatusOr<bool> Bind(const AxisSize& axis, int64_t value, const std::string& name,
                            int64_t size) {
    for (const Dim& dim : graph_.dims) {
      if (dim.name != name) continue;
      if (size < dim.min || size > dim.max) {
        return Invalid(Place(axis), " is ", value, ", so dim ", name, " is ", size,
                       "; it must be in [", dim.min, ", ", dim.max, "]");
      }
      env_.emplace(name, size);
      return true;
    }
    return Invalid(Place(axis), ": ", Quoted(name), " is not a dim of the graph");
  }

  const Graph& graph_;
  Expr::Env env_;
};

absl::Status CheckShape(const Graph& graph, NodeId id, absl::Span<const int64_t> shape) {
  const Shape& declared = graph.nodes[id].type.shape;
  if (shape.size() != declared.size()) {
    return Invalid(graph.Describe(id), " has rank ", shape.size(), "; it must have rank ",
                   declared.size(), ", as in ", ShapeToString(declared));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0) continue;
    return Invalid(graph.Describe(id), " axis ", i, " is ", shape[i], "; it must not be negative");
  }
  return absl::OkStatus();
}

std::set<std::string> UsedDims(const Graph& graph) {
  std::set<std::string> used;
  const auto use = [&](const Shape& shape) {
    for (const Expr& e : shape) e.CollectSymbols(&used);
  };
  for (const Node& node : graph.nodes) {
    use(node.type.shape);
    ForEachExpr(node.attrs, [&](const Expr& e) { e.CollectSymbols(&used); });
  }
  std::erase_if(used, [](const std::string& symbol) { return symbol[0] == '$'; });
  return used;
}

// Reports whether the axis' size, as a value, gives the only dim in it that is not known yet.
bool Determines(const Expr& size, const std::string& unknown, const Bounds& bounds) {
  const std::optional<Expr::Affine> affine = size.AsAffine(unknown);
  return affine &&
         (bounds.NonNegative(affine->stride - 1) || bounds.NonNegative(-1 - affine->stride));
}

}  // namespace

absl::StatusOr<Expr::Env> BindDims(const Graph& graph,
                                   absl::Span<const std::vector<int64_t>> shapes) {
  std::vector<NodeId> ids = graph.ArgumentIds();
  const size_t inputs = graph.InputIds().size(), states = graph.StateIds().size();
  if (shapes.size() == inputs || shapes.size() + states == ids.size()) ids.resize(shapes.size());
  if (shapes.size() != ids.size()) {
    return Invalid("got ", shapes.size(), " shapes; the graph has ", inputs, " inputs and ",
                   ids.size() - inputs - states, " parameters",
                   states > 0 ? Cat(" and ", states, " states") : "");
  }
  std::map<NodeId, const std::vector<int64_t>*> shape_of;
  for (size_t i = 0; i < ids.size(); ++i) {
    RETURN_IF_ERROR(CheckShape(graph, ids[i], shapes[i]));
    shape_of[ids[i]] = &shapes[i];
  }
  // Each round solves the axes with one unknown dim, which may leave others with one. Ends when a
  // round solves none.
  Binder binder(graph);
  std::vector<AxisSize> pending = AxesOf(graph, ids);
  for (size_t before = pending.size() + 1; !pending.empty() && pending.size() < before;) {
    before = pending.size();
    std::vector<AxisSize> later;
    for (const AxisSize& axis : pending) {
      ASSIGN_OR_RETURN(bool settled, binder.Settle(axis, (*shape_of[axis.id])[axis.axis]));
      if (!settled) later.push_back(axis);
    }
    pending = std::move(later);
  }
  if (!pending.empty()) {
    return Invalid("the dims in ", graph.Describe(pending[0].id), " axis ", pending[0].axis, ", ",
                   pending[0].size->ToString(), ", do not follow from the inputs' shapes");
  }
  return binder.env();
}

absl::Status VerifyBindable(const Graph& graph) {
  const Bounds bounds = graph.DimBounds();
  std::set<std::string> known;
  std::vector<NodeId> ids = graph.InputIds();
  for (NodeId state : graph.StateIds()) ids.push_back(state);
  std::vector<AxisSize> pending = AxesOf(graph, ids);
  for (size_t before = pending.size() + 1; !pending.empty() && pending.size() < before;) {
    before = pending.size();
    std::vector<AxisSize> later;
    for (const AxisSize& axis : pending) {
      const std::vector<std::string> unknowns =
          Unknowns(*axis.size, [&](const std::string& name) { return known.contains(name); });
      if (unknowns.size() == 1 && Determines(*axis.size, unknowns[0], bounds)) {
        known.insert(unknowns[0]);
      } else if (!unknowns.empty()) {
        later.push_back(axis);
      }
    }
    pending = std::move(later);
  }
  for (const std::string& dim : UsedDims(graph)) {
    if (known.contains(dim)) continue;
    return Invalid("dim ", dim,
                   " does not follow from the inputs' shapes: some input needs an axis "
                   "of size ",
                   dim, ", or linear in it");
  }
  return absl::OkStatus();
}

}  // namespace athanor
