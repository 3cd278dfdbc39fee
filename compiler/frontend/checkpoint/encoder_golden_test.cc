// Tiny encoders against the embeddings that transformers computes of them in f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/frontend/checkpoint/encoder/encoder.h"
#include "compiler/frontend/checkpoint/encoder_testing.h"
#include "compiler/ir/rows/row_independence.h"

namespace athanor::checkpoint::encoder {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 12;  // of the longest input

class TinyEncoder : public testing::TestWithParam<TinyCase> {
 protected:
  TinyEncoder()
      : checkpoint_(CheckpointOf(GetParam())),
        golden_(TinyJson(GetParam().name, "golden.json")),
        imported_(checkpoint_.Import()) {
    EXPECT_TRUE(imported_.ok()) << imported_.status();
  }

  // The golden's inputs but, in GGUF, those with a token that is RoBERTa's padding: llama.cpp
  // counts it as others.
  Ids Inputs() const { return Chosen<Ids>(golden_["ids"]); }
  Embeddings Expected() const { return Chosen<Embeddings>(golden_["embeddings"]); }

  template <typename Rows>
  Rows Chosen(const json& all) const {
    Rows rows = all;
    if (GetParam().format == CheckpointFormat::kGguf && GetParam().name != "bert") {
      rows.erase(rows.begin() + 2);
    }
    return rows;
  }

  Checkpoint checkpoint_;
  const json golden_;
  const absl::StatusOr<ImportedCheckpoint> imported_;
};

TEST_P(TinyEncoder, HasTheInterfaceOfEncoders) {
  ASSERT_TRUE(imported_.ok());
  const Graph& graph = imported_->graph;
  ASSERT_EQ(graph.InputIds().size(), 2);
  EXPECT_EQ(TypeToString(graph.node(graph.InputIds()[0]).type), "i32[B, T]");
  EXPECT_EQ(TypeToString(graph.node(graph.InputIds()[1]).type), "i32[B]");
  ASSERT_EQ(graph.outputs.size(), 1);
  EXPECT_EQ(graph.outputs[0].name, "embeddings");
  EXPECT_EQ(TypeToString(graph.node(graph.outputs[0].node).type), "f32[B, 32]");
  EXPECT_THAT(graph.StateIds(), testing::IsEmpty());
  EXPECT_EQ(imported_->width, 32);
  EXPECT_EQ(imported_->batch_dim, "B");
  EXPECT_EQ(imported_->layers, 2);
  EXPECT_EQ(imported_->vocabulary, 64);
}

TEST_P(TinyEncoder, EachInputAloneIsGolden) {
  ASSERT_TRUE(imported_.ok());
  Embeddings found;
  for (const std::vector<int32_t>& row : Inputs()) {
    const auto inputs = CallOf({row}, static_cast<int64_t>(row.size()), 0);
    found.push_back(EmbeddingsOf(checkpoint_, *imported_, inputs).at(0));
  }
  ExpectEmbeddings(found, Expected());
}

TEST_P(TinyEncoder, PaddingChangesNoBit) {
  ASSERT_TRUE(imported_.ok());
  const Ids rows = Inputs();
  const Embeddings all = EmbeddingsOf(checkpoint_, *imported_, CallOf(rows, kTokens, 0));
  ExpectEmbeddings(all, Expected());
  for (const int32_t padding : {1, 33, 63}) {
    EXPECT_EQ(EmbeddingsOf(checkpoint_, *imported_, CallOf(rows, kTokens + 3, padding)), all);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto alone = CallOf({rows[i]}, static_cast<int64_t>(rows[i].size()), 0);
    EXPECT_EQ(EmbeddingsOf(checkpoint_, *imported_, alone).at(0), all[i]) << "row " << i;
  }
}

TEST_P(TinyEncoder, CallsMayBeJoined) {
  ASSERT_TRUE(imported_.ok());
  const RowProof proof = ProveRowIndependent(imported_->graph, kBatchDim);
  ASSERT_TRUE(proof.independent) << proof.reason;
  EXPECT_EQ(proof.inputs[0].axis, 0);
  EXPECT_EQ(proof.inputs[1].axis, 0);
  EXPECT_EQ(proof.outputs[0].axis, 0);
}

TEST_P(TinyEncoder, NoTokensAreZeros) {
  ASSERT_TRUE(imported_.ok());
  const std::vector<int32_t> row = {2, 5, 3}, none;
  const Embeddings found = EmbeddingsOf(checkpoint_, *imported_, CallOf({row, none}, 3, 9));
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0], EmbeddingsOf(checkpoint_, *imported_, CallOf({row}, 3, 0)).at(0));
  EXPECT_EQ(found[1], std::vector<float>(32, 0));
}

TEST_P(TinyEncoder, LengthsAndIdsOutsideAreErrors) {
  ASSERT_TRUE(imported_.ok());
  for (const int32_t length : {-1, 4, 1 << 30, INT32_MIN}) {
    std::vector<Tensor> inputs = CallOf({{2, 5, 3}, {2, 5, 3}}, 3, 0);
    inputs[1] = Tensor::Of<int32_t>(DType::kI32, {2}, {3, length});
    const auto results = Evaluated(checkpoint_, *imported_, std::move(inputs));
    EXPECT_TRUE(absl::IsOutOfRange(results.status())) << length << ": " << results.status();
  }
  for (const int32_t id : {-1, 64}) {
    const auto results = Evaluated(checkpoint_, *imported_, CallOf({{2, id, 3}}, 3, 0));
    EXPECT_TRUE(absl::IsOutOfRange(results.status())) << id << ": " << results.status();
  }
}

TEST_P(TinyEncoder, TakesTheLongestInput) {
  ASSERT_TRUE(imported_.ok());
  const int64_t most = imported_->context;
  std::vector<int32_t> row(most);
  for (int64_t i = 0; i < most; ++i) row[i] = static_cast<int32_t>(2 + i % 60);
  const Embeddings found = EmbeddingsOf(checkpoint_, *imported_, CallOf({row}, most, 0));
  ASSERT_EQ(found.size(), 1);
  for (const float x : found[0]) EXPECT_TRUE(std::isfinite(x));
}

INSTANTIATE_TEST_SUITE_P(Tiny, TinyEncoder, testing::ValuesIn(TinyEncoders()), NameOf);

TEST(Pooling, OfEachKindIsGolden) {
  const json golden = TinyJson("bert", "golden.json");
  const Ids ids = golden["ids"];
  for (const auto& [mode, expected] : golden["kinds"].items()) {
    SCOPED_TRACE(mode);
    Checkpoint checkpoint = Checkpoint::Hf("bert");
    json modules = json::parse(checkpoint.files["modules.json"]);
    modules.erase(2);
    checkpoint.files["modules.json"] = modules.dump();
    checkpoint.files["1_Pooling/config.json"] = json{{"pooling_mode", mode}}.dump();
    const auto imported = checkpoint.Import();
    ASSERT_TRUE(imported.ok()) << imported.status();
    ExpectEmbeddings(EmbeddingsOf(checkpoint, *imported, CallOf(ids, kTokens, 9)), expected);
  }
}

// Holds the least number that a norm divides by to torch's.
TEST(Pooling, OfRowsOfZerosIsZero) {
  Checkpoint checkpoint = Checkpoint::Hf("bert");
  Shard shard = Shard::Read(checkpoint.files["model.safetensors"]);
  for (auto& [name, entry] : shard.tensors) {
    if (name.find("LayerNorm") != std::string::npos) entry.bytes.assign(entry.bytes.size(), '\0');
  }
  checkpoint.files["model.safetensors"] = shard.Write();
  const auto imported = checkpoint.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const Embeddings found = EmbeddingsOf(checkpoint, *imported, CallOf({{2, 9, 3}}, 3, 0));
  EXPECT_EQ(found, Embeddings(1, std::vector<float>(32, 0)));
}

TEST(Activation, OfEachNameIsGolden) {
  const json golden = TinyJson("bert", "golden.json");
  const Ids ids = {golden["ids"][0]};
  EXPECT_EQ(golden["activations"].size(), 9);
  for (const auto& [name, expected] : golden["activations"].items()) {
    SCOPED_TRACE(name);
    Checkpoint checkpoint = Checkpoint::Hf("bert");
    json config = json::parse(checkpoint.files["config.json"]);
    config["hidden_act"] = name;
    checkpoint.files["config.json"] = config.dump();
    json modules = json::parse(checkpoint.files["modules.json"]);
    modules.erase(2);
    checkpoint.files["modules.json"] = modules.dump();
    const auto imported = checkpoint.Import();
    ASSERT_TRUE(imported.ok()) << imported.status();
    ExpectEmbeddings(EmbeddingsOf(checkpoint, *imported, CallOf(ids, kTokens, 0)), expected);
  }
}

TEST(Limits, BoundTheDims) {
  Checkpoint checkpoint = Checkpoint::Hf("bert");
  checkpoint.options.limits.sequences = 7;
  auto imported = checkpoint.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.dims[0].max, 7);
  EXPECT_EQ(imported->graph.dims[1].max, 32);  // sentence_bert_config.json; there are 40 positions
  checkpoint.options.limits.context = 9;
  imported = checkpoint.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.dims[1].max, 9);
  EXPECT_EQ(imported->context, 9);
  checkpoint.options.limits.context = 33;
  EXPECT_EQ(checkpoint.Import().status().message(),
            "limits: context=33 must be from 1 to 32, the most tokens of the checkpoint's inputs, "
            "or 0 for all of them");
  checkpoint.options.limits = {.sequences = 0};
  EXPECT_EQ(checkpoint.Import().status().message(), "limits: sequences=0 must be positive");
}

}  // namespace
}  // namespace athanor::checkpoint::encoder
