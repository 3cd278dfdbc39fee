// Golden kernels: cuda/testdata/NAME.kir prints as testdata/NAME.metal. After an intended change,
// run the test with ATHANOR_GOLDEN_OUT=<folder> and review the difference.
#include "compiler/codegen/metal/dialect.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "compiler/codegen/kir/kir.h"
#include "compiler/codegen/kir/written_kernels_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFolder = "compiler/codegen/";

kir::Kernel Parse(const std::string& text) {
  absl::StatusOr<kir::Kernel> kernel = kir::ParseKernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return {};
  EXPECT_TRUE(kir::Verify(*kernel).ok()) << kir::Verify(*kernel);
  return *std::move(kernel);
}

kir::Kernel Golden(const std::string& name) {
  return Parse(ReadFile(kFolder + "cuda/testdata/" + name + ".kir"));
}

class GoldenMetal : public testing::TestWithParam<const char*> {};

TEST_P(GoldenMetal, PrintsAsBefore) {
  const kir::Kernel kernel = Golden(GetParam());
  ASSERT_TRUE(VerifyMetal(kernel).ok()) << VerifyMetal(kernel);
  const std::string got = PrintMetalKernel(kernel);
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_OUT")) {
    std::ofstream(std::string(folder) + "/" + GetParam() + ".metal") << got;
  }
  EXPECT_EQ(got, ReadFile(kFolder + "metal/testdata/" + GetParam() + ".metal"));
}

INSTANTIATE_TEST_SUITE_P(Kernels, GoldenMetal,
                         testing::Values("gather", "indices", "narrow", "relu", "row", "sort",
                                         "team_block", "team_gather", "team_row", "tile"));

void ExpectRefused(const kir::Kernel& kernel, absl::StatusCode code, const std::string& why) {
  const absl::Status status = VerifyMetal(kernel);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr(why));
}

TEST(VerifyMetal, RefusesPartsOfASimdGroup) {
  for (const char* name : {"team_large", "team_map"}) {
    ExpectRefused(Golden(name), absl::StatusCode::kUnimplemented, "is a part of a SIMD-group");
  }
}

// In memory, in registers alone, and behind a loop.
TEST(VerifyMetal, RefusesF64) {
  const std::string head = "kernel(s0) grid s0\nb0: f32 out\n";
  ExpectRefused(Parse("kernel(s0) grid s0\nb0: f64 out\n"), absl::StatusCode::kUnimplemented,
                "b0 is f64, which Metal does not have");
  ExpectRefused(Parse(head + "v0: f64 = const 0x0 (0)\n"), absl::StatusCode::kUnimplemented,
                "v0 is f64");
  ExpectRefused(Parse(head + "v0: f32 = const 0x0 (0)\nfor i0 in [0, s0) step 1 {\n"
                             "  v1: f64 = Cast(v0)\n}\n"),
                absl::StatusCode::kUnimplemented, "v1 (Cast) is f64");
}

TEST(VerifyMetal, RefusesALibraryAndVectors) {
  ExpectRefused(Parse("kernel(s0) grid s0\nb0: f32 out\nb1: f32 in\nb2: f32 in\n"
                      "gemm b0[8*g] stride 8 = b1[0] stride s0 * b2[4*g] stride 3 transposed: f32 "
                      "rows 2 columns 8 sums 3\n"),
                absl::StatusCode::kInternal, "a Metal kernel calls no library");
  ExpectRefused(Parse("kernel(s0) grid 1\nb0: f32 in\nfor i0 in [0, s0) step 4 {\n"
                      "  v0: f32x4 = load b0[i0 + lane]\n}\n"),
                absl::StatusCode::kInternal, "v0 has 4 lanes; a Metal kernel's registers have one");
}

TEST(VerifyMetal, RefusesMatrices) {
  const std::string head = "kernel() team 128 grid 1\nb0: f16 in\nb1: f16 scratch 2048\nbarrier\n";
  for (const char* line : {"copy b1[8*lane] = b0[8*lane] elements 8: f16x128\nwait 0\n",
                           "for i0 in [0, 4) step 1 {\n"
                           "  v0: f16x128.left = fragment b1[0] stride 16\n}\n"}) {
    ExpectRefused(Parse(head + line), absl::StatusCode::kUnimplemented,
                  "fragments and copies beside the threads are not printed as Metal");
  }
}

TEST(VerifyMetal, RefusesTickets) {
  ExpectRefused(Parse("kernel() team 128 grid 4\nb0: u32 launch 1 zeroed\n"
                      "v0: i32 = ticket b0[floordiv(g, 4)] of 4\n"),
                absl::StatusCode::kUnimplemented,
                "b0 is memory of the launch; sums that teams share by tickets are not printed");
}

// Scratch of 32 KiB fits a threadgroup only without the 64 bytes of reductions, and if no other
// team shares it.
TEST(MetalWorkspaceBytes, CountsWhatNoThreadgroupHolds) {
  const auto bytes = [](int team, int64_t elements) {
    kir::Kernel kernel;
    kernel.team = team;
    kernel.buffers.push_back(
        {.dtype = DType::kU8, .space = kir::Space::kScratch, .elements = elements});
    return MetalWorkspaceBytes(kernel);
  };
  EXPECT_EQ(bytes(128, 32768 - 64), 0);
  EXPECT_EQ(bytes(128, 32768 - 63), 32768);
  EXPECT_EQ(bytes(32, 8192), 0);
  EXPECT_EQ(bytes(32, 8193), 8256);
  EXPECT_EQ(bytes(1, 64), 64);
}

// Literals and words that C++14 and Metal lack.
TEST(PrintMetalKernel, WritesFloatsAsBits) {
  const std::string text =
      PrintMetalKernel(Parse("kernel() grid 1\nb0: f32 out\n"
                             "v0: f32 = const 0x3dcccccd (0.1)\nstore b0[0] = v0: f32\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("f32 v0 = as<f32>(0x3dcccccdu);"), Not(HasSubstr("0x1."))));
}

// A compiler that finds no headers takes it.
TEST(MetalSourceOf, IncludesItsHeaders) {
  const std::string source = MetalSourceOf(PrintMetalKernel(Golden("team_row")));
  EXPECT_THAT(source, AllOf(HasSubstr("#include <metal_stdlib>"), Not(HasSubstr("\"athanor/")),
                            HasSubstr("f32_to_f8e4m3"), HasSubstr("FN i32 check("),
                            HasSubstr("TEAM_KERNEL(athanor_kernel) {")));
  // C++14 has none of these, or Metal's words for address spaces replace them.
  for (const char* absent :
       {"if constexpr", "extern \"C\"", "[](", "__builtin", "ErrorSlot* slot", "const Buffer&"}) {
    EXPECT_THAT(source, Not(HasSubstr(absent))) << absent;
  }
}

}  // namespace
}  // namespace athanor
