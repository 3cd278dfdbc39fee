// Pins the Metal text of the kernels whose CUDA text is pinned: testdata/printed_metal.txt has a
// hash for each, or why there is no text. After an intended change, run the test with
// ATHANOR_GOLDEN_OUT=<folder>: it writes the list and the texts there.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "compiler/codegen/cuda/golden_kernels_testing.h"
#include "compiler/codegen/kir/written_kernels_testing.h"
#include "compiler/codegen/metal/dialect.h"
#include "compiler/ir/value/digest.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(PrintedMetal, IsThatOfTheGoldenKernels) {
  const char* folder = std::getenv("ATHANOR_GOLDEN_OUT");
  std::string list;
  std::map<std::string, kir::Kernel> kernels = WrittenKernels({1}, /*f64=*/false);
  kernels.merge(CudaKernels());
  for (const auto& [name, kernel] : kernels) {
    ASSERT_TRUE(kir::Verify(kernel).ok()) << name << ": " << kir::Verify(kernel);
    if (!VerifyMetal(kernel).ok()) {
      list += Cat(name, " ", std::string(VerifyMetal(kernel).message()), "\n");
      continue;
    }
    const std::string text = PrintMetalKernel(kernel);
    if (folder != nullptr) std::ofstream(Cat(folder, "/", name, ".metal")) << text;
    list += Cat(name, " ", Sha256Hex(text).substr(0, 16), "\n");
  }
  if (folder != nullptr) std::ofstream(Cat(folder, "/printed_metal.txt")) << list;
  ExpectSameLines(list, ReadFile("compiler/codegen/metal/testdata/printed_metal.txt"));
}

}  // namespace
}  // namespace athanor
