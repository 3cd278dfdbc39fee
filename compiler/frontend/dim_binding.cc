#include "compiler/frontend/dim_binding.h"

#include <set>

#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

std::set<std::string> UsedDims(const Graph& graph) {
  std::set<std::string> used;
  for (const Node& node : graph.nodes) {
    for (const Expr& size : node.type.shape) size.CollectSymbols(&used);
    ForEachExpr(node.attrs, [&](const Expr& e) { e.CollectSymbols(&used); });
  }
  return used;
}

// Dims that the sizes of states give.
std::set<std::string> StateDims(const Graph& graph) {
  std::set<std::string> given;
  for (NodeId id : graph.StateIds()) {
    for (const Expr& size : graph.node(id).type.shape) size.CollectSymbols(&given);
  }
  return given;
}

}  // namespace

int DimBinding::DimIndex(const std::string& name) const {
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

// Finds an axis with exactly one unsolved dim, in which it is affine with a stride that is never 0.
// If `simple`, finds only an axis that is just that dim.
bool DimBinding::SolveNext(bool simple, const Bounds& bounds, std::vector<bool>* solved) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (size_t a = 0; a < inputs_[i].axes.size(); ++a) {
      if (simple && inputs_[i].axes[a].dim < 0) continue;
      std::set<std::string> symbols;
      inputs_[i].axes[a].size.CollectSymbols(&symbols);
      int unsolved = -1, count = 0;
      for (const std::string& symbol : symbols) {
        const int dim = DimIndex(symbol);
        if (dim >= 0 && !(*solved)[dim]) {
          unsolved = dim;
          ++count;
        }
      }
      if (count != 1) continue;
      std::optional<Expr::Affine> affine = inputs_[i].axes[a].size.AsAffine(dims_[unsolved].name);
      if (!affine ||
          !(bounds.NonNegative(affine->stride - 1) || bounds.NonNegative(-1 - affine->stride))) {
        continue;
      }
      solutions_.push_back(
          {unsolved, static_cast<int>(i), static_cast<int>(a), affine->base, affine->stride});
      (*solved)[unsolved] = true;
      return true;
    }
  }
  return false;
}

absl::StatusOr<DimBinding> DimBinding::Create(const Graph& graph) {
  DimBinding binding;
  binding.dims_ = graph.dims;
  for (NodeId id : graph.InputIds()) {
    Input input{graph.node(id).name, {}};
    for (const Expr& size : graph.node(id).type.shape) {
      Axis axis{size, size.constant(), -1};
      if (std::optional<std::string> symbol = size.symbol()) axis.dim = binding.DimIndex(*symbol);
      binding.compound_ |= !axis.constant && axis.dim < 0;
      input.axes.push_back(std::move(axis));
    }
    binding.inputs_.push_back(std::move(input));
  }
  std::vector<bool> solved(graph.dims.size(), false);
  const Bounds bounds = graph.DimBounds();
  while (binding.SolveNext(true, bounds, &solved) || binding.SolveNext(false, bounds, &solved)) {
  }
  const std::set<std::string> used = UsedDims(graph), given = StateDims(graph);
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    const std::string& name = graph.dims[i].name;
    if (solved[i] || !used.contains(name) || given.contains(name)) continue;
    return Invalid(
        "dim ", Quoted(name),
        " does not follow from the shapes of the "
        "inputs: some input needs an axis of that size, or of a multiple plus a constant");
  }
  return binding;
}

std::string DimBinding::ShapeText(const Input& input) const {
  Shape shape;
  for (const Axis& axis : input.axes) shape.push_back(axis.size);
  return ShapeToString(shape);
}

absl::Status DimBinding::CheckRanks(absl::Span<const absl::Span<const int64_t>> shapes) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (shapes[i].size() != input.axes.size()) {
      return Invalid("input ", Quoted(input.name), ": shape has ", shapes[i].size(),
                     " axes; the model takes ", ShapeText(input));
    }
    for (size_t a = 0; a < shapes[i].size(); ++a) {
      if (shapes[i][a] >= 0) continue;
      return Invalid("input ", Quoted(input.name), ": axis ", a, " is ", shapes[i][a],
                     "; sizes must not be negative");
    }
  }
  return absl::OkStatus();
}

Expr::Env DimBinding::EnvOf(absl::Span<const int64_t> dims) const {
  Expr::Env env;
  for (size_t i = 0; i < dims_.size(); ++i) env[dims_[i].name] = dims[i];
  return env;
}

absl::Status DimBinding::Solve(const Solution& solution, int64_t size,
                               std::vector<int64_t>* dims) const {
  const Dim& dim = dims_[solution.dim];
  const Input& input = inputs_[solution.input];
  int64_t value = size;
  if (input.axes[solution.axis].dim < 0) {
    const Expr::Env env = EnvOf(*dims);
    const std::optional<int64_t> base = solution.base.Evaluate(env);
    const std::optional<int64_t> stride = solution.stride.Evaluate(env);
    int64_t rest = 0;
    // INT64_MIN / -1 has no value, and no dim has that size.
    const bool whole = base && stride && *stride != 0 &&
                       !__builtin_sub_overflow(size, *base, &rest) && rest != INT64_MIN &&
                       rest % *stride == 0;
    if (!whole) {
      return Invalid("input ", Quoted(input.name), ": axis ", solution.axis, " is ", size,
                     "; no value of dim ", Quoted(dim.name), " gives ",
                     input.axes[solution.axis].size.ToString(), " this size");
    }
    value = rest / *stride;
  }
  if (value < dim.min || value > dim.max) {
    return Invalid("input ", Quoted(input.name), ": axis ", solution.axis, " is ", size,
                   ", which makes dim ", Quoted(dim.name), " ", value, "; it must be in [", dim.min,
                   ", ", dim.max, "]");
  }
  (*dims)[solution.dim] = value;
  return absl::OkStatus();
}

absl::Status DimBinding::CheckAxis(size_t input, size_t axis, int64_t size,
                                   absl::Span<const int64_t> dims, const Expr::Env& env) const {
  const Axis& wanted = inputs_[input].axes[axis];
  const std::optional<int64_t> expected = wanted.constant   ? wanted.constant
                                          : wanted.dim >= 0 ? dims[wanted.dim]
                                                            : wanted.size.Evaluate(env);
  if (expected == size) return absl::OkStatus();
  const std::string prefix =
      Cat("input ", Quoted(inputs_[input].name), ": axis ", axis, " is ", size);
  if (wanted.constant) {
    return Invalid(prefix, "; it must be ", *wanted.constant, " (the model takes ",
                   ShapeText(inputs_[input]), ")");
  }
  return Invalid(prefix, "; it must be ", wanted.size.ToString(),
                 expected ? Cat(", which is ", *expected, " by the shapes of the other axes") : "");
}

absl::Status DimBinding::Bind(absl::Span<const absl::Span<const int64_t>> shapes,
                              std::vector<int64_t>* dims) const {
  if (shapes.size() != inputs_.size()) {
    return Invalid(shapes.size(), " shapes for ", inputs_.size(), " inputs");
  }
  RETURN_IF_ERROR(CheckRanks(shapes));
  dims->clear();
  for (const Dim& dim : dims_) dims->push_back(dim.min);
  for (const Solution& solution : solutions_) {
    const int64_t size = shapes[solution.input][solution.axis];
    RETURN_IF_ERROR(Solve(solution, size, dims));
  }
  const Expr::Env env = compound_ ? EnvOf(*dims) : Expr::Env();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (size_t a = 0; a < inputs_[i].axes.size(); ++a) {
      RETURN_IF_ERROR(CheckAxis(i, a, shapes[i][a], *dims, env));
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
