// A device for tests/emulator that computes, by name, the kernels whose results a part checks. It
// shows that a part asks rightly; nothing of what it answers is about a GPU.
//
// ATHANOR_STAND_IN=WORD makes it a device that is wrong in one way; each has to show.
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

#include "compiler/codegen/cuda/fragments.h"
#include "tests/emulator/device.h"
#include "tests/gpu/number_formats.h"

namespace athanor {
namespace {

using emulator::device;
using emulator::HostAddress;
using emulator::Threads;

bool Defect(std::string_view word) {
  const char* set = std::getenv("ATHANOR_STAND_IN");
  return set != nullptr && word == set;
}

template <typename T>
T& Argument(void** arguments, int index) {
  return *static_cast<T*>(arguments[index]);
}
template <typename T>
T* Pointer(void** arguments, int index) {
  return static_cast<T*>(HostAddress(Argument<uint64_t>(arguments, index)));
}

// Reads an element of a fragment: registers of a warp's threads, lowest bits first.
template <typename T>
T Read(const void* registers, const Fragment& fragment, int thread, int slot) {
  return static_cast<const T*>(registers)[thread * fragment.slots() + slot];
}

// Multiplies as one warp does; `left` and `right` are its registers. Sums go to [row][column].
template <typename T, typename Value>
void MultiplyWarp(const char* instruction, const void* left, const void* right, Value value,
                  double sums[16][8]) {
  const Fragment& a = *FindFragment(instruction, MmaOperand::kLeft);
  const Fragment& b = *FindFragment(instruction, MmaOperand::kRight);
  double lefts[16][32] = {}, rights[32][8] = {};
  for (int thread = 0; thread < kWarpThreads; ++thread) {
    for (int slot = 0; slot < a.slots(); ++slot) {
      const TileElement e = a.At(thread, Defect("fragments") ? slot ^ 1 : slot);
      lefts[e.row][e.column] = value(Read<T>(left, a, thread, slot));
    }
    for (int slot = 0; slot < b.slots(); ++slot) {
      const TileElement e = b.At(thread, slot);
      rights[e.row][e.column] = value(Read<T>(right, b, thread, slot));
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int k = 0; k < a.columns; ++k) sums[row][column] += lefts[row][k] * rights[k][column];
      // A unit whose sums have 11 bits.
      if (Defect("rounding")) sums[row][column] = F16Value(F16Bits(float(sums[row][column])));
    }
  }
}

template <typename T, typename Value, typename Sum>
void Multiply(const char* instruction, void** arguments, Threads grid, Value value, Sum sum) {
  const Fragment& a = *FindFragment(instruction, MmaOperand::kLeft);
  const Fragment& d = *FindFragment(instruction, MmaOperand::kSum);
  for (int64_t block = 0; block < grid.blocks; ++block) {
    double sums[16][8] = {};
    MultiplyWarp<T>(instruction, Pointer<T>(arguments, 0) + block * a.elements(),
                    Pointer<T>(arguments, 1), value, sums);
    for (int i = 0; i < d.elements(); ++i) {
      const TileElement e = d.At(i / d.slots(), i % d.slots());
      Pointer<uint32_t>(arguments, 2)[block * d.elements() + i] = sum(sums[e.row][e.column]);
    }
  }
}

template <typename Value>
void Chain(void** arguments, Threads grid, Value value) {
  const Fragment& d = *FindFragment("mma.m16n8k16", MmaOperand::kSum);
  const int steps = Argument<int>(arguments, 3);
  for (int64_t block = 0; block < grid.blocks; ++block) {
    double sums[16][8] = {};
    for (int step = block * steps; step < (block + 1) * steps; ++step) {
      MultiplyWarp<uint16_t>("mma.m16n8k16", Pointer<uint16_t>(arguments, 0) + step * 256,
                             Pointer<uint16_t>(arguments, 1) + step * 128, value, sums);
    }
    for (int i = 0; i < d.elements(); ++i) {
      const TileElement e = d.At(i / d.slots(), i % d.slots());
      Pointer<float>(arguments, 2)[block * d.elements() + i] = float(sums[e.row][e.column]);
    }
  }
}

void Load(const char* instruction, void** arguments) {
  const Fragment& loaded = *FindFragment(instruction, MmaOperand::kLoaded);
  for (int i = 0; i < loaded.elements(); ++i) {
    const TileElement e = loaded.At(i / loaded.slots(), i % loaded.slots());
    Pointer<uint16_t>(arguments, 1)[i] = Pointer<uint16_t>(arguments, 0)[e.row * 8 + e.column];
  }
}

// A descriptor is the matrix's address and the elements of its row.
void CopyTile(const CudaTensorMap& given, void** arguments) {
  static const CudaTensorMap first = given;
  const CudaTensorMap& map = Defect("descriptor") ? first : given;
  const auto* matrix = static_cast<const float*>(HostAddress(map.opaque[0]));
  const int x = Argument<int>(arguments, 2), y = Argument<int>(arguments, 3);
  for (int i = 0; i < 32 * 32; ++i) {
    Pointer<float>(arguments, 1)[i] = matrix[(y + i / 32) * map.opaque[1] + x + i % 32];
  }
}

// Takes 2 ms at 1.5 GHz.
void Multiplied(void** arguments, Threads) {
  device.now_ms += 2;
  Pointer<uint64_t>(arguments, 1)[0] = 3'000'000;
  Pointer<uint64_t>(arguments, 1)[1] = 2'000'000;
}

uint32_t FloatBits(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }

// Kernels without a row have no result that a part looks at.
std::vector<emulator::Kernel>& Kernels() {
  static auto& kernels = *new std::vector<emulator::Kernel>{
      {"empty", {}, nullptr},
      {"read_sizes", {8, 8}, nullptr},
      {"take_sizes", {8, 8, 8, 8, 8, 8, 8, 8, 8}, nullptr},
      {"append",
       {8, 4},
       [](void** a, Threads) {
         *Pointer<uint32_t>(a, 0) = *Pointer<uint32_t>(a, 0) * Argument<uint32_t>(a, 1) + 1;
       }},
      {"spin",
       {8, 8},
       [](void** a, Threads) {
         const auto cycles = Argument<uint64_t>(a, 0);
         device.now_ms += double(cycles) / 1.5e6;
         if (auto* took = Pointer<uint64_t>(a, 1); took != nullptr) {
           took[0] = cycles;
           took[1] = cycles * 2 / 3;
         }
       }},
      {"fma_f32", {8, 8}, Multiplied},
      {"mma_f16", {8, 8}, Multiplied},
      {"mma_bf16", {8, 8}, Multiplied},
      {"count_nonzero",
       {8, 8, 8},
       [](void** a, Threads) { *Pointer<uint64_t>(a, 2) += Defect("dirty"); }},
      {"write_word",
       {8, 4},
       [](void** a, Threads) {
         if (emulator::Reach(Argument<CudaPointer>(a, 0), 4) == nullptr) {
           emulator::Lose(kCudaIllegalAddress, "");
         }
       }},
      {"trap", {}, [](void**, Threads) { emulator::Lose(kCudaLaunchFailed, ""); }},
      {"hang", {8}, [](void**, Threads) { device.hanging = true; }},
      {"multiply_f16",
       {8, 8, 8},
       [](void** a, Threads n) { Multiply<uint16_t>("mma.m16n8k16", a, n, F16Value, FloatBits); }},
      {"multiply_bf16",
       {8, 8, 8},
       [](void** a, Threads n) { Multiply<uint16_t>("mma.m16n8k16", a, n, Bf16Value, FloatBits); }},
      {"multiply_i8",
       {8, 8, 8},
       [](void** a, Threads n) {
         Multiply<int8_t>(
             "mma.m16n8k32", a, n, [](int8_t v) { return v; },
             [](double v) { return uint32_t(int32_t(v)); });
       }},
      {"multiply_tf32",
       {8, 8, 8},
       [](void** a, Threads n) {
         Multiply<float>("mma.m16n8k8", a, n, [](float v) { return v; }, FloatBits);
       }},
      {"load_plain", {8, 8}, [](void** a, Threads) { Load("ldmatrix.x4", a); }},
      {"load_trans", {8, 8}, [](void** a, Threads) { Load("ldmatrix.x4.trans", a); }},
      {"chain_f16", {8, 8, 8, 4}, [](void** a, Threads n) { Chain(a, n, F16Value); }},
      {"chain_bf16", {8, 8, 8, 4}, [](void** a, Threads n) { Chain(a, n, Bf16Value); }},
      {"by_argument",
       {128, 8, 4, 4},
       [](void** a, Threads) { CopyTile(Argument<CudaTensorMap>(a, 0), a); }},
      {"by_pointer",
       {8, 8, 4, 4},
       [](void** a, Threads) { CopyTile(*Pointer<CudaTensorMap>(a, 0), a); }},
      {"by_pointer_fenced",
       {8, 8, 4, 4},
       [](void** a, Threads) { CopyTile(*Pointer<CudaTensorMap>(a, 0), a); }},
  };
  return kernels;
}

// Stands for every module: it looks at no machine code but for its first bytes.
struct StandIn : emulator::Program {
  emulator::Kernel* Find(std::string_view name) override {
    static auto& other =
        *new emulator::Kernel{"other", {}, [](void**, Threads) { device.now_ms += 2; }};
    for (emulator::Kernel& kernel : Kernels()) {
      if (kernel.name == name) return &kernel;
    }
    return &other;
  }
};

CudaResult Load(const void* image, std::unique_ptr<emulator::Program>* program) {
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0) {
    return kCudaNoBinaryForGpu;
  }
  *program = std::make_unique<StandIn>();
  return kCudaSuccess;
}

int Attribute(int attribute) {
  static const std::map<int, int> values = {
      {kCudaComputeMajor, 9},         {kCudaComputeMinor, 0},
      {kCudaMultiprocessors, 132},    {kCudaL2Bytes, 50 << 20},
      {kCudaVirtualMemory, 1},        {kCudaMemoryBusBits, 5120},
      {kCudaClockKilohertz, 1500000}, {kCudaMemoryClockKilohertz, 2619000}};
  const auto found = values.find(attribute);
  return found == values.end() ? 0 : found->second;
}

}  // namespace

const emulator::Machine& emulator::TheMachine() {
  static const auto& machine = *new emulator::Machine{
      .name = "stand-in",
      .bytes = size_t{80} << 30,
      .attribute = Attribute,
      .load = Load,
      .most_moved = size_t{16} << 20,  // no part reads the whole of more
      .swaps_nodes = Defect("order"),
  };
  return machine;
}

}  // namespace athanor
