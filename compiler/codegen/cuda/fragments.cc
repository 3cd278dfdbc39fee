#include "compiler/codegen/cuda/fragments.h"

namespace athanor {
namespace {

constexpr TileElement Down(int rows) { return {rows, 0}; }
constexpr TileElement Right(int columns) { return {0, columns}; }

// clang-format off: one row a line is a table.
// Threads in groups of four: bits 0 and 1 count inside a group, bits 2 to 4 count groups.
constexpr Fragment kFragments[] = {
    // f16 and bf16, sums in f32.
    {"mma.m16n8k16", MmaOperand::kLeft, 16, 16,
     {Right(2), Right(4), Down(1), Down(2), Down(4)}, {Right(1), Down(8), Right(8)}},
    {"mma.m16n8k16", MmaOperand::kRight, 16, 8,
     {Down(2), Down(4), Right(1), Right(2), Right(4)}, {Down(1), Down(8)}},
    {"mma.m16n8k16", MmaOperand::kSum, 16, 8,
     {Right(2), Right(4), Down(1), Down(2), Down(4)}, {Right(1), Down(8)}},
    // i8, sums in i32.
    {"mma.m16n8k32", MmaOperand::kLeft, 16, 32,
     {Right(4), Right(8), Down(1), Down(2), Down(4)}, {Right(1), Right(2), Down(8), Right(16)}},
    {"mma.m16n8k32", MmaOperand::kRight, 32, 8,
     {Down(4), Down(8), Right(1), Right(2), Right(4)}, {Down(1), Down(2), Down(16)}},
    {"mma.m16n8k32", MmaOperand::kSum, 16, 8,
     {Right(2), Right(4), Down(1), Down(2), Down(4)}, {Right(1), Down(8)}},
    // tf32, sums in f32.
    {"mma.m16n8k8", MmaOperand::kLeft, 16, 8,
     {Right(1), Right(2), Down(1), Down(2), Down(4)}, {Down(8), Right(4)}},
    {"mma.m16n8k8", MmaOperand::kRight, 8, 8,
     {Down(1), Down(2), Right(1), Right(2), Right(4)}, {Down(4)}},
    {"mma.m16n8k8", MmaOperand::kSum, 16, 8,
     {Right(2), Right(4), Down(1), Down(2), Down(4)}, {Right(1), Down(8)}},
    // Four matrices of 16-bit elements; thread t names the address of row t.
    {"ldmatrix.x4", MmaOperand::kLoaded, 32, 8,
     {Right(2), Right(4), Down(1), Down(2), Down(4)}, {Right(1), Down(8), Down(16)}},
    {"ldmatrix.x4.trans", MmaOperand::kLoaded, 32, 8,
     {Down(2), Down(4), Right(1), Right(2), Right(4)}, {Down(1), Down(8), Down(16)}},
};
// clang-format on

void Add(int number, absl::Span<const TileElement> bits, TileElement* to) {
  for (int bit = 0; number >> bit != 0; ++bit) {
    if ((number >> bit & 1) == 0) continue;
    to->row += bits[bit].row;
    to->column += bits[bit].column;
  }
}

}  // namespace

TileElement Fragment::At(int thread, int slot) const {
  TileElement element;
  Add(thread, thread_bits, &element);
  Add(slot, slot_bits, &element);
  return element;
}

absl::Span<const Fragment> Fragments() { return kFragments; }

const Fragment* FindFragment(absl::string_view instruction, MmaOperand operand) {
  for (const Fragment& fragment : kFragments) {
    if (fragment.instruction == instruction && fragment.operand == operand) return &fragment;
  }
  return nullptr;
}

}  // namespace athanor
