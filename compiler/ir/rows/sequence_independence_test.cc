#include "compiler/ir/rows/sequence_independence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/rows/row_independence.h"
#include "compiler/ir/rows/row_independence_testing.h"

namespace athanor {
namespace {

// A decoder of one layer: 4 query heads of width 2 over 2 of keys and values.
constexpr char kDecoder[] = R"(graph "decoder" {
  dim T in [0, 32]
  dim S in [0, 4]
  dim B in [0, 4]
  dim R in [0, 32]
  dim N in [16, 128]
  %0 = Input "ids" : i32[T]
  %1 = Input "sequence" : i32[T]
  %2 = Input "position" : i32[T]
  %3 = Input "table" : i32[S, B]
  %4 = Input "wanted" : i32[R]
  %5 = Parameter "embedding" : f32[11, 6]
  %6 = Parameter "gain" : f32[6]
  %7 = Parameter "wq" : f32[4, 2, 6]
  %8 = Parameter "wk" : f32[2, 2, 6]
  %9 = Parameter "wo" : f32[4, 2, 6]
  %10 = StateRead "k" {role="keys"} : f32[N, 2, 2]
  %11 = StateRead "v" {role="values"} : f32[N, 2, 2]
  %12 = Gather(%5, %0) {axis=0}
  %13 = RmsNorm(%12, %6) {epsilon=1e-5}
  %14 = Contract(%13, %7) {spec="tk,hdk->thd"}
  %15 = Contract(%13, %8) {spec="tk,hdk->thd"}
  %16 = Constant {value=i32[] {16}}
  %17 = IndexMap(%16) {map=map[T]()}
  %18 = FloorDiv(%2, %17)
  %19 = Iota {axis=1, dtype=i32, shape=shape[T, B]}
  %20 = IndexMap(%18) {map=map[T, B]($0)}
  %21 = LessThan(%19, %20)
  %22 = LessThan(%20, %19)
  %23 = Or(%21, %22)
  %24 = Gather(%3, %1) {axis=0}
  %25 = Constant {value=i32[] {0}}
  %26 = IndexMap(%25) {map=map[T, B]()}
  %27 = Select(%23, %26, %24)
  %28 = SumReduce(%27) {axes=[1]}
  %29 = Mul(%28, %17)
  %30 = Mod(%2, %17)
  %31 = Add(%29, %30)
  %32 = StateWrite "write_k"(%10, %31, %15)
  %33 = StateWrite "write_v"(%11, %31, %15)
  %34 = PagedAttention "a"(%14, %32, %33, %3, %1, %2) {block=16}
  %35 = Contract(%34, %9) {spec="thd,hdk->tk"}
  %36 = Add(%12, %35)
  %37 = Gather "rows"(%36, %4) {axis=0}
  %38 = RmsNorm(%37, %6) {epsilon=1e-5}
  %39 = Contract "logits"(%38, %5) {spec="rk,vk->rv"}
  output "logits" = %39
  update %32
  update %33
})";

Graph Edited(std::vector<std::pair<std::string, std::string>> edits) {
  std::string text = kDecoder;
  for (const auto& [from, to] : edits) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << text;
  return graph.ok() ? *graph : Graph();
}

TEST(SequenceIndependenceTest, ProvesADecoder) {
  const SequenceProof proof = ProveSequenceIndependent(Edited({}), "T");
  EXPECT_TRUE(proof.independent) << proof.reason;
  EXPECT_EQ(proof.reason, "");
  EXPECT_EQ(proof.wanted, "R");
  // Logits of all rows.
  const SequenceProof all = ProveSequenceIndependent(
      Edited({{"%37 = Gather \"rows\"(%36, %4) {axis=0}", "%37 = Exp(%36)"}}), "T");
  EXPECT_TRUE(all.independent) << all.reason;
  EXPECT_EQ(all.wanted, "");
  // Logits by a number that is spread over the rows.
  const SequenceProof spread = ProveSequenceIndependent(
      Edited({{"output \"logits\" = %39",
               "%40 = Constant {value=f32[] {30}} %41 = IndexMap(%40) {map=map[R, 11]()} "
               "%42 = Div(%39, %41) output \"logits\" = %42"}}),
      "T");
  EXPECT_TRUE(spread.independent) << spread.reason;
  EXPECT_EQ(spread.wanted, "R");
  // Requests may not share a call over it.
  EXPECT_EQ(ProveRowIndependent(Edited({}), "T").reason,
            "\"k\" (StateRead): is a state, which all calls share");
}

struct Case {
  std::vector<std::pair<std::string, std::string>> edits;
  std::string reason;
};

TEST(SequenceIndependenceTest, Refuses) {
  const std::string kNorm = "%13 = RmsNorm(%12, %6) {epsilon=1e-5}";
  const std::string kRows = "%37 = Gather \"rows\"(%36, %4) {axis=0}";
  const std::string kLast = "%38 = RmsNorm(%37, %6) {epsilon=1e-5}";
  const std::vector<Case> cases = {
      // A norm across rows, ahead of and behind those that are asked for.
      {{{kNorm, "%13 = Softmax \"n\"(%12) {axis=0}"}},
       "\"n\" (Softmax): normalises across the rows of dim T"},
      {{{kLast, "%38 = Softmax \"n\"(%37) {axis=0}"}},
       "\"n\" (Softmax): normalises across the rows of dim R"},
      {{{kNorm, "%13 = Cumulate \"n\"(%12) {axis=0, op=\"add\"}"}}, "\"n\" (Cumulate): "},
      {{{kNorm, "%13 = IndexMap \"n\"(%12) {map=map[T, 6](T - $0 - 1, $1)}"}},
       "\"n\" (IndexMap): may read another row of dim T"},
      // Rows picked by what is no input, and by two inputs.
      {{{kRows, "%60 = Constant {value=i32[1] {0}} %37 = Gather \"rows\"(%36, %60) {axis=0}"}},
       "\"rows\" (Gather): selects by index across the rows of dim T"},
      {{{kRows, "%60 = Add(%4, %4) %37 = Gather \"rows\"(%36, %60) {axis=0}"}},
       "\"rows\" (Gather): selects by index across the rows of dim T"},
      {{{kRows,
         "%59 = Input \"w\" : i32[R] %60 = Gather(%12, %59) {axis=0} "
         "%61 = Gather(%36, %4) {axis=0} %37 = Add(%60, %61)"}},
       "asks for rows by \"wanted\" (Input), another node by \"w\" (Input)"},
      // Rows of T that depend on rows that were asked for.
      {{{"output \"logits\" = %39",
         "%40 = Contract \"c\"(%36, %37) {spec=\"tk,rk->tr\"} output \"logits\" = %39 "
         "output \"c\" = %40"}},
       "\"c\" (Contract): takes rows that were asked for into each row of dim T"},
      // The table, and what was asked for, as numbers in a row.
      {{{"%36 = Add(%12, %35)",
         "%57 = Cast(%3) {dtype=f32} %58 = SumReduce(%57) {axes=[0, 1]} %59 = IndexMap "
         "\"m\"(%58) {map=map[T, 6]()} %60 = Add(%12, %59) %36 = Add(%60, %35)"}},
       "\"m\" (IndexMap): takes operand 0, which has no rows of dim T, into each of them"},
      {{{kLast,
         "%57 = Cast(%3) {dtype=f32} %58 = SumReduce(%57) {axes=[0, 1]} %59 = IndexMap(%58) "
         "{map=map[R, 6]()} %60 = Add \"m\"(%37, %59) %38 = RmsNorm(%60, %6) {epsilon=1e-5}"}},
       "\"m\" (Add): takes an input without rows into each row that was asked for"},
      // States read and written otherwise.
      {{{kLast, "%58 = Gather \"g\"(%32, %4) {axis=0} %38 = RmsNorm(%37, %6) {epsilon=1e-5}"},
        {"output \"logits\" = %39", "output \"logits\" = %39 output \"g\" = %58"}},
       "\"g\" (Gather): reads a state; only PagedAttention"},
      {{{"\"write_v\"(%11, %31, %15)", "\"write_v\"(%11, %60, %61)"},
        {"%16 = Constant",
         "%60 = Constant {value=i32[1] {0}} %61 = Parameter \"u\" : f32[1, 2, 2] "
         "%16 = Constant"}},
       "\"write_v\" (StateWrite): writes what is no row of dim T"},
      {{{"(%14, %32, %33, %3, %1, %2)", "(%14, %32, %33, %3, %60, %2)"},
        {"%16 = Constant", "%60 = Add(%1, %1) %16 = Constant"}},
       "\"a\" (PagedAttention): operand 4, %"},
      {{{"(%14, %32, %33, %3, %1, %2)", "(%14, %32, %33, %60, %1, %2)"},
        {"%16 = Constant", "%60 = Add(%3, %3) %16 = Constant"}},
       "\"a\" (PagedAttention): operand 3, %"},
      {{{"(%14, %32, %33, %3, %1, %2)", "(%14, %60, %33, %3, %1, %2)"},
        {"%16 = Constant", "%60 = Parameter \"u\" : f32[32, 2, 2] %16 = Constant"},
        {"\"v\" {role=\"values\"} : f32[N, 2, 2]", "\"v\" {role=\"values\"} : f32[32, 2, 2]"}},
       "\"a\" (PagedAttention): operand 1, \"u\" (Parameter), is no state"},
      {{{"\"k\" {role=\"keys\"} : f32[N, 2, 2]", "\"k\" {role=\"keys\"} : f32[16*T, 2, 2]"},
        {"\"v\" {role=\"values\"} : f32[N, 2, 2]", "\"v\" {role=\"values\"} : f32[16*T, 2, 2]"}},
       "\"k\" (StateRead): has the rows of dim T; a state has slots"},
      // Outputs of no row.
      {{{"output \"logits\" = %39", "output \"logits\" = %39 output \"g\" = %6"}},
       "output \"g\": has no rows of dim T on axis 0"},
      {{{"output \"logits\" = %39",
         "%40 = IndexMap(%39) {map=map[11, R]($1, $0)} output \"logits\" = %40"}},
       "output \"logits\": has no rows of dim R on axis 0"},
  };
  for (const Case& c : cases) {
    const SequenceProof proof = ProveSequenceIndependent(Edited(c.edits), "T");
    EXPECT_FALSE(proof.independent) << c.reason;
    EXPECT_NE(proof.reason.find(c.reason), std::string::npos)
        << "got " << proof.reason << "\nnot " << c.reason;
    EXPECT_EQ(proof.wanted, "");
  }
  EXPECT_NE(ProveSequenceIndependent(Edited({}), "Q").reason.find("\"Q\" is not a dim"),
            std::string::npos);
}

// A row of a step.
struct Row {
  int sequence, position, id;
  bool wanted = true;
};

// Runs steps of rows on a pool whose slots hold NaN at first. Sequence s owns these blocks.
class Runner {
 public:
  Runner() : graph_(Edited({})) {
    std::mt19937 rng(3);
    for (NodeId p : graph_.ParameterIds()) {
      const std::vector<int64_t> shape = ConcreteShape(graph_.node(p).type.shape, {}).value();
      parameters_.push_back(RandomTensor(DType::kF32, shape, 1, rng));
    }
    for (Tensor& state : states_) {
      state = Tensor::Zeros(DType::kF32, {96, 2, 2});
      std::fill(state.data<float>(), state.data<float>() + state.elements(),
                std::numeric_limits<float>::quiet_NaN());
    }
  }

  // Adds the logits of the wanted rows to `logits`, by (sequence, position).
  void Step(const std::vector<Row>& rows, std::map<std::pair<int, int>, std::string>* logits) {
    const int64_t count = static_cast<int64_t>(rows.size());
    std::vector<int32_t> ids, sequences, positions, wanted;
    for (const Row& row : rows) {
      ids.push_back(row.id);
      sequences.push_back(row.sequence);
      positions.push_back(row.position);
      if (row.wanted) wanted.push_back(static_cast<int32_t>(ids.size()) - 1);
    }
    const auto tensor = [](std::vector<int64_t> shape, const std::vector<int32_t>& values) {
      return Tensor::Of<int32_t>(DType::kI32, std::move(shape), values);
    };
    std::vector<Tensor> inputs = {tensor({count}, ids), tensor({count}, sequences),
                                  tensor({count}, positions), tensor({3, 2}, {4, 1, 0, 5, 2, 3}),
                                  tensor({static_cast<int64_t>(wanted.size())}, wanted)};
    inputs.insert(inputs.end(), parameters_.begin(), parameters_.end());
    inputs.insert(inputs.end(), states_.begin(), states_.end());
    absl::StatusOr<std::vector<Tensor>> values = Evaluate(graph_, inputs);
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t r = 0; r < wanted.size(); ++r) {
      const Row& row = rows[wanted[r]];
      std::string bytes = (*values)[0].bytes.substr(r * 11 * sizeof(float), 11 * sizeof(float));
      float first;
      std::memcpy(&first, bytes.data(), sizeof(first));
      EXPECT_TRUE(std::isfinite(first));
      EXPECT_TRUE(logits->emplace(std::make_pair(row.sequence, row.position), bytes).second);
    }
    states_[0] = std::move((*values)[1]);
    states_[1] = std::move((*values)[2]);
  }

 private:
  const Graph graph_;
  std::vector<Tensor> parameters_;
  std::vector<Tensor> states_ = std::vector<Tensor>(2);
};

int IdOf(int sequence, int position) { return (7 * sequence + 3 * position * position) % 11; }

// Tests what is proved: each row's logits are those that its sequence gives alone, token by token.
TEST(SequenceIndependenceTest, HoldsInAnyBatchAndChunks) {
  constexpr int kLength = 20;
  std::map<std::pair<int, int>, std::string> alone;
  for (int s = 0; s < 3; ++s) {
    Runner runner;
    for (int p = 0; p < kLength; ++p) runner.Step({{s, p, IdOf(s, p)}}, &alone);
  }
  std::mt19937 rng(4);
  for (int trial = 0; trial < 5; ++trial) {
    Runner runner;
    std::map<std::pair<int, int>, std::string> together;
    int next[3] = {};
    while (next[0] < kLength || next[1] < kLength || next[2] < kLength) {
      std::vector<Row> rows;
      for (int s = 0; s < 3; ++s) {
        for (int chunk = static_cast<int>(rng() % 5); chunk > 0 && next[s] < kLength; --chunk) {
          rows.push_back({s, next[s], IdOf(s, next[s]), rng() % 3 != 0});
          ++next[s];
        }
      }
      std::shuffle(rows.begin(), rows.end(), rng);
      runner.Step(rows, &together);
    }
    EXPECT_GT(together.size(), 20u);
    for (const auto& [row, bytes] : together) {
      EXPECT_EQ(bytes, alone.at(row)) << row.first << " " << row.second;
    }
  }
}

}  // namespace
}  // namespace athanor
