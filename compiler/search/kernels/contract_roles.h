// The axes of a contraction by the role they play in its kernels.
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
  std::string letters[2], result;  // of the operands and of the result, one per axis
  // Axes of both operands and of the result. Also axes of the column operand that are adjacent to
  // its other columns neither there nor in the result: a panel never spans two of their positions.
  std::string batch;
  std::string rows, columns;  // in the result and in that operand only
  std::string sums;           // summed over: not in the result
  int row_operand = 0, column_operand = 1;
  std::map<char, Expr> extents;

  // Returns the sizes of the letters in `group`, in its order.
  std::vector<Expr> ExtentsOf(const std::string& group) const;
  // Returns the product of these sizes: the size of the flattened group.
  Expr SizeOf(const std::string& group) const;
  // Returns the coordinates of a tensor with these letters, given those of the batch and the
  // flattened indices of row, column and sum.
  std::vector<Expr> At(const std::string& letters_of_tensor, const std::vector<Expr>& batch_at,
                       const Expr& row, const Expr& column, const Expr& sum) const;
};

// Reports whether operand `side`'s elements along the flattened `group`, letters of one role, are
// adjacent in memory, through the views it is read by, down to the first node that has memory.
bool IsContiguous(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
                  const std::string& group, const std::vector<bool>* has_memory = nullptr);

// Reports whether operand `side` is a map whose elements along the flattened `columns` are not
// evenly spaced in memory or are partly padding: windows of an image. A vector of them is read
// piece by piece. Looks through views down to the first node that has memory.
bool IsWindows(const Graph& graph, const Node& node, const ContractRoles& roles, int side,
               const std::string& columns, const std::vector<bool>* has_memory = nullptr);

// Returns the number of taps, whose windows are packed together: the product of the sizes of all
// sums but the first; 1 if it is not known.
int64_t TapsOf(const ContractRoles& roles);

// Finds the roles of `node`'s axes. `swap`: the right operand's free axes are the rows.
ContractRoles FindContractRoles(const Graph& graph, const Node& node, bool swap);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_CONTRACT_ROLES_H_
