// Tiny encoders of tests/tokens, and what the reference evaluator computes of them.
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/frontend/checkpoint/import_testing.h"

namespace athanor::checkpoint::encoder {

using Ids = std::vector<std::vector<int32_t>>;
using Embeddings = std::vector<std::vector<float>>;

// Returns every tiny encoder, in each format that it has.
inline std::vector<TinyCase> TinyEncoders() {
  return {{"bert", CheckpointFormat::kHf},
          {"bert", CheckpointFormat::kGguf},
          {"bert_old", CheckpointFormat::kHf},
          {"roberta", CheckpointFormat::kHf},
          {"xlm_roberta", CheckpointFormat::kHf},
          {"xlm_roberta_gguf", CheckpointFormat::kHf},
          {"xlm_roberta_gguf", CheckpointFormat::kGguf}};
}

inline Checkpoint CheckpointOf(const TinyCase& of) {
  return of.format == CheckpointFormat::kHf ? Checkpoint::Hf(of.name) : Checkpoint::Gguf(of.name);
}

// Returns the inputs ids and lengths of a call. Behind its tokens a row has `padding`.
inline std::vector<Tensor> CallOf(const Ids& rows, int64_t length, int32_t padding) {
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<int32_t> ids, lengths;
  for (const std::vector<int32_t>& row : rows) {
    ids.insert(ids.end(), row.begin(), row.end());
    ids.resize(ids.size() + length - row.size(), padding);
    lengths.push_back(static_cast<int32_t>(row.size()));
  }
  return {Tensor::Of<int32_t>(DType::kI32, {count, length}, ids),
          Tensor::Of<int32_t>(DType::kI32, {count}, lengths)};
}

inline absl::StatusOr<std::vector<Tensor>> Evaluated(const Checkpoint& checkpoint,
                                                     const ImportedCheckpoint& imported,
                                                     std::vector<Tensor> inputs) {
  for (Tensor& parameter : ParametersOf(checkpoint, imported)) {
    inputs.push_back(std::move(parameter));
  }
  return Evaluate(imported.graph, inputs);
}

inline Embeddings EmbeddingsOf(const Checkpoint& checkpoint, const ImportedCheckpoint& imported,
                               std::vector<Tensor> inputs) {
  const auto results = Evaluated(checkpoint, imported, std::move(inputs));
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? RowsOf(results->front()) : Embeddings();
}

// Expects embeddings that were computed in f64.
inline void ExpectEmbeddings(const Embeddings& found, const Embeddings& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t row = 0; row < found.size(); ++row) {
    ASSERT_EQ(found[row].size(), expected[row].size());
    double error = 0, largest = 0;
    for (size_t i = 0; i < found[row].size(); ++i) {
      ASSERT_TRUE(std::isfinite(found[row][i])) << "row " << row << ", element " << i;
      error = std::max<double>(error, std::abs(found[row][i] - expected[row][i]));
      largest = std::max<double>(largest, std::abs(expected[row][i]));
    }
    EXPECT_LT(error, 1e-5 * largest) << "row " << row;
  }
}

}  // namespace athanor::checkpoint::encoder

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_ENCODER_TESTING_H_
