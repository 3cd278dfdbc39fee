#include "compiler/codegen/cuda/fragments.h"

#include <iterator>
#include <set>
#include <utility>

#include "compiler/search/kernels/matrix_instructions.h"
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

// Checks that the map places the operands of every instruction that schedules may use.
TEST(FragmentsTest, MatrixInstructionsHaveTheirShapes) {
  for (const MatrixInstruction& row : kMatrixInstructions) {
    const Fragment* left = FindFragment(row.name, MmaOperand::kLeft);
    const Fragment* right = FindFragment(row.name, MmaOperand::kRight);
    ASSERT_TRUE(left != nullptr && right != nullptr) << row.name;
    EXPECT_EQ(left->rows, row.m);
    EXPECT_EQ(left->columns, row.k);
    EXPECT_EQ(right->columns, row.n);
    // Loads take 32 bytes of each row and column, in 16-byte pieces.
    EXPECT_EQ(row.k * DTypeBytes(row.operands), 32);
    EXPECT_EQ(FindMatrixInstruction(row.operands), &row);
  }
  EXPECT_EQ(FindMatrixInstruction(DType::kF32), nullptr);
}

// Holds each row against its formulas in the instruction set's manual, by the thread's group t / 4,
// its number g in the group and slot i. Sums have the same place in all instructions.
using Place = TileElement (*)(int group, int g, int i);
struct Formula {
  const char* instruction;
  MmaOperand operand;
  Place place;
};
TileElement SumPlace(int group, int g, int i) {
  return {i < 2 ? group : group + 8, g * 2 + (i & 1)};
}
constexpr Formula kFormulas[] = {
    {"mma.m16n8k16", MmaOperand::kLeft,
     [](int group, int g, int i) {
       const bool upper = i < 2 || (i >= 4 && i < 6);
       return TileElement{upper ? group : group + 8, g * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
     }},
    {"mma.m16n8k16", MmaOperand::kRight,
     [](int group, int g, int i) {
       return TileElement{g * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
     }},
    {"mma.m16n8k16", MmaOperand::kSum, SumPlace},
    {"mma.m16n8k32", MmaOperand::kLeft,
     [](int group, int g, int i) {
       const bool upper = i < 4 || (i >= 8 && i < 12);
       return TileElement{upper ? group : group + 8, g * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
     }},
    {"mma.m16n8k32", MmaOperand::kRight,
     [](int group, int g, int i) {
       return TileElement{g * 4 + (i & 3) + (i >= 4 ? 16 : 0), group};
     }},
    {"mma.m16n8k32", MmaOperand::kSum, SumPlace},
    {"mma.m16n8k8", MmaOperand::kLeft,
     [](int group, int g, int i) {
       return TileElement{i == 0 || i == 2 ? group : group + 8, i < 2 ? g : g + 4};
     }},
    {"mma.m16n8k8", MmaOperand::kRight,
     [](int group, int g, int i) { return TileElement{i == 0 ? g : g + 4, group}; }},
    {"mma.m16n8k8", MmaOperand::kSum, SumPlace},
    // Register i / 2 is of matrix i / 2, which lies eight rows below the one before.
    {"ldmatrix.x4", MmaOperand::kLoaded,
     [](int group, int g, int i) { return TileElement{i / 2 * 8 + group, g * 2 + (i & 1)}; }},
    {"ldmatrix.x4.trans", MmaOperand::kLoaded,
     [](int group, int g, int i) { return TileElement{i / 2 * 8 + g * 2 + (i & 1), group}; }},
};

TEST(FragmentsTest, PlacesAreTheManuals) {
  EXPECT_EQ(std::size(kFormulas), Fragments().size());
  for (const Formula& formula : kFormulas) {
    SCOPED_TRACE(formula.instruction);
    const Fragment* const fragment = FindFragment(formula.instruction, formula.operand);
    ASSERT_NE(fragment, nullptr);
    for (int t = 0; t < kWarpThreads; ++t) {
      for (int i = 0; i < fragment->slots(); ++i) {
        EXPECT_EQ(fragment->At(t, i), formula.place(t / 4, t % 4, i)) << t << ", " << i;
      }
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
