#include "compiler/search/kernels/state_layout.h"

#include "compiler/ir/graph/state.h"
#include "compiler/search/kernels/access.h"

namespace athanor {
namespace {

constexpr std::string_view kKeys = "keys16", kValues = "values16";

// A slot as its group and its place in there.
template <typename Number>
struct Split {
  Number group, place;
};

// Keys: [group][head][d][place]; values: [group][head][place][d].
template <typename Number>
Number Offset(bool keys, const Split<Number>& slot, const Number& head, const Number& d,
              const Number& heads, const Number& width) {
  const Number row = (slot.group * heads + head) * width;
  return keys ? (row + d) * kStateGroup + slot.place : row * kStateGroup + slot.place * width + d;
}

}  // namespace

std::string StateLayout(std::string_view role, const Shape& shape) {
  if (role.empty() || !Mod(shape[0], kStateGroup).IsConstant(0)) return "";
  return std::string(role == "keys" ? kKeys : kValues);
}

Expr StateOffset(std::string_view role, const Shape& shape, const std::vector<Expr>& at) {
  const std::string layout = StateLayout(role, shape);
  if (layout.empty()) return RowMajorOffset(shape, at);
  return Offset<Expr>(layout == kKeys, {FloorDiv(at[0], kStateGroup), Mod(at[0], kStateGroup)},
                      at[1], at[2], shape[1], shape[2]);
}

int64_t StatePlace(std::string_view layout, absl::Span<const int64_t> sizes, int64_t element) {
  if (layout.empty()) return element;
  const int64_t heads = sizes[1], width = sizes[2];
  const int64_t slot = element / (heads * width);
  return Offset<int64_t>(layout == kKeys, {slot / kStateGroup, slot % kStateGroup},
                         element / width % heads, element % width, heads, width);
}

Expr MemoryOffset(const Graph& graph, NodeId node, const std::vector<Expr>& at) {
  const Node& own = graph.node(node);
  if (!IsState(own.op)) return RowMajorOffset(own.type.shape, at);
  const Node& state = IsStateWrite(own.op) ? graph.node(own.inputs[0]) : own;
  return StateOffset(RoleOf(state), state.type.shape, at);
}

}  // namespace athanor
