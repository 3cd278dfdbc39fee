#include "tests/gpu/parts.h"

#include <set>

#include "absl/algorithm/container.h"
#include "compiler/codegen/cuda/nvrtc_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/number_formats.h"

namespace athanor {
namespace {

TEST(PartsTest, EachQuestionHasAPartAndEachPartAQuestion) {
  const absl::StatusOr<std::vector<Question>> questions = ParseQuestions(ExpectJson());
  ASSERT_TRUE(questions.ok()) << questions.status();
  std::set<absl::string_view> asked, parts;
  for (const Question& question : *questions) asked.insert(question.part());
  for (const Part& part : Parts()) {
    EXPECT_TRUE(parts.insert(part.name).second) << part.name;
    EXPECT_GT(part.seconds, 0) << part.name;
  }
  EXPECT_EQ(asked, parts);
}

TEST(PartsTest, AllPartsTogetherEndInTime) {
  double seconds = kLookSeconds;
  for (const Part& part : Parts()) seconds += part.seconds;
  EXPECT_LE(seconds, kDefaultSeconds);
  EXPECT_LE(kDefaultSeconds, 480) << "what a run on a machine with a GPU may take";
}

TEST(PartsTest, APartEndsBeforeItIsKilled) {
  const auto left = [](double limit, double seconds) {
    return PartRun(GpuReport::Open("/dev/null", {}).value(), "", limit, "").Left(seconds);
  };
  EXPECT_EQ(left(20, 5), 5);
  EXPECT_NEAR(left(20, 30), 18, 0.5);
  EXPECT_NEAR(left(3, 30), 1.5, 0.5);
  EXPECT_EQ(left(0, 30), 0);
}

TEST(PartsTest, ChildTasksDiffer) {
  std::set<absl::string_view> names;
  for (const ChildTask& task : ChildTasks()) EXPECT_TRUE(names.insert(task.name).second);
}

class KernelsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(KernelsTest, CompileWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = TestNvrtc("tests/gpu/parts.h");
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const absl::string_view arch = GetParam();
  int files = 0;
  for (const auto& [file, text] : KernelTexts()) {
    if (!CanRun(file, arch)) continue;
    ++files;
    const absl::StatusOr<Cubin> cubin =
        (*nvrtc)->Compile({.source = text, .arch = std::string(arch), .name = file});
    ASSERT_TRUE(cubin.ok()) << cubin.status();
    EXPECT_GT(cubin->log.kernels.size(), 2) << file;
    EXPECT_TRUE(cubin->log.warnings.empty()) << cubin->log_text;
    for (const KernelResources& kernel : cubin->log.kernels) {
      EXPECT_FALSE(kernel.spills()) << file << ": " << kernel.name;
      EXPECT_EQ(kernel.stack_bytes, 0) << file << ": " << kernel.name;
    }
  }
  EXPECT_EQ(files, arch == "sm_80" ? 3 : 4);
}

INSTANTIATE_TEST_SUITE_P(Architectures, KernelsTest, ::testing::ValuesIn(kArchitectures));

TEST(NumberFormatsTest, ValuesComeBack) {
  for (float value :
       {0.0f, 1.0f, -1.0f, 0.5f, -128.0f, 127.0f, 1.5f, 65504.0f, 0.00006103515625f}) {
    EXPECT_EQ(F16Value(F16Bits(value)), value);
  }
  EXPECT_EQ(F16Bits(1.0f), 0x3c00);
  EXPECT_EQ(F16Bits(-2.0f), 0xc000);
  EXPECT_EQ(F16Bits(65504.0f), 0x7bff);
  EXPECT_EQ(Bf16Bits(1.0f), 0x3f80);
  EXPECT_EQ(Bf16Value(0xc000), -2.0f);
  EXPECT_EQ(Bf16Value(Bf16Bits(-128.0f)), -128.0f);
}

TEST(ChildTest, EndsAreTold) {
  Child child;
  child.exit = 3;
  EXPECT_EQ(child.End(), "exit 3");
  child.exit = -1;
  child.signal = 31;
  EXPECT_EQ(child.End(), "signal 31");
  child.timed_out = true;
  child.seconds = 10.2;
  EXPECT_EQ(child.End(), "killed after 10 s");
  child.stays = true;
  EXPECT_EQ(child.End(), "nothing: it is still there 10 s after its kill");
}

TEST(ChildTest, TheLastObjectCounts) {
  Child child;
  EXPECT_TRUE(Printed(child).is_null());
  child.output = "{\"ready\": true}\n{\"launches\": 3}\n";
  EXPECT_EQ(Printed(child)["launches"], 3);
  child.output = "{\"ready\": true}";
  EXPECT_EQ(Printed(child)["ready"], true);
}

}  // namespace
}  // namespace athanor
