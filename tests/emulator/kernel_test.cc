// Kernels on the emulated device: compiled, loaded and launched by the tables of functions that the
// tuner and the server use. What a GPU would not forgive has to show here.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/kernel_abi.h"
#include "tests/emulator/kernel_testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(KernelTest, ItemsAreWalkedByAnyNumberOfThreads) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    setenv("ATHANOR_EMULATOR_ARCH", arch, 1);
    Open();
    const CudaFunction twice =
        Load(Program("store<f32>(a.b1, g, 2 * load<f32>(a.b0, g) + f32(a.s0));", arch));
    for (const int n : {1, 2, 127, 128, 1009}) {
      for (const auto& [blocks, threads] : {std::pair(1, 1), std::pair(3, 128), std::pair(8, 7)}) {
        std::vector<float> in(n), want(n);
        for (int i = 0; i < n; ++i) want[i] = 2 * (in[i] = float(i)) + 5;
        const BufferArgument out = Allocate(4 * n);
        ASSERT_EQ(
            Launch(twice, {.b0 = Upload(in), .b1 = out, .s0 = 5, .items = n}, blocks, threads),
            kCudaSuccess);
        EXPECT_EQ(Download<float>(out), want) << n << " items, " << blocks << " x " << threads;
      }
    }
  }
}

TEST_F(KernelTest, ArgumentsAreReadWhenTheKernelRuns) {
  const CudaFunction store = Load("store<i64>(a.b0, 0, a.s0);");
  const BufferArgument out = Allocate(8);
  BufferArgument at = Allocate(sizeof(Arguments));
  void* pointers[] = {&at.data};
  ASSERT_EQ(cuda_->LaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream_, pointers, nullptr),
            kCudaSuccess);
  // The address was kept, and what lies there was not.
  const CudaPointer address = std::exchange(at.data, 0);
  const Arguments arguments = {.b0 = out, .b1 = out, .s0 = 7, .items = 1};
  setenv("ATHANOR_EMULATOR_QUEUE", "late", 1);
  CudaStream other = nullptr;
  ASSERT_EQ(cuda_->StreamCreate(&other, kCudaStreamNonBlocking), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToDevice(address, &arguments, sizeof(arguments), other), kCudaSuccess);
  ASSERT_EQ(cuda_->StreamSynchronize(other), kCudaSuccess);
  EXPECT_EQ(Download<int64_t>(out), std::vector<int64_t>{7});
}

TEST_F(KernelTest, WrongArgumentsAndLaunchesAreRefused) {
  const CudaFunction function = Load("store<i64>(a.b0, 0, a.s0);");
  const Arguments arguments = {.b0 = Allocate(8), .items = 1};
  EXPECT_EQ(Launch(function, arguments, 0, 1), kCudaInvalidValue);
  EXPECT_EQ(Launch(function, arguments, 1, 0), kCudaInvalidValue);
  EXPECT_EQ(Launch(function, arguments, 1, 1025), kCudaInvalidValue);
  EXPECT_EQ(Launch(function, arguments, 1, 1024), kCudaSuccess);
  EXPECT_TRUE(Wait().ok());
  EXPECT_EQ(cuda_->LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr),
            kCudaInvalidValue);
  // Of a struct that is longer than what is there.
  EXPECT_EQ(Launch(function, std::vector<uint64_t>(sizeof(Arguments) / 8 - 1), 1, 1), kCudaSuccess);
  EXPECT_THAT(std::string(Wait().message()), HasSubstr("ILLEGAL_ADDRESS"));
}

TEST_F(KernelTest, OnlyCodeForThisDeviceLoads) {
  CudaModule module = nullptr;
  const std::string other = Code(Program("", "sm_90a"));
  EXPECT_EQ(cuda_->ModuleLoadData(&module, other.data()), kCudaNoBinaryForGpu);
  // A GPU's own code is of ELF machine 190.
  std::string cubin = Code(Program(""));
  cubin[18] = static_cast<char>(190);
  cubin[19] = 0;
  EXPECT_EQ(cuda_->ModuleLoadData(&module, cubin.data()), kCudaNoBinaryForGpu);
  EXPECT_EQ(cuda_->ModuleLoadData(&module, std::string(64, 'x').data()), kCudaInvalidImage);
  const std::string good = Code(Program(""));
  ASSERT_EQ(cuda_->ModuleLoadData(&module, good.data()), kCudaSuccess);
  CudaFunction function = nullptr;
  EXPECT_NE(cuda_->ModuleGetFunction(&function, module, "no_kernel"), kCudaSuccess);
  EXPECT_EQ(cuda_->ModuleUnload(module), kCudaSuccess);
  EXPECT_NE(cuda_->ModuleUnload(module), kCudaSuccess);
}

TEST_F(KernelTest, AnAccessOutsideItsArgumentIsCaughtThoughMemoryIsThere) {
  const BufferArgument both = Allocate(128);
  const BufferArgument left = {both.data, 64}, right = {both.data + 64, 64};
  const absl::Status status =
      Fate("store<f32>(a.b1, 0, load<f32>(a.b0, 16));", {.b0 = left, .b1 = right});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(),
              HasSubstr("athanor_kernel: thread 0 of 1 reads 4 bytes 64 bytes into an argument of "
                        "64"));
}

TEST_F(KernelTest, AnAccessBeforeItsArgumentIsCaught) {
  EXPECT_THAT(Fate("store<f32>(a.b1, -1, 0);").message(),
              HasSubstr("writes 4 bytes -4 bytes into an argument of 64"));
}

TEST_F(KernelTest, AnAccessOutsideAllThatIsAllocatedIsCaught) {
  BufferArgument longer = Allocate(64);
  longer.bytes = 1 << 20;  // the launch says more than there is
  EXPECT_THAT(Fate("store<f32>(a.b0, 16, 0);", {.b0 = longer}).message(),
              HasSubstr("writes 4 bytes 64 bytes into a block of 64"));
}

TEST_F(KernelTest, FreedMemoryIsNotThere) {
  const BufferArgument freed = Allocate(64);
  ASSERT_EQ(cuda_->MemFree(freed.data), kCudaSuccess);
  EXPECT_EQ(Fate("store<f32>(a.b0, 0, 0);", {.b0 = freed}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(KernelTest, MemoryFreedBeforeItsKernelWasWaitedForIsNotThere) {
  const CudaFunction function = Load("store<f32>(a.b0, 0, 0);");
  const BufferArgument out = Allocate(64);
  ASSERT_EQ(Launch(function, {.b0 = out, .items = 1}), kCudaSuccess);
  ASSERT_EQ(cuda_->MemFree(out.data), kCudaSuccess);
  EXPECT_EQ(Wait().code(), absl::StatusCode::kUnavailable);
}

TEST_F(KernelTest, AHostsPointerIsNoDevices) {
  float host[16] = {};
  const BufferArgument wrong = {reinterpret_cast<CudaPointer>(host), sizeof(host)};
  EXPECT_THAT(Fate("store<f32>(a.b0, 0, 1);", {.b0 = wrong}).message(),
              HasSubstr("which is no address of the device"));
  EXPECT_EQ(host[0], 0);
}

TEST_F(KernelTest, AMisalignedAccessIsCaught) {
  BufferArgument odd = Allocate(64);
  odd.data += 2;
  odd.bytes -= 2;
  const absl::Status status = Fate("store<f32>(a.b0, 0, 1);", {.b0 = odd});
  EXPECT_THAT(status.message(), AllOf(HasSubstr("(716)"), HasSubstr("they do not divide")));
}

TEST_F(KernelTest, AFaultLosesTheContextForAllCallsAfterIt) {
  EXPECT_FALSE(Fate("store<f32>(a.b0, 16, 1);").ok());
  CudaPointer pointer = 0;
  EXPECT_EQ(cuda_->MemAlloc(&pointer, 4), kCudaIllegalAddress);
  EXPECT_EQ(cuda_->StreamSynchronize(stream_), kCudaIllegalAddress);
  EXPECT_EQ(cuda_->PrimaryCtxReset(0), kCudaIllegalAddress);
  Open();  // another device is not concerned
  EXPECT_EQ(cuda_->MemAlloc(&pointer, 4), kCudaSuccess);
}

TEST_F(KernelTest, AFaultEndsItsLaunchAndThoseAfterIt) {
  const CudaFunction function =
      Load("store<f32>(a.b0, g, 3); if (g == 1) store<f32>(a.b1, 16, 1);");
  CudaPointer out = 0;
  ASSERT_EQ(cuda_->MemAlloc(&out, 16), kCudaSuccess);
  const Arguments arguments = {.b0 = {out, 16}, .b1 = Allocate(64), .items = 4};
  float host[4] = {};
  EXPECT_EQ(Launch(function, arguments), kCudaSuccess);
  EXPECT_EQ(cuda_->CopyToHost(host, out, sizeof(host), stream_), kCudaSuccess);
  EXPECT_FALSE(Wait().ok());
  EXPECT_THAT(host, Each(0.0f));
}

TEST_F(KernelTest, HostCodeCannotUseADevicesAddress) {
  const BufferArgument memory = Upload(std::vector<float>(16, 1));
  EXPECT_EXIT(
      { *reinterpret_cast<volatile float*>(memory.data) = 1; }, ::testing::KilledBySignal(SIGSEGV),
      "");
  EXPECT_EQ(cuda_->CopyToHost(reinterpret_cast<void*>(memory.data), memory.data, 4, stream_),
            kCudaInvalidValue);
}

TEST_F(KernelTest, ScratchOfEachLaunchIsUnwritten) {
  // Each item reads its scratch, then writes it.
  const CudaFunction function = Load(
      "const Buffer t = scratch(a, 8, 8); store<f64>(a.b0, g, load<f64>(t, 0));"
      "store<f64>(t, 0, 1.0);");
  const BufferArgument out = Allocate(4 * 8), workspace = Upload(std::vector<double>(2 * 2, 1));
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_EQ(
        Launch(function, {.b0 = out, .items = 4, .workspace = workspace.data, .stride = 16}, 1, 2),
        kCudaSuccess);
    const std::vector<double> read = Download<double>(out);
    EXPECT_NE(read[0], read[0]);
    EXPECT_NE(read[1], read[1]);
    EXPECT_EQ(read[2], 1);  // of the thread's first item
  }
}

TEST_F(KernelTest, AWorkspaceForFewerThreadsIsCaught) {
  const BufferArgument workspace = Allocate(2 * 16);
  const CudaFunction function = Load("");
  const Arguments arguments = {.items = 3, .workspace = workspace.data, .stride = 16};
  ASSERT_EQ(Launch(function, arguments, 1, 2), kCudaSuccess);
  EXPECT_TRUE(Wait().ok());
  ASSERT_EQ(Launch(function, arguments, 1, 3), kCudaSuccess);
  EXPECT_THAT(Wait().message(), HasSubstr("thread 2 of 3 writes 16 bytes"));
}

TEST_F(KernelTest, ScratchOutsideAThreadsShareIsCaught) {
  EXPECT_THAT(Fate("scratch(a, 8, 16);", {.workspace = Allocate(64).data, .stride = 16}).message(),
              HasSubstr("writes 16 bytes 8 bytes into an argument of 16"));
}

TEST_F(KernelTest, NewMemoryIsUnwritten) {
  const std::vector<float> values = Download<float>(Allocate(64));
  for (const float value : values) EXPECT_NE(value, value);
}

TEST_F(KernelTest, TheLowestFailedItemIsReportedInBothOrders) {
  for (const char* order : {"ascending", "descending"}) {
    setenv("ATHANOR_EMULATOR_ORDER", order, 1);
    Open();
    const CudaFunction function = Load("if (g % 5 == 3) record(a.error, g, 100 + g, a.s0);");
    const BufferArgument slot = Upload(std::vector<ErrorSlot>(1));
    ASSERT_EQ(Launch(function, {.s0 = 40, .items = 29, .error = slot.data}, 2, 4), kCudaSuccess);
    const auto [error, lock] = Download<ErrorSlot>(slot)[0];
    EXPECT_EQ(error.code, 1);
    EXPECT_EQ(error.item, 3) << order;
    EXPECT_EQ(error.index, 103);
    EXPECT_EQ(error.extent, 40);
    EXPECT_EQ(lock, 0);
  }
}

TEST_F(KernelTest, AnErrorSlotThatWasNotClearedIsCaught) {
  EXPECT_THAT(
      Fate("record(a.error, -2, 0, 0);", {.error = Allocate(sizeof(ErrorSlot)).data}).message(),
      HasSubstr("of a lock that no other thread can hold"));
}

// Rounds a number to a format of 16 bits, once.
uint16_t Rounded(__float128 x, int mantissa, int bias) {
  const uint16_t sign = x < 0 ? 0x8000 : 0;
  const uint16_t infinity = 0x7fff >> mantissa << mantissa;
  if (x < 0) x = -x;
  int exponent = 1 - bias;  // of the subnormal numbers
  __float128 unit = 1;
  for (int i = 0; i < bias - 1 + mantissa; ++i) unit /= 2;
  while (x / unit >= (2 << mantissa)) unit *= 2, ++exponent;
  const __float128 quanta = x / unit;
  auto whole = static_cast<uint64_t>(quanta);
  const __float128 rest = quanta - whole;
  if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1)) ++whole;
  const uint64_t code = whole + (uint64_t(exponent + bias - 1) << mantissa);
  return sign | static_cast<uint16_t>(std::min<uint64_t>(code, infinity));
}

TEST_F(KernelTest, NarrowMultiplyAddsRoundOnce) {
  struct Format {
    const char* body;
    int mantissa, bias;
    double (*value)(uint16_t);
  };
  const Format formats[] = {
      {"store<u16>(a.b1, g, fma_f16(load<u16>(a.b0, 3 * g), load<u16>(a.b0, 3 * g + 1), "
       "load<u16>(a.b0, 3 * g + 2)));",
       10, 15, [](uint16_t x) { return static_cast<double>(__builtin_bit_cast(_Float16, x)); }},
      {"store<u16>(a.b1, g, fma_bf16(load<u16>(a.b0, 3 * g), load<u16>(a.b0, 3 * g + 1), "
       "load<u16>(a.b0, 3 * g + 2)));",
       7, 127, [](uint16_t x) -> double { return __builtin_bit_cast(float, uint32_t{x} << 16); }}};
  for (const Format& format : formats) {
    constexpr int kItems = 100'000;
    std::vector<uint16_t> in(3 * kItems);
    uint32_t state = 1;
    for (uint16_t& x : in) {
      do {
        state = state * 1664525 + 1013904223;
        x = state >> 16;
        // Near exponents, so that sums are exact in the reference.
        if (format.bias == 127) x = (x & 0x87ff) | 0x3c00;
      } while (format.value(x) - format.value(x) != 0);
    }
    const BufferArgument out = Allocate(2 * kItems);
    ASSERT_EQ(Launch(Load(format.body), {.b0 = Upload(in), .b1 = out, .items = kItems}, 4, 128),
              kCudaSuccess);
    const std::vector<uint16_t> sums = Download<uint16_t>(out);
    for (int i = 0; i < kItems; ++i) {
      const double a = format.value(in[3 * i]), b = format.value(in[3 * i + 1]),
                   c = format.value(in[3 * i + 2]);
      const __float128 sum = __float128(a) * b + c;
      if (sum == 0) continue;  // its sign is the addition's
      ASSERT_EQ(sums[i], Rounded(sum, format.mantissa, format.bias))
          << a << " * " << b << " + " << c;
    }
  }
}

// A product halfway between two numbers, and a third that f32 or even f64 cannot add to it.
TEST_F(KernelTest, ATinyAddendDecidesATie) {
  const CudaFunction function = Load(
      "store<u16>(a.b1, g, fma_bf16(load<u16>(a.b0, 3 * g), load<u16>(a.b0, 3 * g + 1), "
      "load<u16>(a.b0, 3 * g + 2)));");
  const auto bf16 = [](float x) { return uint16_t(__builtin_bit_cast(uint32_t, x) >> 16); };
  std::vector<uint16_t> in, want;
  for (const float sign : {1.0f, -1.0f}) {
    for (const int odd : {1, 3}) {  // (1 + odd / 128) * 1.5 is 1.5 + (odd * 1.5) / 128
      const int below = odd * 3 / 2;
      for (const float tiny : {0x1p-30f, 0x1p-70f, 0x1p-100f, 0.0f, -0x1p-30f, -0x1p-100f}) {
        in.insert(in.end(), {bf16(sign * (1 + odd / 128.0f)), bf16(1.5f), bf16(sign * tiny)});
        const int whole = tiny == 0 ? below + below % 2 : below + (tiny > 0);
        want.push_back(bf16(sign * (1.5f + whole / 128.0f)));
      }
    }
  }
  const BufferArgument out = Allocate(2 * want.size());
  ASSERT_EQ(Launch(function, {.b0 = Upload(in), .b1 = out, .items = int64_t(want.size())}),
            kCudaSuccess);
  EXPECT_EQ(Download<uint16_t>(out), want);
}

TEST_F(KernelTest, ConversionsRoundToEvenAndHaveOneNan) {
  const CudaFunction function = Load(
      "store<u16>(a.b1, g, g % 2 ? f32_to_f16(load<f32>(a.b0, g)) : "
      "f32_to_bf16(load<f32>(a.b0, g)));");
  const float nan = __builtin_nanf("0x12345"), tie = 1 + 1.0f / 2048;
  const std::vector<float> in = {nan,   -nan,  1 + 1.0f / 256, tie, 1 + 3.0f / 256,
                                 70000, -0.0f, 1e-7f};
  const BufferArgument out = Allocate(2 * in.size());
  ASSERT_EQ(Launch(function, {.b0 = Upload(in), .b1 = out, .items = int64_t(in.size())}),
            kCudaSuccess);
  EXPECT_EQ(Download<uint16_t>(out),
            (std::vector<uint16_t>{0x7fff, 0x7fff, 0x3f80, 0x3c00, 0x3f82, 0x7c00, 0x8000, 2}));
}

}  // namespace
}  // namespace athanor
