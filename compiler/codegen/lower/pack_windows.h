// Packs panels of a contraction's column operand that are windows of an image (IsWindows). A vector
// of a panel is cut into runs of neighbouring columns along the last of their axes, so that at
// stride 1 a run is loads of whole vectors. Beyond the image are the map's fills.
#ifndef ATHANOR_COMPILER_CODEGEN_LOWER_PACK_WINDOWS_H_
#define ATHANOR_COMPILER_CODEGEN_LOWER_PACK_WINDOWS_H_

#include "compiler/codegen/lower/lower.h"
#include "compiler/search/kernels/contract_roles.h"

namespace athanor {

struct WindowPanel {
  const ContractRoles& roles;
  NodeId operand;            // node without memory of its own
  const Coordinates& batch;  // coordinates of roles.batch
  DType dtype;               // of the panel
  int lanes, vectors;        // size and number of the vectors that are packed
  int width;                 // of a panel's row, in elements
  int scratch;  // buffer; element (k, n) of the panel is at (k - k_begin) * width + n - first
  Expr first;   // column of the panel
  Expr k_begin, k_end;  // range of the flattened sums; whole windows if TapsOf is known
};

// Packs the panel. Beyond the operand's columns a vector has zeros; a vector of none is left as it
// is.
void PackWindows(KernelBuilder& b, const WindowPanel& panel);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_LOWER_PACK_WINDOWS_H_
