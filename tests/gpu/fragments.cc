// Multiplies a left operand that is 1 at one element and else 0, in as many warps as it has
// elements, by a right one whose elements all differ: each element of the result names its row and
// column.
#include "compiler/codegen/cuda/fragments.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/number_formats.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

struct Multiply {
  const char* question;
  const char* kernel;
  absl::string_view instruction;
  int bytes;                    // of an element
  uint32_t (*bits)(int value);  // exact for the values used
  int (*value)(uint32_t bits);  // of a sum
};

int SumOfFloat(uint32_t bits) { return static_cast<int>(std::bit_cast<float>(bits)); }
int SumOfInt(uint32_t bits) { return static_cast<int>(bits); }

constexpr Multiply kMultiplies[] = {
    {"fragments.f16", "multiply_f16", "mma.m16n8k16", 2,
     [](int v) -> uint32_t { return F16Bits(static_cast<float>(v)); }, SumOfFloat},
    {"fragments.bf16", "multiply_bf16", "mma.m16n8k16", 2,
     [](int v) -> uint32_t { return Bf16Bits(static_cast<float>(v)); }, SumOfFloat},
    {"fragments.i8", "multiply_i8", "mma.m16n8k32", 1,
     [](int v) -> uint32_t { return static_cast<uint8_t>(v); }, SumOfInt},
    {"fragments.tf32", "multiply_tf32", "mma.m16n8k8", 4,
     [](int v) { return std::bit_cast<uint32_t>(static_cast<float>(v)); }, SumOfFloat},
};

// Distinct for each of at most 256 elements, and exact in every format used.
int Distinct(const TileElement& e, int columns) { return e.row * columns + e.column - 128; }

absl::StatusOr<int> WrongElements(Gpu& gpu, const Multiply& multiply) {
  const Fragment& left = *FindFragment(multiply.instruction, MmaOperand::kLeft);
  const Fragment& right = *FindFragment(multiply.instruction, MmaOperand::kRight);
  const Fragment& sum = *FindFragment(multiply.instruction, MmaOperand::kSum);
  const auto pack = [&](const Fragment& fragment, auto value, std::vector<uint32_t>* words) {
    for (int thread = 0; thread < kWarpThreads; ++thread) {
      std::vector<uint8_t> bytes(fragment.slots() * multiply.bytes);
      for (int slot = 0; slot < fragment.slots(); ++slot) {
        const uint32_t bits = multiply.bits(value(fragment.At(thread, slot)));
        std::memcpy(&bytes[slot * multiply.bytes], &bits, multiply.bytes);
      }
      words->resize(words->size() + bytes.size() / 4);
      std::memcpy(&words->back() - bytes.size() / 4 + 1, bytes.data(), bytes.size());
    }
  };
  std::vector<uint32_t> lefts, rights;
  for (int one = 0; one < left.elements(); ++one) {
    pack(
        left, [&](TileElement e) { return e.row * left.columns + e.column == one ? 1 : 0; },
        &lefts);
  }
  pack(right, [&](TileElement e) { return Distinct(e, right.columns); }, &rights);
  ASSIGN_OR_RETURN(const CudaPointer a, gpu.Upload(lefts));
  ASSIGN_OR_RETURN(const CudaPointer b, gpu.Upload(rights));
  const size_t words = size_t(left.elements()) * sum.elements();
  ASSIGN_OR_RETURN(const CudaPointer d, gpu.Allocate(words * 4));
  RETURN_IF_ERROR(gpu.Fill(d, 0xff, words * 4));
  ASSIGN_OR_RETURN(const CudaFunction kernel, gpu.Kernel("fragments.cu", multiply.kernel));
  RETURN_IF_ERROR(gpu.Launch(kernel, {static_cast<unsigned>(left.elements()), 32}, a, b, d));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> sums, gpu.Download<uint32_t>(d, words));
  int wrong = 0;
  size_t at = 0;
  for (int one = 0; one < left.elements(); ++one) {
    const TileElement lit = {one / left.columns, one % left.columns};
    for (int thread = 0; thread < kWarpThreads; ++thread) {
      for (int slot = 0; slot < sum.slots(); ++slot) {
        const TileElement e = sum.At(thread, slot);
        const int expected = e.row == lit.row ? Distinct({lit.column, e.column}, right.columns) : 0;
        wrong += multiply.value(sums[at++]) != expected;
      }
    }
  }
  return wrong;
}

absl::StatusOr<int> WrongLoads(Gpu& gpu, const char* kernel, absl::string_view instruction) {
  const Fragment& loaded = *FindFragment(instruction, MmaOperand::kLoaded);
  std::vector<uint16_t> tile(loaded.elements());
  for (size_t i = 0; i < tile.size(); ++i) tile[i] = static_cast<uint16_t>(1000 + i);
  ASSIGN_OR_RETURN(const CudaPointer from, gpu.Upload(tile));
  ASSIGN_OR_RETURN(const CudaPointer to, gpu.Allocate(tile.size() * 2));
  RETURN_IF_ERROR(gpu.Fill(to, 0xff, tile.size() * 2));
  ASSIGN_OR_RETURN(const CudaFunction function, gpu.Kernel("fragments.cu", kernel));
  RETURN_IF_ERROR(gpu.Launch(function, {1, 32}, from, to));
  ASSIGN_OR_RETURN(const std::vector<uint16_t> found, gpu.Download<uint16_t>(to, tile.size()));
  int wrong = 0;
  for (int thread = 0; thread < kWarpThreads; ++thread) {
    for (int slot = 0; slot < loaded.slots(); ++slot) {
      const TileElement e = loaded.At(thread, slot);
      wrong += found[thread * loaded.slots() + slot] != tile[e.row * loaded.columns + e.column];
    }
  }
  return wrong;
}

}  // namespace

absl::Status RunFragments(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  for (const Multiply& multiply : kMultiplies) {
    ASSIGN_OR_RETURN(const int wrong, WrongElements(*gpu, multiply));
    run.report().Answer(multiply.question, wrong);
  }
  ASSIGN_OR_RETURN(const int plain, WrongLoads(*gpu, "load_plain", "ldmatrix.x4"));
  run.report().Answer("fragments.ldmatrix", plain);
  ASSIGN_OR_RETURN(const int turned, WrongLoads(*gpu, "load_trans", "ldmatrix.x4.trans"));
  run.report().Answer("fragments.ldmatrix_trans", turned);
  return absl::OkStatus();
}

}  // namespace athanor
