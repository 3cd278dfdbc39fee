// Tiny checkpoints against the logits and tokens that transformers computes from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "compiler/frontend/checkpoint/import_testing.h"

namespace athanor::checkpoint {
namespace {

using nlohmann::json;

class Golden : public testing::TestWithParam<TinyCase> {
 protected:
  Golden()
      : checkpoint_(GetParam().format == CheckpointFormat::kHf ? Checkpoint::Hf(GetParam().name)
                                                               : Checkpoint::Gguf(GetParam().name)),
        golden_(TinyJson(GetParam().name, "golden.json")) {}

  Checkpoint checkpoint_;
  const json golden_;
};

std::vector<int32_t> UpTo(size_t n) {
  std::vector<int32_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST_P(Golden, Logits) {
  const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint_.Import();
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const std::vector<int32_t> ids = golden_["ids"];
  ExpectGolden(Logits(checkpoint_, *decoder, ids, UpTo(ids.size())), golden_["logits"]);
}

// Each token by all that is before it, where the second is not as good.
TEST_P(Golden, Tokens) {
  const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint_.Import();
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  std::vector<int32_t> ids = golden_["ids"];
  const std::vector<int32_t> greedy = golden_["greedy"];
  const std::vector<double> gaps = golden_["gaps"];
  std::vector<int32_t> wanted;
  for (size_t i = 0; i < greedy.size(); ++i) {
    wanted.push_back(static_cast<int32_t>(ids.size()) - 1);
    ids.push_back(greedy[i]);
  }
  const std::vector<std::vector<float>> logits = Logits(checkpoint_, *decoder, ids, wanted);
  ASSERT_EQ(logits.size(), 64);
  for (size_t i = 0; i < greedy.size(); ++i) {
    if (gaps[i] < 1e-3) continue;
    const auto best = std::max_element(logits[i].begin(), logits[i].end());
    EXPECT_EQ(best - logits[i].begin(), greedy[i]) << "token " << i;
  }
}

TEST_P(Golden, WantedRowsAreThoseOfAll) {
  const absl::StatusOr<ImportedCheckpoint> decoder = checkpoint_.Import();
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const std::vector<int32_t> ids = {5, 40, 5, 1, 0};
  const auto all = Logits(checkpoint_, *decoder, ids, UpTo(ids.size()));
  const auto some = Logits(checkpoint_, *decoder, ids, {4, 0, 4});
  ASSERT_EQ(some.size(), 3);
  EXPECT_EQ(some[0], all[4]);
  EXPECT_EQ(some[1], all[0]);
  EXPECT_EQ(some[2], all[4]);
  EXPECT_TRUE(Logits(checkpoint_, *decoder, ids, {}).empty());
  EXPECT_EQ(Logits(checkpoint_, *decoder, {5}, {0})[0], all[0]);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Golden, testing::ValuesIn(TinyCases()), NameOf);

}  // namespace
}  // namespace athanor::checkpoint
