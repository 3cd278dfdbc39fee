#include "compiler/plan/in_place.h"

#include <vector>

namespace athanor {

namespace {

using kir::Opcode;
using kir::Stmt;

bool BlockAllows(const kir::Kernel& kernel, const std::vector<Stmt>& block, int operand) {
  for (size_t i = 0; i < block.size(); ++i) {
    const Stmt& s = block[i];
    if (!BlockAllows(kernel, s.body, operand)) return false;
    if (s.opcode == Opcode::kLoad && s.buffer == 0) return false;
    // A matrix product or sort writes its whole result before any later statement reads.
    for (const kir::Matrix& m : s.matrices) {
      if (m.buffer == 0 || m.buffer == operand) return false;
    }
    if (s.opcode != Opcode::kLoad || s.buffer != operand) continue;
    // Every thread loads a scalar, which thread 0 may have overwritten.
    if (kernel.team > 1 && s.type.lanes == 1) return false;
    bool overwritten = false;
    for (size_t j = i + 1; j < block.size(); ++j) {
      const Stmt& t = block[j];
      bool same = t.opcode == Opcode::kStore && t.buffer == 0 && t.index == s.index &&
                  t.count == s.count && t.type.lanes == s.type.lanes && t.predicate == kir::kNoVar;
      overwritten = overwritten || same;
    }
    if (!overwritten) return false;
  }
  return true;
}

}  // namespace

bool MayWriteOver(const kir::Kernel& kernel, int operand) {
  if (DTypeBytes(kernel.buffers[0].dtype) != DTypeBytes(kernel.buffers[operand].dtype))
    return false;
  return BlockAllows(kernel, kernel.body, operand);
}

}  // namespace athanor
