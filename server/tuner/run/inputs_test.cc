// Tests the indices drawn for states: valid, and distinct while there are enough slots.
#include "server/tuner/run/inputs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kGraph[] = R"(graph "g" {
  dim t in [0, 300000]
  dim n in [0, 1000]
  %0 = Input "q" : f32[t, 2, 4]
  %1 = Input "slots" : i64[t]
  %2 = Input "table" : i32[3, 5]
  %3 = Input "sequence" : i32[t]
  %4 = Input "position" : i32[t]
  %5 = Input "u" : f32[t, 1, 4]
  %6 = StateRead "k" {role="keys"} : f32[16*n, 1, 4]
  %7 = StateRead "v" {role="values"} : f32[16*n, 1, 4]
  %8 = StateWrite(%6, %1, %5)
  %9 = PagedAttention(%0, %8, %7, %2, %3, %4) {block=16}
  output "y" = %9
  update %8
})";

std::set<int64_t> Values(const Tensor& tensor, int64_t limit) {
  std::set<int64_t> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const int64_t value = LoadScalar(tensor, i).i;
    EXPECT_TRUE(value >= 0 && value < limit) << value << " of " << limit;
    values.insert(value);
  }
  return values;
}

// Slots of rows, by table, sequence and position.
struct Rows {
  explicit Rows(const std::vector<Tensor>& in) {
    const int64_t blocks = in[2].shape[1];
    for (int64_t i = 0; i < in[3].elements(); ++i) {
      const int64_t sequence = LoadScalar(in[3], i).i, position = LoadScalar(in[4], i).i;
      lines.insert(sequence);
      positions[sequence].push_back(position);
      slots.insert(LoadScalar(in[2], sequence * blocks + position / 16).i * 16 + position % 16);
      sequences.push_back(sequence);
      // All blocks up to the row's own are its sequence's.
      for (int64_t j = 0; j <= position / 16; ++j) {
        const int64_t block = LoadScalar(in[2], sequence * blocks + j).i;
        const auto [owner, added] = owners.try_emplace(block, sequence);
        EXPECT_EQ(owner->second, sequence) << "block " << block;
      }
    }
  }
  std::set<int64_t> lines, slots;
  std::vector<int64_t> sequences;
  std::map<int64_t, std::vector<int64_t>> positions;  // by sequence
  std::map<int64_t, int64_t> owners;                  // by block
};

TEST(InputsTest, RowsHaveSlotsOfTheirOwn) {
  const Graph graph = ParseGraph(kGraph).value();
  int mixed = 0, prompts = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    for (int64_t t : {0, 1, 7, 80}) {
      for (int64_t blocks : {5, 15, 40}) {
        const Expr::Env dims = {{"t", t}, {"n", blocks}};
        const std::vector<Tensor> in = RandomInputs(graph, dims, seed, IndexChoice::kAny).value();
        ASSERT_EQ(in.size(), 8u);
        EXPECT_EQ(in[6].shape, (std::vector<int64_t>{16 * blocks, 1, 4}));
        EXPECT_EQ(Values(in[1], 16 * blocks).size(), static_cast<size_t>(t));
        Values(in[2], blocks);
        Values(in[3], 3);
        Values(in[4], 5 * 16);
        const Rows rows(in);
        // A sequence alone has 5 blocks: 80 rows.
        EXPECT_EQ(rows.slots.size(), static_cast<size_t>(t)) << "seed " << seed << " n " << blocks;
        mixed += std::is_sorted(rows.sequences.begin(), rows.sequences.end()) ? 0 : 1;
        for (const auto& [sequence, own] : rows.positions) {
          prompts += std::ssize(own) > t / 3 + 1 && rows.lines.size() > 1 ? 1 : 0;
        }
        EXPECT_EQ(Evaluate(graph, in).status(), absl::OkStatus());
      }
    }
  }
  EXPECT_GT(mixed, 0);
  EXPECT_GT(prompts, 0);
  // Too few blocks for all rows: valid all the same.
  const std::vector<Tensor> in =
      RandomInputs(graph, {{"t", 500}, {"n", 2}}, 1, IndexChoice::kAny).value();
  Values(in[1], 32);
  Values(in[2], 2);
  Values(in[4], 80);
  EXPECT_EQ(Rows(in).slots.size(), 32u);
}

// Measures as many rows of each sequence, together, up to the end of its blocks.
TEST(InputsTest, FullContextsEndWithTheTable) {
  const Graph graph = ParseGraph(kGraph).value();
  for (int64_t t : {1, 3, 9}) {
    std::vector<Tensor> in(5);
    const auto drawn = DrawInputs(graph, {{"t", t}, {"n", 15}}, 4, {.full_contexts = true}).value();
    for (int i : {2, 3, 4}) in[i] = {DType::kI32, drawn[i].shape, drawn[i].drawn.bytes};
    const Rows rows(in);
    EXPECT_EQ(rows.lines.size(), static_cast<size_t>(std::min<int64_t>(t, 3)));
    int64_t changes = 0;
    for (size_t i = 1; i < rows.sequences.size(); ++i) {
      changes += rows.sequences[i] != rows.sequences[i - 1] ? 1 : 0;
    }
    EXPECT_EQ(changes, std::ssize(rows.lines) - 1);
    for (const auto& [sequence, positions] : rows.positions) {
      EXPECT_EQ(positions.size(), static_cast<size_t>(std::max<int64_t>(t / 3, 1)));
      EXPECT_EQ(positions.back(), 79);
      EXPECT_EQ(positions.front(), 80 - std::ssize(positions));
    }
  }
}

TEST(InputsTest, DistinctIndicesOfManyRowsAreComplete) {
  const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 300000]
      %0 = Input "i" : i32[t] %1 = Input "u" : f32[t] %2 = StateRead "s" : f32[t]
      %3 = StateWrite(%2, %0, %1) output "y" = %3 update %3 })")
                          .value();
  const auto drawn = DrawInputs(graph, {{"t", 200'000}}, 5, IndexChoice::kAny).value();
  EXPECT_EQ(Values(drawn[0].drawn, 200'000).size(), 200'000u);
  EXPECT_EQ(drawn[1].drawn.elements(), kMaxDrawn);
}

}  // namespace
}  // namespace athanor
