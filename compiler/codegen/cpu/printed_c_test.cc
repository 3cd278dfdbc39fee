// Pins the C text of kernels, because compiled kernels are cached by its hash:
// testdata/printed_c.txt has one hash for each kernel of //compiler/pipeline's golden plans, of
// codegen's testdata, and for each of written_kernels_testing.h, over all targets below. After an
// intended change, run the test with ATHANOR_GOLDEN_OUT=<folder>: it writes the list and the texts
// there, for a comparison with those of the commit before.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/dialect.h"
#include "compiler/codegen/kir/written_kernels_testing.h"
#include "compiler/ir/value/digest.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Target(const std::string& triple, int bytes, const std::vector<std::string>& features) {
  v1::Target target;
  target.set_triple(triple);
  target.set_vector_bytes(bytes);
  for (const std::string& f : features) target.add_features(f);
  return target;
}

std::map<std::string, v1::Target> Targets() {
  const std::string linux = "x86_64-pc-linux-gnu";
  std::vector<std::string> avx2 = {"+sse4.1", "+avx2", "+fma"}, avx512 = avx2;
  avx512.insert(avx512.end(), {"+avx512f", "+avx512bw", "+avx512vl"});
  return {{"arm", Target("aarch64-unknown-linux-gnu", 16, {})},
          {"sse", Target("x86_64-pc-windows-msvc", 16, {})},
          {"avx2", Target(linux, 32, avx2)},
          {"avx512f", Target(linux, 64, {"+avx2", "+avx512f"})},
          {"avx512", Target(linux, 64, avx512)}};
}

std::map<std::string, kir::Kernel> Kernels() {
  std::map<std::string, kir::Kernel> kernels = WrittenKernels({1, 2, 4, 8, 16, 32, 64});
  kernels.merge(KernelsIn({"compiler/codegen/lower/testdata", "compiler/codegen/cpu/testdata",
                           "compiler/pipeline/testdata"}));
  return kernels;
}

TEST(PrintedC, IsThatOfTheCachedKernels) {
  const char* folder = std::getenv("ATHANOR_GOLDEN_OUT");
  std::string list;
  for (const auto& [name, kernel] : Kernels()) {
    ASSERT_TRUE(kir::Verify(kernel).ok()) << name << ": " << kir::Verify(kernel);
    std::string all;
    for (const auto& [target, features] : Targets()) {
      const std::string text = PrintCpuKernel(kernel, features);
      all += Cat(target, "\n", text);
      if (folder != nullptr) std::ofstream(Cat(folder, "/", name, ".", target, ".c")) << text;
    }
    list += Cat(name, " ", Sha256Hex(all).substr(0, 16), "\n");
  }
  if (folder != nullptr) std::ofstream(Cat(folder, "/printed_c.txt")) << list;
  ExpectSameLines(list, ReadFile("compiler/codegen/cpu/testdata/printed_c.txt"));
}

}  // namespace
}  // namespace athanor
