// The axes that a map, row or point kernel walks over. Private to codegen.
#ifndef ATHANOR_COMPILER_CODEGEN_AXES_H_
#define ATHANOR_COMPILER_CODEGEN_AXES_H_

#include <string>
#include <vector>

#include "compiler/codegen/lower.h"

namespace athanor {

// Those of the root with neighbours merged where no index expression minds.
struct Axes {
  std::vector<std::string> symbols;
  std::vector<Expr> extents;
  Coordinates root;  // the root's coordinates over the symbols
};

// Axes of extent one are dropped; a root without axes has one of extent one.
Axes RootAxes(const Node& root);
void MergeAxes(const LowerInput& in, NodeId root, Axes& axes, Bounds bounds);
// The root's coordinates where the axes have these values.
Coordinates Place(const Axes& axes, const Coordinates& values);
// Of the dtypes that the root's element is computed with.
int WidestBytes(const LowerInput& in, NodeId root, const Coordinates& at, const Bounds& bounds);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_AXES_H_
