// Golden kernels: the baseline plan of testdata/NAME.graph has the kernels of testdata/NAME.kir.
// A changed .kir file is a changed kernel and belongs into review. To write the files anew, run
// with ATHANOR_GOLDEN_DIR set to this folder's testdata.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/pipeline.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kFolder[] = "compiler/pipeline/testdata";

v1::Target Target() {
  v1::Target target;
  target.set_device("cpu");
  target.set_vector_bytes(32);
  target.set_vector_registers(16);
  target.set_l1_bytes(32 << 10);
  target.set_l2_bytes(1 << 20);
  target.set_threads(2);
  return target;
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string KernelsOf(const std::string& graph_text) {
  const absl::StatusOr<Graph> graph = ParseGraph(graph_text);
  if (!graph.ok()) return graph.status().ToString();
  const absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(*graph, Target());
  if (!plan.ok()) return plan.status().ToString();
  std::string text;
  for (const v1::Kernel& kernel : plan->kernels()) {
    absl::StrAppend(&text, "// ", kernel.name(), "\n", kernel.kir(), "\n");
  }
  return text;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".graph") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenKernels : public testing::TestWithParam<std::string> {};

TEST_P(GoldenKernels, AreTheBaselines) {
  const std::string got = KernelsOf(Read(absl::StrCat(kFolder, "/", GetParam(), ".graph")));
  if (const char* folder = std::getenv("ATHANOR_GOLDEN_DIR")) {
    std::ofstream(absl::StrCat(folder, "/", GetParam(), ".kir")) << got;
    return;
  }
  EXPECT_EQ(got, Read(absl::StrCat(kFolder, "/", GetParam(), ".kir")));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenKernels, testing::ValuesIn(Names()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace athanor
