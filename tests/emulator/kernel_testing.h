// Compiles kernels for the emulated device and launches them there, for tests.
#ifndef ATHANOR_TESTS_EMULATOR_KERNEL_TESTING_H_
#define ATHANOR_TESTS_EMULATOR_KERNEL_TESTING_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compiler/codegen/cuda/dialect.h"
#include "gtest/gtest.h"
#include "tests/emulator/testing.h"

namespace athanor {

struct BufferArgument {
  CudaPointer data = 0;
  int64_t bytes = 0;
};
struct Arguments {
  BufferArgument b0, b1;
  int64_t s0 = 0, items = 0;
  CudaPointer workspace = 0;
  int64_t stride = 0;
  CudaPointer error = 0;
};

// Is what kernels here begin with.
inline constexpr char kArguments[] =
    "#include \"athanor/device.h\"\n"
    "struct Arguments {\n"
    "  Buffer b0, b1; i64 s0, items;\n"
    "  u8* workspace; i64 stride; ErrorSlot* error;\n"
    "};\n";

// Returns the program whose kernel does `body` for each item `g`.
inline CudaSource Program(absl::string_view body, const std::string& arch = "sm_80") {
  return CudaSourceOf(absl::StrCat(kArguments,
                                   "KERNEL(athanor_kernel) {\n"
                                   "  for (i64 g = first(a); g < a.items; g += teams(a)) {\n",
                                   body, "\n  }\n}\n"),
                      arch);
}

class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : {"ATHANOR_EMULATOR_ARCH", "ATHANOR_EMULATOR_BYTES",
                                 "ATHANOR_EMULATOR_QUEUE", "ATHANOR_EMULATOR_ORDER"}) {
      unsetenv(variable);
    }
    Open();
  }

  // Opens a device as the environment says.
  void Open() {
    const absl::StatusOr<const CudaDriver*> driver = emulator::NewDevice(&library_);
    ASSERT_TRUE(driver.ok()) << driver.status();
    cuda_ = *driver;
    ASSERT_EQ(cuda_->Init(0), kCudaSuccess);
    CudaContext context = nullptr;
    ASSERT_EQ(cuda_->PrimaryCtxRetain(&context, 0), kCudaSuccess);
    ASSERT_EQ(cuda_->CtxSetCurrent(context), kCudaSuccess);
    ASSERT_EQ(cuda_->StreamCreate(&stream_, kCudaStreamNonBlocking), kCudaSuccess);
  }

  static std::string Code(const CudaSource& source) {
    absl::StatusOr<Cubin> cubin = emulator::Compiler().value()->Compile(source);
    EXPECT_TRUE(cubin.ok()) << cubin.status();
    return cubin.ok() ? cubin->code : "";
  }
  CudaFunction Load(const CudaSource& source) { return LoadCode(Code(source)); }
  CudaFunction LoadCode(const std::string& code) {
    CudaModule module = nullptr;
    CudaFunction function = nullptr;
    EXPECT_EQ(cuda_->ModuleLoadData(&module, code.data()), kCudaSuccess);
    EXPECT_EQ(cuda_->ModuleGetFunction(&function, module, "athanor_kernel"), kCudaSuccess);
    return function;
  }
  CudaFunction Load(absl::string_view body) { return Load(Program(body)); }

  CudaResult Launch(CudaFunction function, Arguments arguments, unsigned blocks = 1,
                    unsigned threads = 1) {
    std::vector<uint64_t> words(sizeof(arguments) / sizeof(uint64_t));
    std::memcpy(words.data(), &arguments, sizeof(arguments));
    return Launch(function, std::move(words), blocks, threads);
  }
  // Launches a kernel of any arguments.
  CudaResult Launch(CudaFunction function, std::vector<uint64_t> words, unsigned blocks,
                    unsigned threads) {
    launched_.push_back(std::move(words));  // the queue reads them later
    const std::vector<uint64_t>& kept = launched_.back();
    const size_t bytes = kept.size() * sizeof(uint64_t);
    CudaPointer at = 0;
    CudaResult result = cuda_->MemAlloc(&at, bytes);
    if (result == kCudaSuccess) result = cuda_->CopyToDevice(at, kept.data(), bytes, stream_);
    if (result != kCudaSuccess) return result;
    void* pointers[] = {&at};
    return cuda_->LaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream_, pointers,
                               nullptr);
  }
  absl::Status Wait() { return CudaStatus(*cuda_, cuda_->StreamSynchronize(stream_), "wait"); }

  BufferArgument Allocate(size_t bytes) {
    BufferArgument buffer = {0, static_cast<int64_t>(bytes)};
    EXPECT_EQ(cuda_->MemAlloc(&buffer.data, bytes), kCudaSuccess);
    return buffer;
  }
  template <typename T>
  BufferArgument Upload(const std::vector<T>& values) {
    const BufferArgument to = Allocate(values.size() * sizeof(T));
    EXPECT_EQ(cuda_->CopyToDevice(to.data, values.data(), to.bytes, stream_), kCudaSuccess);
    EXPECT_TRUE(Wait().ok());
    return to;
  }
  template <typename T>
  std::vector<T> Download(const BufferArgument& from) {
    std::vector<T> values(from.bytes / sizeof(T));
    EXPECT_EQ(cuda_->CopyToHost(values.data(), from.data, from.bytes, stream_), kCudaSuccess);
    EXPECT_TRUE(Wait().ok());
    return values;
  }
  // Runs one item of a kernel on two buffers of 16 floats; returns what the device says.
  absl::Status Fate(absl::string_view body, Arguments arguments = {}) {
    const CudaFunction function = Load(body);
    if (arguments.b0.data == 0) arguments.b0 = Upload(std::vector<float>(16, 1));
    if (arguments.b1.data == 0) arguments.b1 = Upload(std::vector<float>(16, 2));
    arguments.items = 1;
    EXPECT_EQ(Launch(function, arguments), kCudaSuccess);
    return Wait();
  }

  std::string library_;  // the path of the driver's
  const CudaDriver* cuda_ = nullptr;
  CudaStream stream_ = nullptr;
  std::deque<std::vector<uint64_t>> launched_;
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_EMULATOR_KERNEL_TESTING_H_
