#include "compiler/frontend/index_check.h"

#include <cstring>
#include <optional>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Returns the nodes that some output needs.
std::vector<bool> LiveNodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const Output& output : graph.outputs) live[output.node] = true;
  for (NodeId update : graph.updates) live[update] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (!live[i]) continue;
    for (NodeId input : graph.nodes[i].inputs) live[input] = true;
  }
  return live;
}

// Returns an element's exact value; nullopt for a u64 outside int64, which is out of every range.
template <typename T>
std::optional<int64_t> ElementAt(std::string_view bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  if (std::is_same_v<T, uint64_t> && value > static_cast<T>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(value);
}

template <typename T>
std::string ElementText(std::string_view bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return Cat("element ", i, " is ", +value);
}

// Returns what is wrong with indices of type T, or an empty string.
template <typename T>
std::string WrongIndex(std::string_view bytes, int64_t size) {
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    const std::optional<int64_t> value = ElementAt<T>(bytes, i);
    if (value && *value >= 0 && *value < size) continue;
    return Cat(ElementText<T>(bytes, i), "; it must be in [0, ", size, ")");
  }
  return "";
}

template <typename T>
std::string WrongOffset(std::string_view bytes, int64_t size) {
  int64_t last = 0;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    const std::optional<int64_t> value = ElementAt<T>(bytes, i);
    if (i == 0 && value != 0) return Cat(ElementText<T>(bytes, i), "; the first offset must be 0");
    if (!value || *value < last || *value > size) {
      return Cat(ElementText<T>(bytes, i), "; it must be in [", last, ", ", size,
                 "], as offsets never decrease");
    }
    last = *value;
  }
  if (bytes.empty() && size > 0) return Cat("is empty, but there are ", size, " ids");
  return "";
}

template <typename T>
std::string Wrong(bool offsets, std::string_view bytes, int64_t size) {
  return offsets ? WrongOffset<T>(bytes, size) : WrongIndex<T>(bytes, size);
}

std::string WrongOf(DType dtype, bool offsets, std::string_view bytes, int64_t size) {
  switch (dtype) {
    case DType::kI8:
      return Wrong<int8_t>(offsets, bytes, size);
    case DType::kU8:
      return Wrong<uint8_t>(offsets, bytes, size);
    case DType::kI16:
      return Wrong<int16_t>(offsets, bytes, size);
    case DType::kU16:
      return Wrong<uint16_t>(offsets, bytes, size);
    case DType::kI32:
      return Wrong<int32_t>(offsets, bytes, size);
    case DType::kU32:
      return Wrong<uint32_t>(offsets, bytes, size);
    case DType::kI64:
      return Wrong<int64_t>(offsets, bytes, size);
    case DType::kU64:
      return Wrong<uint64_t>(offsets, bytes, size);
    default:
      return "";  // no op takes other dtypes as indices
  }
}

}  // namespace

IndexChecks::IndexChecks(const Graph& graph) {
  for (const Dim& dim : graph.dims) dims_.push_back(dim.name);
  std::vector<int> input_of(graph.nodes.size(), -1);
  int inputs = 0;
  for (NodeId id : graph.InputIds()) input_of[id] = inputs++;
  const std::vector<bool> live = LiveNodes(graph);
  const auto add = [&](NodeId node, size_t operand, const Expr& size, bool offsets) {
    const NodeId id = graph.node(node).inputs[operand];
    if (input_of[id] < 0) return;
    rows_.push_back({input_of[id], graph.node(id).name, graph.node(id).type.dtype, size, offsets,
                     graph.Describe(node)});
  };
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (!live[id]) continue;
    const Node& node = graph.node(id);
    const auto shape_of = [&](size_t operand) -> const Shape& {
      return graph.node(node.inputs[operand]).type.shape;
    };
    const std::vector<OperandRole>& roles = OpInfo(node.op).traits.roles;
    for (size_t i = 0; i < node.inputs.size() && i < roles.size(); ++i) {
      if (roles[i] == OperandRole::kIndex) {
        add(id, static_cast<int>(i), shape_of(0)[*SelectedAxis(node.op, node.attrs)], false);
      } else if (roles[i] == OperandRole::kOffsets) {
        add(id, static_cast<int>(i), shape_of(1)[0], true);
      }
    }
  }
}

absl::Status IndexChecks::Check(absl::Span<const int64_t> dims,
                                absl::Span<const std::string_view> inputs) const {
  if (rows_.empty()) return absl::OkStatus();
  Expr::Env env;
  for (size_t i = 0; i < dims_.size(); ++i) env[dims_[i]] = dims[i];
  for (const Row& row : rows_) {
    const std::optional<int64_t> size =
        row.size.constant() ? row.size.constant() : row.size.Evaluate(env);
    if (!size) return absl::InternalError(Cat("size ", row.size.ToString(), " has no value"));
    const std::string wrong = WrongOf(row.dtype, row.offsets, inputs[row.input], *size);
    if (wrong.empty()) continue;
    return Invalid("input ", Quoted(row.name), ": ", wrong, ": node ", row.node,
                   " selects with it");
  }
  return absl::OkStatus();
}

}  // namespace athanor
