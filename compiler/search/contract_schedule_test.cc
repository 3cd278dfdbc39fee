#include "compiler/search/contract_schedule.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::Target Target(int vector_bytes, int registers) {
  v1::Target t;
  t.set_vector_bytes(vector_bytes);
  t.set_vector_registers(registers);
  t.set_l2_bytes(1 << 20);
  return t;
}

struct Case {
  Graph g;
  NodeId node = -1;
  std::vector<bool> weights;
};

// Letters have the sizes a = 2, b = 3, ...; `weight`: the right operand is a parameter.
Case Contraction(const std::string& spec, bool weight, DType t = DType::kF32) {
  Case c;
  ContractSpec s = *ContractSpec::Parse(spec);
  auto shape = [](const std::string& letters) {
    Shape shape;
    for (char l : letters) shape.push_back(2 + (l - 'a'));
    return shape;
  };
  GraphBuilder b(&c.g);
  NodeId x = *b.Input("x", {t, shape(s.lhs)});
  NodeId w = weight ? *b.Parameter("w", {t, shape(s.rhs)}) : *b.Input("w", {t, shape(s.rhs)});
  c.node = *b.Add(Op::kContract, {x, w}, {{"spec", spec}});
  b.Output("y", c.node);
  c.weights = {false, weight, false};
  return c;
}

TEST(ScheduleContractTest, LanesAlongWeightsThenContiguousStores) {
  const v1::Target t = Target(64, 32);
  EXPECT_FALSE(
      ScheduleContract(Contraction("mk,kn->mn", true).g, 2, {false, true, false}, t)->swap);
  EXPECT_TRUE(
      ScheduleContract(Contraction("mk,kn->nm", false).g, 2, {false, false, false}, t)->swap);
  EXPECT_FALSE(
      ScheduleContract(Contraction("mk,kn->nm", true).g, 2, {false, true, false}, t)->swap);
  EXPECT_TRUE(ScheduleContract(Contraction("mk,k->m", false).g, 2, {false, false, false}, t)->swap);
  EXPECT_FALSE(
      ScheduleContract(Contraction("k,k->", false).g, 2, {false, false, false}, t).has_value());
}

TEST(ScheduleContractTest, TilesFromRegistersAndCaches) {
  Case c = Contraction("mk,kz->mz", true);
  ContractSchedule wide = *ScheduleContract(c.g, c.node, c.weights, Target(64, 32));
  EXPECT_EQ(wide.mr, 12);
  EXPECT_EQ(wide.nv, 2);  // 27 columns, 16 lanes
  EXPECT_EQ(wide.rows_per_item % wide.mr, 0);
  EXPECT_EQ(PanelWidth(c.g, c.node, wide, Target(64, 32)), 32);
  ContractSchedule narrow = *ScheduleContract(c.g, c.node, c.weights, Target(32, 16));
  EXPECT_EQ(narrow.mr, 6);
  EXPECT_EQ(PanelWidth(c.g, c.node, narrow, Target(32, 16)), 16);
  EXPECT_GE(narrow.kc, 256);
  Case half = Contraction("mk,kz->mz", true, DType::kF16);  // lanes are of f32, the accumulator
  EXPECT_EQ(PanelWidth(half.g, half.node, wide, Target(64, 32)), 32);
  Case few = Contraction("mk,ka->ma", true);
  EXPECT_EQ(ScheduleContract(few.g, few.node, few.weights, Target(64, 32))->nv, 1);
}

// Packs the column operand, evaluates it, and finds every element of the operand where panels have
// it, zeros beyond.
void ExpectPacked(const std::string& spec, bool swap, int width, const std::string& batch,
                  const std::string& sums, const std::string& columns) {
  Case c = Contraction(spec, true);
  ContractSchedule s;
  s.swap = swap;
  NodeId packed = AddPackedOperand(&c.g, c.node, s, width);
  c.g.outputs.push_back({"packed", packed});
  std::vector<Tensor> inputs;
  for (NodeId n : {0, 1}) {
    std::vector<int64_t> shape;
    for (const Expr& e : c.g.node(n).type.shape) shape.push_back(*e.constant());
    Tensor t = Tensor::Zeros(DType::kF32, shape);
    for (int64_t i = 0; i < t.elements(); ++i) t.data<float>()[i] = static_cast<float>(i + 1);
    inputs.push_back(std::move(t));
  }
  ASSERT_TRUE(Verify(c.g).ok()) << spec << ": " << Verify(c.g);
  absl::StatusOr<std::vector<Tensor>> values = Evaluate(c.g, inputs);
  ASSERT_TRUE(values.ok()) << values.status();
  const Tensor& panels = (*values)[1];
  const Tensor& operand = inputs[swap ? 0 : 1];
  ContractSpec parsed = *ContractSpec::Parse(spec);
  const std::string& letters = swap ? parsed.lhs : parsed.rhs;
  auto size = [](char l) { return int64_t{2 + (l - 'a')}; };
  auto flat = [&](const std::string& of, const std::map<char, int64_t>& at) {
    int64_t offset = 0;
    for (char l : of) offset = offset * size(l) + at.at(l);
    return offset;
  };
  auto total = [&](const std::string& of) {
    int64_t n = 1;
    for (char l : of) n *= size(l);
    return n;
  };
  const int64_t panel_count = (total(columns) + width - 1) / width;
  ASSERT_EQ(panels.elements(), total(batch) * panel_count * total(sums) * width);
  double sum = 0;
  for (int64_t i = 0; i < operand.elements(); ++i) {
    std::map<char, int64_t> at;
    int64_t rest = i;
    for (size_t l = letters.size(); l-- > 0;) {
      at[letters[l]] = rest % size(letters[l]);
      rest /= size(letters[l]);
    }
    const int64_t column = flat(columns, at);
    const int64_t place =
        ((flat(batch, at) * panel_count + column / width) * total(sums) + flat(sums, at)) * width +
        column % width;
    EXPECT_EQ(panels.data<float>()[place], operand.data<float>()[i]) << spec << " element " << i;
    sum += operand.data<float>()[i];
  }
  // Everything else is zero: the values are positive, so the sums agree only then.
  for (int64_t i = 0; i < panels.elements(); ++i) sum -= panels.data<float>()[i];
  EXPECT_EQ(sum, 0) << spec;
}

TEST(AddPackedOperandTest, EveryElementInItsPanelAndZerosBeyond) {
  ExpectPacked("mk,kn->mn", false, 4, "", "k", "n");
  ExpectPacked("mk,kn->mn", false, 15, "", "k", "n");  // exactly one panel
  ExpectPacked("mk,kn->mn", false, 32, "", "k", "n");  // wider than the columns
  ExpectPacked("mk,nk->mn", false, 4, "", "k", "n");
  ExpectPacked("mk,kn->mn", true, 4, "", "k", "m");
  ExpectPacked("bmk,bkn->bmn", false, 4, "b", "k", "n");
  ExpectPacked("ambk,bkan->abmn", false, 8, "ab", "k", "n");
  ExpectPacked("mcd,dcen->men", false, 4, "", "cd", "en");  // several sums and columns
  ExpectPacked("mcd,dcen->mne", false, 7, "", "cd", "ne");
}

}  // namespace
}  // namespace athanor
