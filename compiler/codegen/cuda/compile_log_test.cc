#include "compiler/codegen/cuda/compile_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// NVRTC 13.0 wrote these texts.
constexpr char kTwoKernels[] = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas info    : Function properties for b
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 9 registers, used 1 barriers, 256 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 7.066 ms
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 360 bytes cmem[0]
ptxas info    : Compile time = 1.073 ms
)";

constexpr char kSpilling[] = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 's' for 'sm_90a'
ptxas info    : Function properties for s
ptxas         .     832 bytes stack frame, 868 bytes spill stores, 1244 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 832 bytes cumulative stack size
ptxas info    : Compile time = 173.152 ms
)";

constexpr char kInjected[] =
    "ptxas info    : (C7519) warpgroup.arrive is injected in around line 66 by compiler to allow "
    "use of registers in GMMA in function 'w'\n"
    R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'w' for 'sm_90a'
ptxas info    : Function properties for w
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
ptxas info    : Compile time = 6.679 ms
ptxas info    : Function properties for _Z1ff
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
)";

TEST(CompileLogTest, EachKernelHasItsResources) {
  const CompileLog log = ParseCompileLog(kTwoKernels);
  ASSERT_EQ(log.kernels.size(), 2);
  EXPECT_EQ(log.kernels[0].name, "b");
  EXPECT_EQ(log.kernels[0].arch, "sm_80");
  EXPECT_EQ(log.kernels[0].registers, 9);
  EXPECT_EQ(log.kernels[0].barriers, 1);
  EXPECT_EQ(log.kernels[0].shared_bytes, 256);
  EXPECT_FALSE(log.kernels[0].spills());
  EXPECT_EQ(log.kernels[1].name, "a");
  EXPECT_EQ(log.kernels[1].registers, 8);
  EXPECT_EQ(log.kernels[1].barriers, 0);
  EXPECT_EQ(log.kernels[1].shared_bytes, 0);
  EXPECT_TRUE(log.warnings.empty());
}

TEST(CompileLogTest, SpillsAreCounted) {
  const CompileLog log = ParseCompileLog(kSpilling);
  ASSERT_EQ(log.kernels.size(), 1);
  EXPECT_EQ(log.kernels[0].stack_bytes, 832);
  EXPECT_EQ(log.kernels[0].spill_store_bytes, 868);
  EXPECT_EQ(log.kernels[0].spill_load_bytes, 1244);
  EXPECT_EQ(log.kernels[0].registers, 64);
  EXPECT_TRUE(log.kernels[0].spills());
}

TEST(CompileLogTest, WarningsHaveTheirCodes) {
  const CompileLog log = ParseCompileLog(kInjected);
  ASSERT_EQ(log.warnings.size(), 1);
  EXPECT_EQ(log.warnings[0].code, "C7519");
  EXPECT_THAT(log.warnings[0].text, HasSubstr("warpgroup.arrive is injected"));
  EXPECT_TRUE(log.Warns("C7519"));
  EXPECT_FALSE(log.Warns("C7511"));
  EXPECT_FALSE(log.serialised());
}

TEST(CompileLogTest, SerialisedInstructionsShowWhateverTheCode) {
  for (const char* line :
       {"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to wgmma pipeline crossing function boundary at a function call in the "
        "function 'w'",
        "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to non wgmma instructions reading accumulator registers of  a wgmma "
        "between start and end of the pipeline stage in the function 'w'",
        "ptxas info    : (C7520) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to program dependence on compiler-inserted WG.AR in divergent path in the "
        "function 'w'"}) {
    const CompileLog log = ParseCompileLog(line);
    ASSERT_EQ(log.warnings.size(), 1) << line;
    EXPECT_EQ(log.warnings[0].code.substr(0, 3), "C75") << line;
    EXPECT_TRUE(log.serialised()) << line;
  }
}

TEST(CompileLogTest, OtherFunctionsAreNotTheKernels) {
  const CompileLog log = ParseCompileLog(kInjected);
  ASSERT_EQ(log.kernels.size(), 1);
  EXPECT_EQ(log.kernels[0].registers, 30);
  EXPECT_FALSE(log.kernels[0].spills());
}

TEST(CompileLogTest, AnythingElseIsIgnored) {
  for (const char* text :
       {"", "\n\n", "k.cu(1): error: identifier \"y\" is undefined\n", "ptxas info    : (C",
        "ptxas info    : Compiling entry function 'x\n", "ptxas info    : Used many registers\n"}) {
    const CompileLog log = ParseCompileLog(text);
    EXPECT_TRUE(log.warnings.empty()) << text;
    for (const KernelResources& kernel : log.kernels) EXPECT_EQ(kernel.registers, 0) << text;
  }
}

}  // namespace
}  // namespace athanor
