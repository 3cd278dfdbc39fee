#include "compiler/codegen/cuda/fragments.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(FragmentsTest, EachElementHasOnePlace) {
  for (const Fragment& fragment : Fragments()) {
    SCOPED_TRACE(fragment.instruction);
    std::set<std::pair<int, int>> seen;
    for (int thread = 0; thread < kWarpThreads; ++thread) {
      for (int slot = 0; slot < fragment.slots(); ++slot) {
        const TileElement e = fragment.At(thread, slot);
        EXPECT_GE(e.row, 0);
        EXPECT_LT(e.row, fragment.rows);
        EXPECT_GE(e.column, 0);
        EXPECT_LT(e.column, fragment.columns);
        EXPECT_TRUE(seen.emplace(e.row, e.column).second) << e.row << ", " << e.column;
      }
    }
    EXPECT_EQ(seen.size(), fragment.elements());
  }
}

TEST(FragmentsTest, InstructionsHaveAllOperandsOfFittingSizes) {
  for (const char* name : {"mma.m16n8k16", "mma.m16n8k32", "mma.m16n8k8"}) {
    const Fragment* left = FindFragment(name, MmaOperand::kLeft);
    const Fragment* right = FindFragment(name, MmaOperand::kRight);
    const Fragment* sum = FindFragment(name, MmaOperand::kSum);
    ASSERT_TRUE(left != nullptr && right != nullptr && sum != nullptr) << name;
    EXPECT_EQ(left->columns, right->rows) << name;
    EXPECT_EQ(left->rows, sum->rows) << name;
    EXPECT_EQ(right->columns, sum->columns) << name;
  }
  EXPECT_EQ(FindFragment("mma.m16n8k16", MmaOperand::kLoaded), nullptr);
  EXPECT_EQ(FindFragment("mma.m8n8k4", MmaOperand::kLeft), nullptr);
}

// Formulas of the instruction set's manual, by thread t and slot i.
TEST(FragmentsTest, PlacesAreTheManuals) {
  const Fragment& half = *FindFragment("mma.m16n8k16", MmaOperand::kLeft);
  const Fragment& byte = *FindFragment("mma.m16n8k32", MmaOperand::kRight);
  const Fragment& tf32 = *FindFragment("mma.m16n8k8", MmaOperand::kLeft);
  for (int t = 0; t < kWarpThreads; ++t) {
    const int group = t / 4, in_group = t % 4;
    for (int i = 0; i < 8; ++i) {
      const bool upper = i < 2 || (i >= 4 && i < 6);
      EXPECT_EQ(half.At(t, i), (TileElement{upper ? group : group + 8,
                                            in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)}));
      EXPECT_EQ(byte.At(t, i), (TileElement{in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0), group}));
    }
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(tf32.At(t, i), (TileElement{i % 2 == 0 ? group : group + 8, in_group + i / 2 * 4}));
    }
  }
}

// An operand that ldmatrix loads is the one that mma takes: the left one row-major as it lies, the
// right one, with k along its rows, transposed.
TEST(FragmentsTest, LoadedMatricesAreOperands) {
  const Fragment& left = *FindFragment("mma.m16n8k16", MmaOperand::kLeft);
  const Fragment& right = *FindFragment("mma.m16n8k16", MmaOperand::kRight);
  const Fragment& loaded = *FindFragment("ldmatrix.x4", MmaOperand::kLoaded);
  const Fragment& turned = *FindFragment("ldmatrix.x4.trans", MmaOperand::kLoaded);
  for (int t = 0; t < kWarpThreads; ++t) {
    for (int slot = 0; slot < left.slots(); ++slot) {
      // Matrices in the order: upper left, lower left, upper right, lower right.
      const TileElement e = loaded.At(t, slot);
      EXPECT_EQ(left.At(t, slot), (TileElement{e.row % 16, e.column + e.row / 16 * 8}));
    }
    for (int slot = 0; slot < right.slots(); ++slot) {
      EXPECT_EQ(right.At(t, slot), turned.At(t, slot));
    }
  }
}

}  // namespace
}  // namespace athanor
