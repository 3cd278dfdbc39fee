// Axes that a map, row or point kernel walks over. Private to codegen.
#ifndef ATHANOR_COMPILER_CODEGEN_LOWER_AXES_H_
#define ATHANOR_COMPILER_CODEGEN_LOWER_AXES_H_

#include <string>
#include <vector>

#include "compiler/codegen/lower/lower.h"

namespace athanor {

// The root's axes; neighbours are merged if all index expressions stay affine.
struct Axes {
  std::vector<std::string> symbols;
  std::vector<Expr> extents;
  Coordinates root;  // the root's coordinates over the symbols
};

// Returns the root's axes, without those of extent one; a root without axes has one of extent one.
Axes RootAxes(const Node& root);
void MergeAxes(const LowerInput& in, NodeId root, Axes& axes, Bounds bounds);
// Returns the root's coordinates at these values of the axes.
Coordinates Place(const Axes& axes, const Coordinates& values);
// Returns the bytes of the widest dtype that the root's element is computed with.
int WidestBytes(const LowerInput& in, NodeId root, const Coordinates& at, const Bounds& bounds);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_LOWER_AXES_H_
