// Golden kernels: testdata/NAME.kir prints as testdata/NAME.c for an AVX-512 target. After an
// intended change, run the test with ATHANOR_GOLDEN_OUT=<folder> and review the difference.
#include "compiler/codegen/cpu/dialect.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "compiler/codegen/kir/kir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Read(const std::string& name) {
  std::ifstream file("compiler/codegen/cpu/testdata/" + name);
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

v1::Target Avx512() {
  v1::Target t;
  t.set_triple("x86_64-pc-linux-gnu");
  for (const char* f :
       {"+avx2", "+avx512bw", "+avx512dq", "+avx512f", "+avx512vl", "+f16c", "+fma", "+sse4.1"}) {
    t.add_features(f);
  }
  t.set_vector_bytes(64);
  return t;
}

kir::Kernel Parse(const std::string& text) {
  absl::StatusOr<kir::Kernel> kernel = kir::ParseKernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return {};
  EXPECT_TRUE(kir::Verify(*kernel).ok()) << kir::Verify(*kernel);
  return *std::move(kernel);
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, PrintsAsBefore) {
  const std::string name = GetParam();
  const kir::Kernel kernel = Parse(Read(name + ".kir"));
  EXPECT_EQ(kir::ToText(kernel), Read(name + ".kir"));
  const std::string got = PrintCpuKernel(kernel, Avx512());
  EXPECT_EQ(got, Read(name + ".c"));
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_OUT")) {
    std::ofstream(std::string(folder) + "/" + name + ".c") << got;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Golden, testing::Values("relu", "tile"));

TEST(PrintCpuKernel, DependsOnNeitherNamesNorDims) {
  kir::Kernel a = Parse(Read("relu.kir")), b = a;
  b.name = "another";
  b.sizes = {"batch"};
  EXPECT_EQ(PrintCpuKernel(a, Avx512()), PrintCpuKernel(b, Avx512()));
}

TEST(PrintCpuKernel, UsesOnlyWhatTheTargetHas) {
  const kir::Kernel kernel = Parse(Read("relu.kir"));
  v1::Target plain;
  plain.set_triple("aarch64-unknown-linux-gnu");
  plain.set_vector_bytes(16);
  const std::string text = PrintCpuKernel(kernel, plain);
  EXPECT_THAT(text, Not(HasSubstr("__builtin_ia32")));
  EXPECT_THAT(text, Not(HasSubstr("_ZGV")));
  EXPECT_THAT(PrintCpuKernel(kernel, Avx512()), HasSubstr("__builtin_ia32_loadups512_mask"));
}

// An index that cannot be negative is divided as the processor divides.
TEST(PrintCpuKernel, FloorsOnlyWhatMayBeNegative) {
  const std::string head = "kernel(s0) grid s0\nb0: i64 out\n";
  const std::string natural = PrintCpuKernel(
      Parse(head + "v0: i64 = index floordiv(g, 3)\nstore b0[g] = v0: i64\n"), Avx512());
  EXPECT_THAT(natural, HasSubstr("(g / 3L)"));
  const std::string floored = PrintCpuKernel(
      Parse(head + "v1: i64 = const -4\nv0: i64 = index floordiv(v1, 3)\nstore b0[g] = v0: i64\n"),
      Avx512());
  EXPECT_THAT(floored, HasSubstr("floor_i64("));
}

// Calls go through a variable that the loader sets: the object has no undefined symbol.
TEST(PrintCpuKernel, MultipliesByALibrary) {
  const std::string text = PrintCpuKernel(
      Parse("kernel(s0) grid s0\nb0: f64 out\nb1: f64 in\nb2: f64 in\n"
            "gemm b0[8*g] stride 8 = b1[0] stride s0 * b2[4*g] stride 3 transposed: f64 rows 2 "
            "columns 8 sums 3\n"),
      Avx512());
  EXPECT_THAT(text, HasSubstr("void (*athanor_dgemm)(i64 rows, i64 columns, i64 sums"));
  EXPECT_THAT(text, HasSubstr("athanor_dgemm(2L, 8L, 3L, b1 + 0L, s0, 0, b2 + (4L * g), 3L, 1, "
                              "b0 + (8L * g), 8L);"));
  EXPECT_THAT(text, Not(HasSubstr("sgemm")));
}

}  // namespace
}  // namespace athanor
