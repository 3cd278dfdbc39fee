// The rows of the families algebra and layout: evaluates every equality they add to an e-graph,
// node by node, and checks that they find the intended forms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "compiler/rules/terms_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Returns normal values; with `specials`, one in eight is NaN, an infinity or a zero.
std::vector<Tensor> RandomValues(const ExampleBuilder& e, const Graph& g, bool specials,
                                 uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 1);
  std::vector<NodeId> ids = g.InputIds();
  for (const NodeId id : g.ParameterIds()) ids.push_back(id);
  std::vector<Tensor> values;
  for (const NodeId id : ids) {
    const TensorType& type = g.node(id).type;
    Tensor t = Tensor::Zeros(type.dtype, ConcreteShape(type.shape, e.dims()).value());
    for (int64_t i = 0; i < t.elements(); ++i) {
      double v = 2 * normal(random);
      if (specials && !e.IsFinite(id) && random() % 8 == 0) {
        constexpr double kSpecials[] = {0, -0.0, kInf, -kInf,
                                        std::numeric_limits<double>::quiet_NaN()};
        v = kSpecials[random() % 5];
      }
      Scalar s = Scalar::Float(type.dtype, v);
      if (!IsFloat(type.dtype)) {
        int64_t whole = std::isfinite(v) ? std::llround(v * 50) : 127;
        const auto limit = e.index_limits().find(id);
        if (limit != e.index_limits().end()) whole = std::abs(whole) % limit->second;
        s = type.dtype == DType::kBool ? Scalar::Unsigned(type.dtype, v > 0)
            : IsSigned(type.dtype)     ? Scalar::Signed(type.dtype, whole)
                                       : Scalar::Unsigned(type.dtype, static_cast<uint64_t>(whole));
      }
      StoreScalar(t, i, s);
    }
    values.push_back(std::move(t));
  }
  return values;
}

// Compares a node with its class element by element; `exact` allows only the op table's error
// bound.
absl::Status Compare(const Tensor& got, const Tensor& want, bool exact, double ulp) {
  if (exact) return CompareTensorsUlp(got, want, ulp);
  double largest = 1;
  for (int64_t i = 0; i < want.elements() && IsFloat(want.dtype); ++i) {
    const double v = std::fabs(LoadScalar(want, i).f);
    if (std::isfinite(v)) largest = std::max(largest, v);
  }
  const double error = IsFloat(want.dtype) ? 256 * UnitRoundoff(want.dtype) : 0;
  return CompareTensors(got, want, error, error * largest);
}

// Evaluates every node of the e-graph on the values of its children's classes, and compares it with
// the value of its class.
absl::Status CheckValues(const Terms& t, const std::vector<Tensor>& arguments,
                         const Expr::Env& dims, bool exact) {
  const egraph::EGraph& terms = t.terms();
  std::map<egraph::ClassId, Tensor> values;
  std::map<egraph::ClassId, double> ulps;  // loosest error bound of a node's op in the class
  const std::vector<Tensor> known = EvaluateAll(t.graph(), arguments, &dims).value();
  for (size_t n = 0; n < known.size(); ++n) values.emplace(t.class_of(n), known[n]);
  for (uint32_t n = 0; n < terms.node_bound(); ++n) {
    double& ulp = ulps[terms.class_of(egraph::NodeId{n})];
    ulp = std::max(ulp, OpInfo(ToOp(terms.op(egraph::NodeId{n}))).ulp);
  }
  std::vector<bool> done(terms.node_bound());
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t i = 0; i < terms.node_bound(); ++i) {
      const egraph::NodeId n{i};
      if (done[i] || !terms.alive(n)) continue;
      const Op op = ToOp(terms.op(n));
      std::vector<const Tensor*> operands;
      for (const egraph::ClassId child : terms.children(n)) {
        const auto value = values.find(terms.Find(child));
        if (value != values.end()) operands.push_back(&value->second);
      }
      if (op == Op::kInput || op == Op::kParameter || operands.size() < terms.children(n).size()) {
        continue;
      }
      done[i] = progress = true;
      const TensorType& type = t.facts().Type(terms, terms.class_of(n));
      Tensor result = Tensor::Zeros(type.dtype, ConcreteShape(type.shape, dims).value());
      absl::Status status =
          OpInfo(op).reference(operands, t.language().attrs(terms.payload(n)), dims, &result);
      const auto [value, is_new] = values.emplace(terms.class_of(n), result);
      if (status.ok() && !is_new) {
        status = Compare(result, value->second, exact, ulps[terms.class_of(n)]);
      }
      if (!status.ok()) return Prefixed(Cat(terms.NodeText(n), ": "), status);
    }
  }
  return absl::OkStatus();
}

std::vector<RuleRow> AlgebraAndLayout() {
  std::vector<RuleRow> rows = AlgebraRows();
  for (const RuleRow& row : LayoutRows()) {
    if (!row.is_switch()) rows.push_back(row);
  }
  return rows;
}

class AlgebraTest : public testing::TestWithParam<RuleRow> {};

TEST_P(AlgebraTest, EveryEqualityHolds) {
  const RuleRow& row = GetParam();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16};
    ExampleBuilder e(seed, kDTypes[seed % 3]);
    row.example(e);
    ASSERT_TRUE(e.status().ok()) << e.status();
    SCOPED_TRACE(Cat("seed ", seed, "\n", ToText(e.graph())));
    Terms t(e.graph());
    const egraph::Report report = t.Run({row});
    ASSERT_TRUE(t.terms().Verify().ok()) << t.terms().Verify();
    EXPECT_EQ(report.reason, egraph::StopReason::kSaturated);
    uint64_t unions = 0;
    for (const egraph::RuleReport& rule : report.rules) {
      unions += rule.unions;
      EXPECT_EQ(rule.refused, 0u) << rule.name << ": " << rule.last_error;
      EXPECT_EQ(rule.last_error, "") << rule.name;
    }
    EXPECT_GT(unions, 0u);
    const bool exact = row.rule_class == RuleClass::kExact;
    for (const bool specials : {false, true}) {
      const absl::Status status =
          CheckValues(t, RandomValues(e, e.graph(), specials, seed), e.dims(), exact);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

// Returns how many ways contract_splits_sum finds to compute the results of `body`.
uint64_t Splits(const std::string& body) {
  const absl::StatusOr<Graph> graph =
      ParseGraph(Cat("graph \"\" { dim b in [1, 64] dim s in [1, 4096] ", body, "}"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return 0;
  Terms t(*graph);
  const egraph::Report report = t.Run({*FindRule("contract_splits_sum")});
  EXPECT_EQ(report.reason, egraph::StopReason::kSaturated);
  uint64_t unions = 0;
  for (const egraph::RuleReport& rule : report.rules) unions += rule.unions;
  return unions;
}

std::string Product(const std::string& lhs, const std::string& rhs, const std::string& spec,
                    const std::string& dtype = "f32") {
  return Cat("%0 = Input \"x\" : ", dtype, lhs, " %1 = Input \"z\" : ", dtype, rhs,
             " %2 = Contract(%0, %1) {spec=\"", spec, "\"} output \"y\" = %2");
}

TEST(ContractSplitsSumTest, SplitsSumsThatAreLongBesideTheResults) {
  EXPECT_EQ(Splits(Product("[8, 4096]", "[4096, 64]", "mk,kn->mn")), 2u);
  EXPECT_EQ(Splits(Product("[64, 4096]", "[4096, 1024]", "mk,kn->mn")), 2u);
  EXPECT_EQ(Splits(Product("[65, 4096]", "[4096, 1024]", "mk,kn->mn")), 0u);
  // Both pieces are long enough, or one, or none.
  EXPECT_EQ(Splits(Product("[8, 2048]", "[2048, 8]", "mk,kn->mn")), 2u);
  EXPECT_EQ(Splits(Product("[8, 2032]", "[2032, 8]", "mk,kn->mn")), 1u);
  EXPECT_EQ(Splits(Product("[8, 512]", "[512, 8]", "mk,kn->mn")), 1u);
  EXPECT_EQ(Splits(Product("[8, 508]", "[508, 8]", "mk,kn->mn")), 0u);
  // Divided by 4 only; a prime.
  EXPECT_EQ(Splits(Product("[8, 4100]", "[4100, 64]", "mk,kn->mn")), 1u);
  EXPECT_EQ(Splits(Product("[8, 4093]", "[4093, 64]", "mk,kn->mn")), 0u);
  EXPECT_EQ(Splits(Product("[0, 4096]", "[4096, 64]", "mk,kn->mn")), 2u);
  EXPECT_EQ(Splits(Product("[8, 0]", "[0, 64]", "mk,kn->mn")), 0u);
}

TEST(ContractSplitsSumTest, KnowsDTypesLettersAndDims) {
  for (const char* dtype : {"f32", "f64", "i32", "u64"}) {
    EXPECT_EQ(Splits(Product("[8, 4096]", "[4096, 64]", "mk,kn->mn", dtype)), 2u) << dtype;
  }
  for (const char* dtype : {"f16", "bf16"}) {
    EXPECT_EQ(Splits(Product("[8, 4096]", "[4096, 64]", "mk,kn->mn", dtype)), 0u) << dtype;
  }
  EXPECT_EQ(Splits(Product("[2, 3, 4096, 5]", "[4096, 7, 2, 3]", "abkm,knab->mnab")), 2u);
  EXPECT_EQ(Splits(Product("[2, 3, 5, 4096]", "[2, 3, 4096, 7]", "abmk,abkn->nmba")), 2u);
  EXPECT_EQ(Splits(Product("[4096, 2, 3, 5]", "[7, 4096, 2, 3]", "kabm,nkab->abmn")), 2u);
  EXPECT_EQ(Splits(Product("[2, 3, 4096, 5]", "[2, 3, 4096, 7]", "abkm,abkn->abmn")), 2u);
  // A matrix by a vector; no dot products, of which norms have one a row.
  EXPECT_EQ(Splits(Product("[5, 4096]", "[4096]", "mk,k->m")), 2u);
  EXPECT_EQ(Splits(Product("[4096]", "[4096]", "k,k->")), 0u);
  EXPECT_EQ(Splits(Product("[b, 4096]", "[b, 4096]", "bk,bk->b")), 0u);
  // Results that calls choose count at their most; sums that they choose have no pieces.
  EXPECT_EQ(Splits(Product("[b, 4096]", "[4096, 64]", "mk,kn->mn")), 2u);
  EXPECT_EQ(Splits(Product("[s, 4096]", "[4096, 64]", "mk,kn->mn")), 0u);
  EXPECT_EQ(Splits(Product("[8, s]", "[s, 64]", "mk,kn->mn")), 0u);
  // Does nothing where several letters are summed, or one of one operand alone.
  EXPECT_EQ(Splits(Product("[8, 4096, 3]", "[4096, 3, 64]", "mkj,kjn->mn")), 0u);
  EXPECT_EQ(Splits(Product("[8, 4096]", "[64]", "mk,n->mn")), 0u);
  // Does nothing to what is computed once per model.
  EXPECT_EQ(Splits(R"(%0 = Parameter "x" : f32[8, 4096] %1 = Parameter "w" : f32[4096, 64]
                      %2 = Contract(%0, %1) {spec="mk,kn->mn"} output "y" = %2)"),
            0u);
}

INSTANTIATE_TEST_SUITE_P(Rows, AlgebraTest, testing::ValuesIn(AlgebraAndLayout()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace athanor
