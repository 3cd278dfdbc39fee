#include "tests/emulator/matrices.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compiler/codegen/cuda/fragments.h"

namespace athanor::emulator {
namespace {

const Fragment& FragmentOf(MmaOperand operand, int bytes) {
  static const auto& all =
      *new std::vector<const Fragment*>{FindFragment("mma.m16n8k16", MmaOperand::kLeft),
                                        FindFragment("mma.m16n8k16", MmaOperand::kRight),
                                        FindFragment("mma.m16n8k16", MmaOperand::kSum),
                                        FindFragment("mma.m16n8k32", MmaOperand::kLeft),
                                        FindFragment("mma.m16n8k32", MmaOperand::kRight),
                                        FindFragment("mma.m16n8k32", MmaOperand::kSum)};
  return *all[(bytes == 1 ? 3 : 0) + static_cast<int>(operand)];
}

int BytesOf(Factors factors) { return factors == Factors::kI8 || factors == Factors::kU8 ? 1 : 2; }

// Returns an operand's element by its bits: floats and integers are exact as a double.
double ValueOf(Factors factors, const unsigned* registers, int slot) {
  const char* const at = reinterpret_cast<const char*>(registers) + slot * BytesOf(factors);
  uint16_t bits;
  switch (factors) {
    case Factors::kI8:
      return static_cast<signed char>(*at);
    case Factors::kU8:
      return static_cast<unsigned char>(*at);
    case Factors::kF16: {
      _Float16 value;
      std::memcpy(&value, at, sizeof(value));
      return static_cast<float>(value);
    }
    case Factors::kBF16:
      std::memcpy(&bits, at, sizeof(bits));
      return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  return 0;
}

// A matrix of a wave, row by row.
struct Gathered {
  double at(int row, int column) const { return values[row * columns + column]; }
  int columns;
  std::vector<double> values;
};

Gathered Gather(Factors factors, MmaOperand operand, absl::Span<Product* const> wave) {
  const Fragment& fragment = FragmentOf(operand, BytesOf(factors));
  Gathered matrix{fragment.columns, std::vector<double>(fragment.elements())};
  for (int thread = 0; thread < kWarpThreads; ++thread) {
    const Product& product = *wave[thread];
    const unsigned* const registers = operand == MmaOperand::kLeft ? product.left : product.right;
    for (int slot = 0; slot < fragment.slots(); ++slot) {
      const TileElement e = fragment.At(thread, slot);
      matrix.values[e.row * fragment.columns + e.column] = ValueOf(factors, registers, slot);
    }
  }
  return matrix;
}

}  // namespace

void ElementOf(const Launch* launch, MatrixSide side, int bytes, int slot, int* row, int* column) {
  const MmaOperand operand = side == MatrixSide::kLeft ? MmaOperand::kLeft : MmaOperand::kRight;
  const TileElement e =
      FragmentOf(operand, bytes).At(static_cast<int>(launch->thread % kWave), slot);
  *row = e.row;
  *column = e.column;
}

void MultiplyMatrices(Factors factors, absl::Span<Product* const> wave) {
  const Gathered left = Gather(factors, MmaOperand::kLeft, wave);
  const Gathered right = Gather(factors, MmaOperand::kRight, wave);
  const Fragment& sums = FragmentOf(MmaOperand::kSum, BytesOf(factors));
  const bool floats = BytesOf(factors) == 2;
  for (int thread = 0; thread < kWarpThreads; ++thread) {
    for (int slot = 0; slot < sums.slots(); ++slot) {
      const TileElement e = sums.At(thread, slot);
      unsigned& bits = wave[thread]->sums[slot];
      double sum = floats ? std::bit_cast<float>(bits) : std::bit_cast<int>(bits);
      for (int k = 0; k < left.columns; ++k) sum += left.at(e.row, k) * right.at(k, e.column);
      bits = floats ? std::bit_cast<unsigned>(static_cast<float>(sum))
                    : static_cast<unsigned>(static_cast<int64_t>(sum));
    }
  }
}

}  // namespace athanor::emulator
