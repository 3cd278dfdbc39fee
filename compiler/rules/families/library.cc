// The libraries' rows: switches for library implementations. These are schedules of a kernel
// (compiler/search/kernels/space.cc) and must win their measurement like any other.
#include "compiler/rules/families/rule_row.h"

namespace athanor {

std::vector<RuleRow> LibraryRows() {
  return {
      {.name = "openblas",
       .family = "library",
       .rule_class = RuleClass::kReassociating,
       .algebra = "a contraction of matrices in memory is OpenBLAS's product of blocks of them"},
      {.name = "cublaslt",
       .family = "library",
       .rule_class = RuleClass::kReassociating,
       .algebra = "a contraction of matrices in a GPU's memory is a call of cuBLASLt"},
  };
}

}  // namespace athanor
