// Golden kernels: testdata/NAME.kir prints as testdata/NAME.cu. After an intended change, run the
// test with ATHANOR_GOLDEN_OUT=<folder> and review the difference.
#include "compiler/codegen/cuda/dialect.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/codegen/kir/written_kernels_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const std::string kFolder = "compiler/codegen/cuda/";

kir::Kernel Parse(const std::string& text) {
  absl::StatusOr<kir::Kernel> kernel = kir::ParseKernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return {};
  EXPECT_TRUE(kir::Verify(*kernel).ok()) << kir::Verify(*kernel);
  return *std::move(kernel);
}

std::string Print(const std::string& text) { return PrintCudaKernel(Parse(text), {}); }

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, PrintsAsBefore) {
  const std::string stem = kFolder + "testdata/" + GetParam(), text = ReadFile(stem + ".kir");
  const kir::Kernel kernel = Parse(text);
  EXPECT_EQ(kir::ToText(kernel), text);
  const std::string got = PrintCudaKernel(kernel, {});
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_OUT")) {
    std::ofstream(std::string(folder) + "/" + GetParam() + ".cu") << got;
  }
  EXPECT_EQ(got, ReadFile(stem + ".cu"));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Golden,
                         testing::Values("gather", "indices", "narrow", "relu", "row", "sort",
                                         "team_block", "team_gather", "team_large", "team_map",
                                         "team_row", "tensor_f16", "ticket", "tile"));

// Fragments are loaded from shared memory, and copies go there.
TEST(VerifyCuda, RefusesMatricesThatNoSharedMemoryHolds) {
  const auto status = [](int64_t elements) {
    const std::string text =
        absl::StrCat("kernel() team 128 grid 1\nb0: f16 in\nb1: f16 scratch ", elements,
                     "\nbarrier\ncopy b1[8*lane] = b0[8*lane] elements 8: f16x128\n");
    return VerifyCuda(Parse(text));
  };
  constexpr int64_t kMost = ((48 << 10) - 64) / 2;
  EXPECT_TRUE(status(kMost).ok()) << status(kMost);
  EXPECT_EQ(status(kMost + 1).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status(kMost + 1).message()),
              HasSubstr("fragments and copies of 49152 bytes of scratch; a block has 49152 of "
                        "shared memory, 64 of them for reductions"));
}

// Loops, counts and limits of checks are computed in i32 too; what is wide beside them stays i64.
TEST(PrintCudaKernel, NarrowStatementsComputeInI32) {
  const std::string text = Print(
      "kernel(s0, s1) grid s0\nb0: f32 in\nb1: f32 out\n"
      "i32 for i0 in [4*g, min(4*g + 4, s0)) step 1 {\n"
      "  i32 v0: f32 = load b0[768*i0 - s1 + 7] count s0 - i0\n"
      "  v1: i64 = index 768*i0 + s1\n"
      "  i32 v2: bool = check v1 below 3*s1\n"
      "  store b1[i0*s1] = v0: f32\n"
      "}\n");
  for (const char* line :
       {"for (i64 x0 = (i64)(4 * (i32)g), x0_end = (i64)(((4 * (i32)g + 4) < (i32)s0 ? "
        "(4 * (i32)g + 4) : (i32)s0)); x0 < x0_end; x0 += 1) {",
        "f32 v0 = ((i64)((-1) * (i32)x0 + (i32)s0) > 0) ? "
        "load<f32>(b0, (i64)(768 * (i32)x0 - (i32)s1 + 7)) : 0;",
        "i64 v1 = (768L * x0 + s1);", "i32 v2 = check(a.error, g, v1, (i64)(3 * (i32)s1), 1);",
        "store<f32>(b1, (x0 * s1), v0);"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(PrintCudaKernel, DependsOnNeitherNamesNorDimsNorTarget) {
  kir::Kernel a = Parse(ReadFile(kFolder + "testdata/relu.kir")), b = a;
  b.name = "another";
  b.sizes = {"batch"};
  v1::Target target;
  target.set_vector_bytes(16);
  EXPECT_EQ(PrintCudaKernel(a, {}), PrintCudaKernel(b, target));
}

TEST(PrintCudaKernel, TakesAKernelOfNothing) {
  EXPECT_EQ(Print("kernel() grid 0\n"),
            "#include \"athanor/device.h\"\n"
            "struct Arguments {\n  i64 items;\n  u8* workspace;\n  i64 stride;\n"
            "  ErrorSlot* error;\n};\n"
            "KERNEL(athanor_kernel) {\n"
            "  for (i64 g = first(a); g < a.items; g += teams(a)) {\n  }\n}\n");
}

// The smallest integers have no positive literal, infinities and NaN none at all.
TEST(PrintCudaKernel, WritesEveryConstant) {
  const std::string text = Print(
      "kernel() grid 1\nb0: i64 out\nb1: f32 out\nb2: f64 out\nb3: f16 out\n"
      "v0: i64 = const -9223372036854775808\nstore b0[0] = v0: i64\n"
      "v1: f32 = const 0xff800000 (-inf)\nstore b1[0] = v1: f32\n"
      "v2: f64 = const 0x7ff8000000000000 (nan)\nstore b2[0] = v2: f64\n"
      "v3: f16 = const 0x7c00 (inf)\nstore b3[0] = v3: f16\n"
      "v4: f32 = const 0x3dcccccd (0.1)\nstore b1[0] = v4: f32\n");
  EXPECT_THAT(text, AllOf(HasSubstr("i64 v0 = (i64)0x8000000000000000UL;"),
                          HasSubstr("f32 v1 = as<f32>(0xff800000u);"),
                          HasSubstr("f64 v2 = as<f64>(0x7ff8000000000000UL);"),
                          HasSubstr("u16 v3 = 0x7c00u;"), HasSubstr("f32 v4 = 0x1.99999ap-4f;")));
}

TEST(PrintCudaKernel, FloorsOnlyWhatMayBeNegative) {
  const std::string head = "kernel(s0) grid s0\nb0: i64 out\n";
  EXPECT_THAT(Print(head + "v0: i64 = index floordiv(g, 3)\nstore b0[g] = v0: i64\n"),
              HasSubstr("(g / 3L)"));
  EXPECT_THAT(
      Print(head + "v1: i64 = const -4\nv0: i64 = index floordiv(v1, 3)\nstore b0[g] = v0: i64\n"),
      HasSubstr("floor_index(v1, 3L)"));
}

TEST(VerifyCuda, RefusesVectorsWithinLoops) {
  const absl::Status status =
      VerifyCuda(Parse("kernel(s0) grid 1\nb0: f32 in\nfor i0 in [0, s0) step 4 {\n"
                       "  v0: f32x4 = load b0[i0 + lane]\n}\n"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("v0 has 4 lanes; a CUDA kernel's registers have one"));
}

TEST(VerifyCuda, RefusesALibrary) {
  const absl::Status status = VerifyCuda(
      Parse("kernel(s0) grid s0\nb0: f64 out\nb1: f64 in\nb2: f64 in\n"
            "gemm b0[8*g] stride 8 = b1[0] stride s0 * b2[4*g] stride 3 transposed: f64 rows 2 "
            "columns 8 sums 3\n"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("calls no library"));
}

TEST(PrintCudaKernel, PrintsALibraryCallAsItsKir) {
  const std::string text =
      "kernel(s0) grid 1\nb0: f16 out\nb1: f16 in\nb2: f16 in\nb3: u8 launch 4096\n"
      "call b0[0] stride 64 = b1[0] stride 32 * b2[0] stride 64: f16 rows s0 columns 64 sums 32 "
      "batch 1 ways 64 proposal 0\n";
  const kir::Kernel kernel = Parse(text);
  EXPECT_TRUE(VerifyCuda(kernel).ok()) << VerifyCuda(kernel);
  EXPECT_EQ(PrintCudaKernel(kernel, {}), text);
  EXPECT_EQ(CudaWorkspaceBytes(kernel), 0);
}

// Memory of the launch comes with the other arguments, before the sizes.
TEST(PrintCudaKernel, DrawsTicketsFromArguments) {
  const std::string text = Print(
      "kernel(s0) team 128 grid 4*s0\nb0: f32 out\nb1: u32 launch 8 zeroed\n"
      "v0: i32 = ticket b1[floordiv(g, 4)] of 4\n");
  EXPECT_THAT(text, AllOf(HasSubstr("  Buffer b0;\n  Buffer b1;\n  i64 s0;\n"),
                          HasSubstr("TEAM_KERNEL(athanor_kernel, 128, 64) {"),
                          HasSubstr("const Buffer b1 = a.b1;"),
                          HasSubstr("i32 v0 = ticket<128>(b1, ((g >> 2)), 4);")));
}

// 2045 buffers of 16 bytes, a size and four words are 32,760 bytes. Scratch is no argument.
TEST(CudaSourceOf, BringsItsHeadersAndOptions) {
  const CudaSource source = CudaSourceOf("text", "sm_90a");
  EXPECT_EQ(source.source, "text");
  EXPECT_EQ(source.arch, "sm_90a");
  EXPECT_THAT(source.options, Contains("--fmad=false"));
  ASSERT_EQ(source.headers.size(), 4);
  EXPECT_EQ(source.headers[0].name, "athanor/device.h");
  EXPECT_EQ(source.headers[0].text, ReadFile(kFolder + "device.h.txt"));
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_THAT(source.headers[0].text, HasSubstr("#include \"" + source.headers[i].name + "\"\n"));
  }
}

}  // namespace
}  // namespace athanor
