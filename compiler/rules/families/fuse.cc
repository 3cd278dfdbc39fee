// Fusion's rows: switches for decisions of compiler/search about each value of a graph. With all of
// them off, every value gets its own memory and kernel.
#include "compiler/rules/families/rule_row.h"

namespace athanor {

std::vector<RuleRow> FuseRows() {
  return {
      {.name = "fuse_producer",
       .family = "fuse",
       .algebra = "a value that one kernel uses is computed inside that kernel"},
      {.name = "fuse_reduction",
       .family = "fuse",
       .algebra = "a reduction is computed in one kernel with what it reads and what reads it"},
      {.name = "fuse_epilogue",
       .family = "fuse",
       .algebra = "a contraction or attention applies what follows it before it writes its result"},
      {.name = "fuse_again",
       .family = "fuse",
       .algebra = "a cheap value is computed again in each of the kernels that use it"},
  };
}

}  // namespace athanor
