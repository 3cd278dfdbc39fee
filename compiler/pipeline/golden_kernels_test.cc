// Golden kernels: the baseline plan of testdata/NAME.graph has the kernels of testdata/NAME.kir,
// that of a GPU those of testdata/cuda/NAME.kir, in whose loops the barriers count. A changed .kir
// file is a changed kernel and belongs into review. To write the files anew, run with
// ATHANOR_GOLDEN_DIR set to this folder's testdata.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/pipeline/golden_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

std::string KernelsOf(const std::string& name, const v1::Target& target) {
  const absl::StatusOr<v1::Plan> plan = GoldenPlan(name, target);
  if (!plan.ok()) return plan.status().ToString();
  std::string text;
  for (const v1::Kernel& kernel : plan->kernels()) {
    absl::StrAppend(&text, "// ", kernel.name(), "\n", kernel.kir(), "\n");
  }
  return text;
}

class GoldenKernels : public testing::TestWithParam<std::string> {};

void ExpectGolden(const std::string& file, const std::string& got) {
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_DIR")) {
    std::ofstream(absl::StrCat(folder, "/", file)) << got;
    return;
  }
  EXPECT_EQ(got, ReadGolden(file));
}

TEST_P(GoldenKernels, AreTheBaselines) {
  ExpectGolden(absl::StrCat(GetParam(), ".kir"), KernelsOf(GetParam(), GoldenTarget()));
}

TEST_P(GoldenKernels, AreTheBaselinesOfAGpu) {
  ExpectGolden(absl::StrCat("cuda/", GetParam(), ".kir"), KernelsOf(GetParam(), GoldenGpu()));
}

bool IsScalar(const std::vector<kir::Stmt>& body) {
  return std::all_of(body.begin(), body.end(),
                     [](const kir::Stmt& s) { return s.type.lanes == 1 && IsScalar(s.body); });
}

TEST_P(GoldenKernels, AreScalarWhereATargetHasNoVectors) {
  v1::Target target = GoldenTarget();
  target.set_vector_bytes(1);
  const absl::StatusOr<v1::Plan> plan = GoldenPlan(GetParam(), target);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->kernels_size(), 0);
  for (const v1::Kernel& kernel : plan->kernels()) {
    const absl::StatusOr<kir::Kernel> parsed = kir::ParseKernel(kernel.kir());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(IsScalar(parsed->body)) << kernel.name() << "\n" << kernel.kir();
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenKernels, testing::ValuesIn(GoldenNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace athanor
