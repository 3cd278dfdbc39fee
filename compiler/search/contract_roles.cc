#include "compiler/search/contract_roles.h"

#include <optional>
#include <utility>
#include <vector>

#include "compiler/search/access.h"

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

bool IsContiguous(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
                  const std::string& group) {
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
  for (; graph.node(operand).op == Op::kIndexMap; operand = graph.node(operand).inputs[0]) {
    const Node& view = graph.node(operand);
    if (view.attrs.contains("fill")) return false;
    coordinates = MapCoordinates(GetAttr<IndexMap>(view.attrs, "map"), coordinates, bounds);
  }
  const Expr offset = bounds.Simplify(RowMajorOffset(graph.node(operand).type.shape, coordinates));
  const std::optional<Expr::Affine> affine = offset.AsAffine(flat);
  return affine && affine->stride.IsConstant(1);
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
  return r;
}

}  // namespace athanor
