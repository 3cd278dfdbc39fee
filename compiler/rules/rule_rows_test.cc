// Tests every row of the registry against the reference evaluator.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph/magnitude.h"
#include "compiler/rules/rule_rows_testing.h"
#include "compiler/rules/saturate.h"
#include "compiler/rules/terms/term_expansion.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

bool Fired(const RuleRow& row, const Graph& graph) {
  const std::unique_ptr<TermGraph> terms = TermGraph::Create(graph).value();
  const RuleRow* const rows[] = {&row};
  const egraph::Report report = SaturateWith(terms.get(), rows, {}).value();
  return std::any_of(report.rules.begin(), report.rules.end(),
                     [](const egraph::RuleReport& rule) { return rule.unions > 0; });
}

class RuleRowsTest : public testing::TestWithParam<size_t> {};

TEST_P(RuleRowsTest, FiresAndIsRight) {
  constexpr int kSeeds = 40;
  const RuleRow& row = RuleRows()[GetParam()];
  int fired = 0, compared = 0;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    const RowCheck check = CheckRow(row, dtype, kSeeds);
    ASSERT_TRUE(check.status.ok()) << check.status;
    EXPECT_EQ(check.unbounded, 0) << row.name << ", " << DTypeName(dtype);
    fired += check.fired;
    compared += check.compared;
  }
  // A useful example makes its row fire for many random sizes.
  EXPECT_GE(fired, kSeeds) << row.name << " fired on " << fired << " of " << 4 * kSeeds
                           << " examples";
  EXPECT_GE(compared, fired / 2) << row.name;
}

// Rows undo and extend each other, so their combined results must be right too.
TEST_P(RuleRowsTest, ExampleIsRightUnderAllRows) {
  constexpr int kSeeds = 12, kChoices = 8;
  const RuleRow& row = RuleRows()[GetParam()];
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16}) {
    const RowCheck check = CheckTogether(row, dtype, kSeeds, kChoices);
    ASSERT_TRUE(check.status.ok()) << check.status;
    EXPECT_EQ(check.compared, kSeeds * kChoices);
  }
}

std::vector<size_t> RowsThatAct() {
  std::vector<size_t> indexes;
  for (size_t i = 0; i < RuleRows().size(); ++i) {
    if (!RuleRows()[i].is_switch()) indexes.push_back(i);
  }
  return indexes;
}

INSTANTIATE_TEST_SUITE_P(Rows, RuleRowsTest, testing::ValuesIn(RowsThatAct()),
                         [](const auto& info) { return std::string(RuleRows()[info.param].name); });

// Integers wrap, so both sides are equal for all values, also at the ends of the range and near
// 2^53.
TEST(IntegerRowsTest, RowsThatTakeIntegersAreRight) {
  for (const char* name :
       {"factors_collect", "terms_collect", "same_terms_add", "sum_of_scaled", "sum_of_sums",
        "contract_gives_scale", "weight_takes_scale", "table_contracts", "contract_splits_sum",
        "contracts_share_operand", "linears_share_operand", "contract_reads_through",
        "contract_permuted", "idempotent"}) {
    for (const DType dtype : {DType::kI8, DType::kI64, DType::kU64}) {
      const RowCheck check = CheckRow(*FindRule(name), dtype, 20);
      ASSERT_TRUE(check.status.ok()) << check.status;
      EXPECT_GT(check.fired, 0) << name << ", " << DTypeName(dtype);
    }
  }
}

// Rows that move a factor or a bias into a weight must know that the weight stays finite. They must
// not assume so for a weight that is unknown, not finite, or finite without a bound.
TEST(MagnitudeRowsTest, RowsThatComputeWeightsKeepAwayFromUnboundedOnes) {
  for (const char* name : {"weight_takes_factor", "weight_takes_factor_after",
                           "contract_splits_bias", "biases_add", "weights_contract"}) {
    const RuleRow& row = *FindRule(name);
    for (const std::optional<int> magnitude : {std::optional<int>(), std::optional<int>(128)}) {
      int fired_before = 0;
      for (uint64_t seed = 0; seed < 20; ++seed) {
        ExampleBuilder e(seed, DType::kF32);
        row.example(e);
        ASSERT_TRUE(e.status().ok());
        Graph graph = e.graph();
        fired_before += Fired(row, graph);
        const std::vector<NodeId> weights = graph.ParameterIds();
        // A single weight without a suitable bound is enough.
        SetMagnitude(magnitude, &graph.nodes[weights[seed % weights.size()]]);
        EXPECT_FALSE(Fired(row, graph)) << name << ToText(graph);
      }
      EXPECT_GT(fired_before, 10) << name;
    }
  }
}

// --- The check itself detects errors. ---

RuleRow Row(RuleRow::Rewrites rewrites, RuleClass rule_class = RuleClass::kExact) {
  return {.name = "tried",
          .family = "algebra",
          .rule_class = rule_class,
          .algebra = "what is tried on x * y + x",
          .rewrites = rewrites,
          .example = [](ExampleBuilder& e) {
            const Shape shape = {e.Size(), e.Size()};
            const NodeId x = e.Input(shape), y = e.Input(shape);
            e.Output(e.x().Add(Op::kAdd, {e.x().Add(Op::kMul, {x, y}), x}));
          }};
}

std::vector<egraph::RuleSpec> Rule(const char* premise, const char* conclusion) {
  return {{.premises = {premise}, .conclusions = {conclusion}}};
}

TEST(CheckRowTest, ARightRowPasses) {
  const RowCheck check = CheckRow(Row([](const TermLanguage&, const FactsAnalysis&) {
                                    return Rule("(Mul ?x ?y)", "(Mul ?y ?x)");
                                  }),
                                  DType::kF32, 30);
  EXPECT_TRUE(check.status.ok()) << check.status;
  EXPECT_EQ(check.fired, 30);
  EXPECT_EQ(check.compared, 30);
}

TEST(CheckRowTest, WrongValuesAreFound) {
  const RowCheck check = CheckRow(Row([](const TermLanguage&, const FactsAnalysis&) {
                                    return Rule("(Mul ?x ?y)", "(Add ?x ?y)");
                                  }),
                                  DType::kBF16, 30);
  EXPECT_FALSE(check.status.ok());
  EXPECT_NE(check.status.message().find("tried"), absl::string_view::npos) << check.status;
}

// The rewrite x = x / 10 * 10 rounds two more times.
TEST(CheckRowTest, RoundingIsForReassociatingRows) {
  const auto there_and_back = [](const TermLanguage& language, const FactsAnalysis& facts) {
    return std::vector<egraph::RuleSpec>{
        {.premises = {"?root = (Add (Mul ?x ?y) ?x)"},
         .apply = [&](const egraph::Match& m, egraph::Rewriter* rewriter) {
           TermExpansion t(language, facts, rewriter);
           const NodeId x = t.Operand(m.Class("x"));
           const NodeId tenth = t.x().Add(Op::kMul, {x, t.x().FillLike(x, 0.1)});
           const NodeId again = t.x().Add(Op::kMul, {tenth, t.x().FillLike(x, 10)});
           const NodeId product = t.x().Add(Op::kMul, {again, t.Operand(m.Class("y"))});
           return t.Unite(t.x().Add(Op::kAdd, {product, x}), m.Class("root"));
         }}};
  };
  EXPECT_FALSE(CheckRow(Row(there_and_back), DType::kF32, 30).status.ok());
  const absl::Status status =
      CheckRow(Row(there_and_back, RuleClass::kReassociating), DType::kF32, 30).status;
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CheckRowTest, InfinitiesMustStayWhereTheyAre) {
  // The rewrite x * y + x = x * y + x * x / x holds except where x is infinite or 0.
  const auto cancel = [](const TermLanguage&, const FactsAnalysis&) {
    return Rule("(Add (Mul ?x ?y) ?x)", "(Add (Mul ?x ?y) (Div (Mul ?x ?x) ?x))");
  };
  const absl::Status status =
      CheckRow(Row(cancel, RuleClass::kReassociating), DType::kF64, 30).status;
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("special values"), absl::string_view::npos) << status;
}

TEST(CheckRowTest, WhatTheFactsRefuseIsAnError) {
  const RowCheck check = CheckRow(Row([](const TermLanguage&, const FactsAnalysis&) {
                                    return Rule("(Mul ?x ?y)", "(LessThan ?x ?y)");
                                  }),
                                  DType::kF32, 30);
  EXPECT_FALSE(check.status.ok());
}

TEST(CheckRowTest, ARowThatNeverFiresIsSeen) {
  const RowCheck check = CheckRow(Row([](const TermLanguage&, const FactsAnalysis&) {
                                    return Rule("(Div ?x ?y)", "(Mul ?x (Recip ?y))");
                                  }),
                                  DType::kF32, 30);
  EXPECT_TRUE(check.status.ok()) << check.status;
  EXPECT_EQ(check.fired, 0);
  EXPECT_EQ(check.compared, 0);
}

}  // namespace
}  // namespace athanor
