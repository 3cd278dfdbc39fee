// Pins the CUDA text of kernels, because compiled kernels are cached by its hash:
// testdata/printed_cuda.txt has one hash for each of golden_kernels_testing.h. After an intended
// change, run the test with ATHANOR_GOLDEN_OUT=<folder>: it writes the list and the texts there,
// for a comparison with those of the commit before.
#include <cstdlib>
#include <fstream>
#include <string>

#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/cuda/golden_kernels_testing.h"
#include "compiler/ir/value/digest.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(PrintedCuda, IsThatOfTheCachedKernels) {
  const char* folder = std::getenv("ATHANOR_GOLDEN_OUT");
  std::string list;
  for (const auto& [name, kernel] : CudaKernels()) {
    ASSERT_TRUE(kir::Verify(kernel).ok()) << name << ": " << kir::Verify(kernel);
    const std::string text = PrintCudaKernel(kernel, {});
    if (folder != nullptr) std::ofstream(Cat(folder, "/", name, ".cu")) << text;
    list += Cat(name, " ", Sha256Hex(text).substr(0, 16), "\n");
  }
  if (folder != nullptr) std::ofstream(Cat(folder, "/printed_cuda.txt")) << list;
  ExpectSameLines(list, ReadFile("compiler/codegen/cuda/testdata/printed_cuda.txt"));
}

}  // namespace
}  // namespace athanor
