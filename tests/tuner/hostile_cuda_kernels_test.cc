// Kernels of a GPU that are wrong, and worse, on the emulated one: each costs its candidate, none
// the tuner or what is beside it.
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/plans/kernel_resources.h"
#include "tests/tuner/gpu_tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;
using Outcome = internal::TryOutcome;

using HostileCudaKernelsTest = GpuTunerTest;

TEST_F(HostileCudaKernelsTest, EachCostsItself) {
  Start();
  EXPECT_THAT(tuner_->walls(), Not(HasSubstr("none")));
  const std::string c =
      "extern \"C\" void exit(int); extern \"C\" void abort(); extern \"C\" int kill(int, int);"
      "extern \"C\" int getppid(); extern \"C\" int fork();";
  const struct {
    const char* name;
    std::string source;
    Outcome::Stage stage;
    Code code;
    const char* message;
  } rows[] = {
      {"write past the end", GpuKernel("store<f32>(a.b1, a.items, 1);"), Outcome::MEASURE,
       Code::kInternal, "writes 4 bytes 4000 bytes into an argument of 4000"},
      {"read before the beginning", GpuKernel("store<f32>(a.b1, g, load<f32>(a.b0, -1));"),
       Outcome::MEASURE, Code::kInternal, "reads 4 bytes -4 bytes into an argument"},
      {"wild write", GpuKernel("store<f32>(Buffer{(u8*)0x123456789000, 4}, 0, 1);"),
       Outcome::MEASURE, Code::kInternal, "no address of the device"},
      {"misaligned write", GpuKernel("store<f32>(Buffer{a.b1.data + 1, 4}, 0, 1);"),
       Outcome::MEASURE, Code::kInternal, "MISALIGNED"},
      {"null", GpuKernel("store<f32>(Buffer{nullptr, 4}, 0, 1);"), Outcome::MEASURE,
       Code::kInternal, "is lost"},
      {"the host's pointer", GpuKernel("*(volatile f32*)a.b1.data = 1;"), Outcome::MEASURE,
       Code::kInternal, "SIG"},
      {"writes its neighbour", GpuKernel("store<f32>(Buffer{a.b0.data, 4000}, g, 7);"),
       Outcome::CHECK, Code::kDataLoss, ""},
      {"wrong values", GpuKernel("if (g == 5) { store<f32>(a.b1, g, 1e9f); continue; }"),
       Outcome::CHECK, Code::kDataLoss, ""},
      {"an item left out", GpuKernel("if (g == 36) continue;"), Outcome::CHECK, Code::kDataLoss,
       ""},
      {"trap", GpuKernel("__builtin_trap();"), Outcome::MEASURE, Code::kInternal, "SIGILL"},
      {"exit", GpuKernel("exit(0);", c), Outcome::MEASURE, Code::kInternal, "status 0"},
      {"abort", GpuKernel("abort();", c), Outcome::MEASURE, Code::kInternal, "SIG"},
      {"kills its parent", GpuKernel("kill(getppid(), 9);", c), Outcome::MEASURE, Code::kInternal,
       "SIGSYS"},
      {"forks", GpuKernel("fork();", c), Outcome::MEASURE, Code::kInternal, "SIGSYS"},
      {"endless loop", GpuKernel("for (volatile int go = 1; go;) {}"), Outcome::MEASURE,
       Code::kDeadlineExceeded, "still ran"},
      {"spills", GpuKernel("// ATHANOR_EMULATOR_SPILLS"), Outcome::COMPILE,
       Code::kResourceExhausted, "spills registers to memory: 8 bytes stored, 8 loaded"},
      {"no CUDA", "no CUDA", Outcome::COMPILE, Code::kInvalidArgument, "does not compile"},
      {"no kernel", "#include \"athanor/device.h\"\nint none;", Outcome::MEASURE,
       Code::kInvalidArgument, "athanor_kernel"},
  };
  Add(GpuKernel(""));
  for (const auto& row : rows) Add(row.source);
  Add(GpuKernel("// other"));
  const std::vector<Outcome> ends = Try();
  for (size_t i = 0; i < std::size(rows); ++i) {
    SCOPED_TRACE(rows[i].name);
    const Outcome& end = ends[i + 1];
    EXPECT_EQ(end.code(), static_cast<int>(rows[i].code)) << end.message();
    EXPECT_EQ(end.failed_at(), rows[i].stage) << end.message();
    EXPECT_THAT(end.message(), HasSubstr(rows[i].message));
    EXPECT_FALSE(end.checked());
  }
  for (const Outcome& good : {ends.front(), ends.back()}) {
    EXPECT_EQ(good.code(), 0) << good.message();
    EXPECT_TRUE(good.checked());
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

// In races, too, where those that share a task share a device.
TEST_F(HostileCudaKernelsTest, AHundredCostAHundred) {
  Start();
  constexpr int kHostile = 100, kEvery = 25;
  for (int i = 0; i < kHostile; ++i) {
    const std::string rows[] = {
        absl::StrCat("store<f32>(a.b1, a.items + ", i, ", 1);"),
        absl::StrCat("if (g == ", i, ") __builtin_trap();"),
        absl::StrCat("store<f32>(Buffer{a.b0.data, 4000}, g, ", i, ");"),
        absl::StrCat("// ATHANOR_EMULATOR_SPILLS ", i),
    };
    Add(GpuKernel(rows[i % std::size(rows)]));
    if (i % kEvery == kEvery - 1) Add(GpuKernel(absl::StrCat("// good ", i)));
  }
  for (int i = 0; i < request_.kernels_size(); ++i) {
    request_.mutable_kernels(i)->mutable_kernel()->set_task(i / 4);
  }
  const std::vector<Outcome> ends = Try();
  int failed = 0;
  for (const Outcome& end : ends) {
    failed += end.code() != 0;
    EXPECT_EQ(end.checked(), end.code() == 0) << end.message();
  }
  EXPECT_EQ(failed, kHostile);
  EXPECT_EQ(tuner_->starts(), 1);
}

// Has nothing to fall back to.
TEST_F(HostileCudaKernelsTest, ABaselineMaySpill) {
  Start();
  const auto object = tuner_->Compile(GpuKernel("// ATHANOR_EMULATOR_SPILLS"), target_);
  ASSERT_TRUE(object.ok()) << object.status();
  // What the log had comes along.
  const auto resources = ResourcesOf(*object);
  ASSERT_TRUE(resources.has_value());
  EXPECT_EQ(resources->registers(), 32);
  EXPECT_EQ(resources->spill_store_bytes(), 8);
  EXPECT_EQ(resources->spill_load_bytes(), 8);
}

TEST_F(HostileCudaKernelsTest, WithoutACompilerKernelsThatThereAreRun) {
  Start();
  const internal::CheckRequest check = CheckOf(GpuKernel(""));
  options_.nvrtc = "/nowhere";
  Start();
  const absl::Status target = tuner_->Target().status();
  EXPECT_EQ(target.code(), Code::kFailedPrecondition) << target;
  EXPECT_THAT(target.message(), HasSubstr("NVRTC"));
  EXPECT_EQ(tuner_->Compile(GpuKernel(""), target_).status().code(), Code::kFailedPrecondition);
  const absl::Status right = tuner_->Check(check);
  EXPECT_TRUE(right.ok()) << right;
}

TEST_F(HostileCudaKernelsTest, ATunerOfTheCpuTakesNoGpusKernel) {
  Start();
  const internal::CheckRequest check = CheckOf(GpuKernel(""));
  options_.gpu = -1;
  Start();
  EXPECT_EQ(tuner_->Compile(GpuKernel(""), target_).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(tuner_->Check(check).code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace athanor
