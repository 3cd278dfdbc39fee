// Helpers for the tests of the golden plans: the baseline plan of each testdata/NAME.graph.
#ifndef ATHANOR_COMPILER_PIPELINE_GOLDEN_TESTING_H_
#define ATHANOR_COMPILER_PIPELINE_GOLDEN_TESTING_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/pipeline.h"

namespace athanor {

inline constexpr char kGoldenFolder[] = "compiler/pipeline/testdata";

inline v1::Target GoldenTarget() {
  v1::Target target;
  target.set_device("cpu");
  target.set_vector_bytes(32);
  target.set_vector_registers(16);
  target.set_l1_bytes(32 << 10);
  target.set_l2_bytes(1 << 20);
  target.set_threads(2);
  return target;
}

// Returns a target like an H100.
inline v1::Target GoldenGpu() {
  v1::Target target;
  target.set_device("cuda");
  target.set_cpu("sm_90a");
  target.set_vector_bytes(1);
  target.set_vector_registers(32);
  target.set_l1_bytes(228 << 10);
  target.set_l2_bytes(50 << 20);
  target.set_l3_bytes(50 << 20);
  target.set_threads(132 * 2048);
  return target;
}

// Returns the text of a file in the folder.
inline std::string ReadGolden(const std::string& file_name) {
  std::ifstream file(std::filesystem::path(kGoldenFolder) / file_name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the names of the graphs, in order.
inline std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenFolder)) {
    if (entry.path().extension() == ".graph") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline absl::StatusOr<v1::Plan> GoldenPlan(const std::string& name,
                                           const v1::Target& target = GoldenTarget()) {
  absl::StatusOr<Graph> graph = ParseGraph(ReadGolden(absl::StrCat(name, ".graph")));
  if (!graph.ok()) return graph.status();
  return BuildBaselinePlan(*graph, target);
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_GOLDEN_TESTING_H_
