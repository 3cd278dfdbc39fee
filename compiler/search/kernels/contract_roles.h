// The axes of a contraction by what they do, as its kernels see them.
//
//   ContractRoles r = FindContractRoles(graph, node, /*swap=*/false);   // "bmk,kn->bmn"
//   // r.batch == "", r.rows == "bm", r.columns == "n", r.sums == "k"
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_ROLES_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_ROLES_H_

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

struct ContractRoles {
  std::string letters[2], result;  // of the operands and of the result, by axis
  // In both operands and in the result; and axes of the column operand alone that neither it nor
  // the result has beside its others: no panel spans two of their places.
  std::string batch;
  std::string rows, columns;  // in the result and in that operand alone
  std::string sums;           // not in the result
  int row_operand = 0, column_operand = 1;
  std::map<char, Expr> extents;

  // Sizes of a group of letters, in its order.
  std::vector<Expr> ExtentsOf(const std::string& group) const;
  // Their product: the group's size when flattened.
  Expr SizeOf(const std::string& group) const;
  // Coordinates of a tensor with these letters: those of the batch, and the indices of the rows,
  // columns and sums flattened.
  std::vector<Expr> At(const std::string& letters_of_tensor, const std::vector<Expr>& batch_at,
                       const Expr& row, const Expr& column, const Expr& sum) const;
};

// Whether operand `side`'s elements lie side by side in memory along `group`, letters of one role
// flattened; through the views it is read by.
bool IsContiguous(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
                  const std::string& group);

// Whether operand `side` is a map whose elements along `columns`, flattened, do not lie evenly
// apart in memory, or are not all there: windows of an image. A vector of them is read piece by
// piece. Views are looked through as far as nothing has memory.
bool IsWindows(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
               const std::string& columns, const std::vector<bool>* has_memory = nullptr);

// The number of taps: what the sums but the first come to, where it is known; of which windows are
// packed together.
int64_t TapsOf(const ContractRoles& roles);

// `swap`: the right operand's free axes are the rows.
ContractRoles FindContractRoles(const Graph& graph, const Node& node, bool swap);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_ROLES_H_
