#include "compiler/search/kernels/contract_roles.h"

#include <optional>
#include <utility>
#include <vector>

#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/state_layout.h"

namespace athanor {

std::vector<Expr> ContractRoles::ExtentsOf(const std::string& group) const {
  std::vector<Expr> e;
  for (char c : group) e.push_back(extents.at(c));
  return e;
}

Expr ContractRoles::SizeOf(const std::string& group) const {
  Expr size = 1;
  for (char c : group) size *= extents.at(c);
  return size;
}

std::vector<Expr> ContractRoles::At(const std::string& letters_of_tensor,
                                    const std::vector<Expr>& batch_at, const Expr& row,
                                    const Expr& column, const Expr& sum) const {
  std::map<char, Expr> at;
  for (size_t i = 0; i < batch.size(); ++i) at[batch[i]] = batch_at[i];
  auto split = [&](const std::string& group, const Expr& flat) {
    Expr stride = 1;
    for (size_t i = group.size(); i-- > 0;) {
      const Expr digit = FloorDiv(flat, stride);
      at[group[i]] = i > 0 ? Mod(digit, extents.at(group[i])) : digit;
      stride *= extents.at(group[i]);
    }
  };
  split(rows, row);
  split(columns, column);
  split(sums, sum);
  std::vector<Expr> coordinates;
  for (char letter : letters_of_tensor) coordinates.push_back(at.at(letter));
  return coordinates;
}

namespace {

// Returns the distance in memory between operand `side`'s elements along the flattened `group`,
// through the views it is read by; nullopt if they are not evenly spaced or some are padding.
std::optional<Expr> Step(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
                         const std::string& group, const std::vector<bool>* has_memory) {
  const std::string flat = "$flat";
  Bounds bounds = graph.DimBounds();
  bounds.SetExtent(flat, roles.SizeOf(group));
  std::map<char, Expr> at;
  Expr stride = 1;
  for (size_t i = group.size(); i-- > 0;) {
    const Expr digit = FloorDiv(Expr::Symbol(flat), stride);
    at[group[i]] = i > 0 ? Mod(digit, roles.extents.at(group[i])) : digit;
    stride *= roles.extents.at(group[i]);
  }
  std::vector<Expr> coordinates;
  for (char c : roles.letters[side]) {
    const std::string other = std::string("$") + c;
    bounds.SetExtent(other, roles.extents.at(c));
    coordinates.push_back(bounds.Simplify(at.contains(c) ? at.at(c) : Expr::Symbol(other)));
  }
  NodeId operand = node.inputs[side];
  for (; IsIndexMap(graph.node(operand).op); operand = graph.node(operand).inputs[0]) {
    if (has_memory && (*has_memory)[operand]) break;
    const Node& view = graph.node(operand);
    if (view.attrs.contains("fill")) return std::nullopt;
    coordinates = MapCoordinates(GetAttr<IndexMap>(view.attrs, "map"), coordinates, bounds);
  }
  const Expr offset = bounds.Simplify(MemoryOffset(graph, operand, coordinates));
  const std::optional<Expr::Affine> affine = offset.AsAffine(flat);
  return affine ? std::optional(affine->stride) : std::nullopt;
}

// Returns the last letters of `columns`, in the result's order, that are adjacent in the result or
// in the operand; appends the others to `apart`.
std::string Together(const std::string& columns, const std::string& result,
                     const std::string& operand, std::string* apart) {
  size_t first = columns.empty() ? 0 : columns.size() - 1;
  const auto beside = [](const std::string& letters, char a, char b) {
    return letters.find(a) + 1 == letters.find(b);
  };
  // A panel that spans axes which lie apart in both tensors would divide in each address.
  while (first > 0 && (beside(result, columns[first - 1], columns[first]) ||
                       beside(operand, columns[first - 1], columns[first]))) {
    --first;
  }
  *apart += columns.substr(0, first);
  return columns.substr(first);
}

}  // namespace

bool IsContiguous(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
                  const std::string& group, const std::vector<bool>* has_memory) {
  const std::optional<Expr> step = Step(graph, node, roles, side, group, has_memory);
  return step && step->IsConstant(1);
}

bool IsWindows(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
               const std::string& columns, const std::vector<bool>* has_memory) {
  const NodeId operand = node.inputs[side];
  if (!IsIndexMap(graph.node(operand).op) || columns.empty()) return false;
  if (has_memory && (*has_memory)[operand]) return false;
  return !Step(graph, node, roles, side, columns, has_memory);
}

int64_t TapsOf(const ContractRoles& roles) {
  return roles.SizeOf(roles.sums.empty() ? "" : roles.sums.substr(1)).constant().value_or(1);
}

ContractRoles FindContractRoles(const Graph& graph, const Node& node, bool swap) {
  const ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  ContractRoles r;
  r.letters[0] = spec.lhs;
  r.letters[1] = spec.rhs;
  r.result = spec.result;
  if (swap) std::swap(r.row_operand, r.column_operand);
  for (int side = 0; side < 2; ++side) {
    const Shape& shape = graph.node(node.inputs[side]).type.shape;
    for (size_t i = 0; i < shape.size(); ++i) r.extents[r.letters[side][i]] = shape[i];
  }
  auto in = [&](int side, char c) { return r.letters[side].find(c) != std::string::npos; };
  // The operands that have a letter of the result decide its role; all other letters are summed.
  for (char c : r.result) {
    const bool row = in(r.row_operand, c), column = in(r.column_operand, c);
    (row && column ? r.batch : row ? r.rows : r.columns) += c;
  }
  for (const std::string& letters : r.letters) {
    for (char c : letters) {
      const bool summed = r.result.find(c) == std::string::npos;
      if (summed && r.sums.find(c) == std::string::npos) r.sums += c;
    }
  }
  r.columns = Together(r.columns, r.result, r.letters[r.column_operand], &r.batch);
  return r;
}

}  // namespace athanor
