// Form kPaged against form kWhole and the goldens: sequences in pieces, side by side, in blocks of
// a pool that holds NaN.
#include <gtest/gtest.h>

#include <limits>
#include <ostream>
#include <random>
#include <span>

#include "compiler/frontend/checkpoint/import_testing.h"
#include "compiler/ir/rows/sequence_independence.h"

namespace athanor::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kBlock = 16;

// Tokens of one sequence that a step computes, from the first position on. Gives the logits of the
// last `wanted`.
struct Piece {
  int sequence;
  int32_t first;
  std::span<const int32_t> ids;
  int wanted;
};

// A decoder in form kPaged with its states.
class Pool {
 public:
  // `tables`: the blocks of each sequence.
  Pool(const Checkpoint& checkpoint, const ImportedCheckpoint& decoder, int32_t blocks,
       std::vector<std::vector<int32_t>> tables)
      : decoder_(decoder), tables_(std::move(tables)), rest_(ParametersOf(checkpoint, decoder)) {
    for (NodeId state : decoder.graph.StateIds()) {
      std::vector<int64_t> shape = {blocks * kBlock};
      for (size_t i = 1; i < 3; ++i) {
        shape.push_back(*decoder.graph.node(state).type.shape[i].constant());
      }
      Tensor& tensor = rest_.emplace_back(Tensor::Zeros(DType::kF32, shape));
      std::fill_n(tensor.data<float>(), tensor.elements(), std::nanf(""));
    }
  }

  // Computes a step; returns the logits of each piece's wanted rows.
  std::vector<std::vector<std::vector<float>>> Step(const std::vector<Piece>& pieces) {
    std::vector<int32_t> ids, sequence, position, wanted, table;
    for (const Piece& piece : pieces) {
      for (size_t i = 0; i < piece.ids.size(); ++i) {
        ids.push_back(piece.ids[i]);
        sequence.push_back(piece.sequence);
        position.push_back(piece.first + static_cast<int32_t>(i));
      }
      for (int i = piece.wanted; i > 0; --i) wanted.push_back(static_cast<int32_t>(ids.size()) - i);
    }
    size_t longest = 0;
    for (const auto& blocks : tables_) longest = std::max(longest, blocks.size());
    for (const auto& blocks : tables_) {
      for (size_t i = 0; i < longest; ++i) table.push_back(i < blocks.size() ? blocks[i] : -1);
    }
    const auto vector = [](const std::vector<int32_t>& values) {
      return Tensor::Of<int32_t>(DType::kI32, {static_cast<int64_t>(values.size())}, values);
    };
    std::vector<Tensor> inputs = {
        vector(ids), vector(sequence), vector(position),
        Tensor::Of<int32_t>(DType::kI32,
                            {static_cast<int64_t>(tables_.size()), static_cast<int64_t>(longest)},
                            table),
        vector(wanted)};
    inputs.insert(inputs.end(), rest_.begin(), rest_.end());
    absl::StatusOr<std::vector<Tensor>> results = Evaluate(decoder_.graph, inputs);
    EXPECT_TRUE(results.ok()) << results.status();
    if (!results.ok()) return std::vector<std::vector<std::vector<float>>>(pieces.size());
    const size_t states = results->size() - 1;
    std::move(results->begin() + 1, results->end(), rest_.end() - states);
    std::vector<std::vector<float>> rows = RowsOf(results->front());
    std::vector<std::vector<std::vector<float>>> split;
    auto row = rows.begin();
    for (const Piece& piece : pieces) {
      split.emplace_back(row, row + piece.wanted);
      row += piece.wanted;
    }
    return split;
  }

 private:
  const ImportedCheckpoint& decoder_;
  const std::vector<std::vector<int32_t>> tables_;
  std::vector<Tensor> rest_;  // parameters, then states
};

class Paged : public testing::TestWithParam<TinyCase> {
 protected:
  Paged()
      : checkpoint_(GetParam().format == CheckpointFormat::kHf ? Checkpoint::Hf(GetParam().name)
                                                               : Checkpoint::Gguf(GetParam().name)),
        golden_(TinyJson(GetParam().name, "golden.json")) {
    whole_ = *checkpoint_.Import();
    checkpoint_.options.form = DecoderForm::kPaged;
    checkpoint_.options.limits.block = kBlock;
    paged_ = *checkpoint_.Import();
  }

  Checkpoint checkpoint_;
  const json golden_;
  ImportedCheckpoint whole_, paged_;
};

TEST_P(Paged, Graph) {
  const Graph& graph = paged_.graph;
  std::vector<std::string> inputs, states;
  for (NodeId id : graph.InputIds()) inputs.push_back(graph.node(id).name);
  for (NodeId id : graph.StateIds()) states.push_back(graph.node(id).name);
  EXPECT_EQ(inputs, (std::vector<std::string>{"ids", "sequence", "position", "table", "wanted"}));
  ASSERT_EQ(states.size(), 2 * paged_.layers);
  EXPECT_EQ(states[2], "keys.1");
  EXPECT_EQ(states[3], "values.1");
  EXPECT_EQ(graph.updates.size(), states.size());
  const SequenceProof proof = ProveSequenceIndependent(graph, "T");
  EXPECT_TRUE(proof.independent) << proof.reason;
  EXPECT_EQ(proof.wanted, "R");
}

TEST_P(Paged, WholePromptIsGolden) {
  const std::vector<int32_t> ids = golden_["ids"];
  Pool pool(checkpoint_, paged_, 4, {{2}});
  ExpectGolden(pool.Step({{0, 0, ids, static_cast<int>(ids.size())}})[0], golden_["logits"]);
}

// Prompts in pieces of any length, then token by token, two sequences and one that rests between
// them.
TEST_P(Paged, PiecesOfTwoSequencesAreThoseOfWhole) {
  std::vector<int32_t> first = golden_["ids"];
  const std::vector<int32_t> greedy = golden_["greedy"];
  first.insert(first.end(), greedy.begin(), greedy.end());
  const std::vector<int32_t> second(first.rbegin() + 20, first.rend());
  std::vector<std::vector<float>> expected[2];
  std::map<size_t, std::vector<float>> found[2];  // by position, where wanted
  const std::vector<int32_t>* const tokens[] = {&first, &second};
  for (int s = 0; s < 2; ++s) {
    std::vector<int32_t> all(tokens[s]->size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    checkpoint_.options.form = DecoderForm::kWhole;
    expected[s] = Logits(checkpoint_, whole_, *tokens[s], all);
  }
  // Sequence 1 of the table has no row in any step.
  Pool pool(checkpoint_, paged_, 16, {{9, 3, 14, 1, 6}, {-7}, {2, 15, 4, 12}});
  std::mt19937 draw(1);
  size_t at[2] = {0, 0};
  while (at[0] < first.size() || at[1] < second.size()) {
    std::vector<Piece> pieces;
    std::vector<int> owners;
    for (int s = 0; s < 2; ++s) {
      const size_t left = tokens[s]->size() - at[s];
      const size_t count = std::min<size_t>(left, at[s] < 30 ? 1 + draw() % 21 : 1);
      if (count == 0 || draw() % 4 == 0) continue;
      const int wanted = static_cast<int>(draw() % (count + 1));
      pieces.push_back({s == 0 ? 0 : 2, static_cast<int32_t>(at[s]),
                        std::span(*tokens[s]).subspan(at[s], count), wanted});
      owners.push_back(s);
    }
    if (pieces.empty()) continue;
    if (draw() % 2 == 0) {
      std::reverse(pieces.begin(), pieces.end());
      std::reverse(owners.begin(), owners.end());
    }
    const auto logits = pool.Step(pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const int s = owners[i];
      at[s] += pieces[i].ids.size();
      for (size_t row = 0; row < logits[i].size(); ++row) {
        found[s][at[s] - logits[i].size() + row] = logits[i][row];
      }
    }
  }
  int compared = 0;
  for (int s = 0; s < 2; ++s) {
    for (const auto& [position, logits] : found[s]) {
      ++compared;
      ExpectGolden({logits}, {expected[s][position]});
    }
  }
  EXPECT_GT(compared, 50);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Paged, testing::ValuesIn(TinyCases()), NameOf);

}  // namespace
}  // namespace athanor::checkpoint
