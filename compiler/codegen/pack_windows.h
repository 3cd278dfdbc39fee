// Panels of a contraction's column operand that are windows of an image (IsWindows): a vector of
// them is as many runs of neighbouring columns as the last of their axes is cut into, so that at
// stride 1 a run is loads of whole vectors. Beyond the image are the map's fills.
#ifndef ATHANOR_COMPILER_CODEGEN_PACK_WINDOWS_H_
#define ATHANOR_COMPILER_CODEGEN_PACK_WINDOWS_H_

#include "compiler/codegen/lower.h"
#include "compiler/search/kernels/contract_roles.h"

namespace athanor {

struct WindowPanel {
  const ContractRoles& roles;
  NodeId operand;            // without memory of its own
  const Coordinates& batch;  // of roles.batch
  DType dtype;               // of the panel
  int lanes, vectors;        // packed
  bool whole;                // all of them are the operand's
  int width;                 // of a panel's row, in elements
  int scratch;               // element (k, n) of the panel is at (k - k_begin) * width + n - first
  Expr first;                // the first column
  Expr k_begin, k_end;       // of the sums, flattened; of whole windows where TapsOf is known
};

// Columns beyond the operand's are zeros.
void PackWindows(KernelBuilder& b, const WindowPanel& panel);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_PACK_WINDOWS_H_
