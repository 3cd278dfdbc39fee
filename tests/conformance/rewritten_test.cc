// Rewrites layers of models with rules: any choice of e-nodes is a graph that compiles, and
// computes what the layer did.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/egraph/extract/extract.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "compiler/rules/saturate.h"
#include "compiler/rules/terms_testing.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

int Contractions(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [](const Node& n) { return n.op == Op::kContract; }));
}

// Returns values of the Inputs or Parameters for b = 2, s = 5; weights are as small as a model's.
std::vector<Tensor> Values(const Graph& graph, const std::vector<NodeId>& ids, double scale) {
  std::mt19937 rng(5);
  std::vector<Tensor> values;
  for (const NodeId n : ids) {
    const TensorType& type = graph.node(n).type;
    const Expr::Env dims = {{"d0", 2}, {"d1", 5}};
    values.push_back(RandomTensor(type.dtype, ConcreteShape(type.shape, dims).value(), rng, scale));
  }
  return values;
}

// Extracts a graph by random costs, most of them for contractions.
Graph RandomForm(const TermGraph& terms, unsigned seed) {
  const egraph::NodeCost cost = [&](egraph::NodeId n) {
    std::mt19937 rng(seed * 1000003 + n.value);
    const double some = std::uniform_real_distribution<double>(0, 1)(rng);
    return terms.terms().op(n) == ToOpId(Op::kContract) ? 20 * some : some;
  };
  const egraph::Extractor extractor(terms.terms(), cost);
  return terms.Extract(extractor.Extract(terms.Roots()).value()).value();
}

void CheckForms(const Graph& layer, int fewest_contractions) {
  const std::unique_ptr<TermGraph> terms = TermGraph::Create(layer).value();
  ASSERT_TRUE(Saturate(terms.get(), {.disabled = {"decompose", "recognise"}}, {}).ok());
  const std::vector<Tensor> inputs = Values(layer, layer.InputIds(), 1);
  const std::vector<Tensor> parameters = Values(layer, layer.ParameterIds(), 0.2);
  std::vector<Tensor> all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  const std::vector<Tensor> want = Evaluate(layer, all).value();
  int fewest = Contractions(layer);
  for (unsigned seed = 0; seed < 3; ++seed) {
    const Graph form = RandomForm(*terms, seed);
    SCOPED_TRACE(ToText(form));
    fewest = std::min(fewest, Contractions(form));
    const std::vector<Tensor> got = Evaluate(form, all).value();
    const absl::Status same = CompareTensors(got[0], want[0], 1e-4, 1e-4);
    EXPECT_TRUE(same.ok()) << same;
    ExpectMatchesReference(form, inputs, parameters, /*slack=*/5);
  }
  EXPECT_LE(fewest, fewest_contractions);
}

// Three of six contractions become one.
TEST(RewrittenTest, EncoderLayer) { CheckForms(EncoderLayers(1, 64), 4); }

// There are seven contractions; a group of three and a group of two can each become one.
TEST(RewrittenTest, DecoderLayer) { CheckForms(DecoderLayers(1, 64), 5); }

// Both numbers of pieces, for rows that calls choose and a batch axis.
TEST(RewrittenTest, SumsInPieces) {
  for (const DType dtype : {DType::kF32, DType::kI32}) {
    const std::string type(DTypeName(dtype));
    const Graph graph =
        ParseGraph(Cat("graph \"\" { dim d0 in [0, 8] %0 = Input \"x\" : ", type,
                       "[3, d0, 2048] %1 = Parameter \"w\" : ", type,
                       "[3, 2048, 40] %2 = Contract(%0, %1) {spec=\"abk,akn->abn\"} "
                       "output \"y\" = %2 }"))
            .value();
    const std::unique_ptr<TermGraph> terms = TermGraph::Create(graph).value();
    ASSERT_TRUE(SaturateWith(terms.get(), {FindRule("contract_splits_sum")}, {}).ok());
    const egraph::ClassId root = terms->Roots()[0];
    for (const int64_t pieces : {4, 16}) {
      const egraph::NodeCost cost = [&](egraph::NodeId n) {
        const egraph::EGraph& e = terms->terms();
        if (e.Find(e.class_of(n)) != root) return 1.0;
        if (e.op(n) == ToOpId(Op::kContract)) return 1e6;
        return terms->facts().Type(e, e.children(n)[0]).shape[0].IsConstant(pieces) ? 1.0 : 1e6;
      };
      const egraph::Extractor extractor(terms->terms(), cost);
      const Graph form = terms->Extract(extractor.Extract(terms->Roots()).value()).value();
      ASSERT_EQ(form.nodes.size(), 6) << ToText(form);
      std::mt19937 rng(7);
      const Tensor w = RandomTensor(dtype, {3, 2048, 40}, rng);
      for (const int64_t rows : {0, 1, 7}) {
        const Tensor x = RandomTensor(dtype, {3, rows, 2048}, rng);
        ExpectMatchesReference(form, {x}, {w}, /*slack=*/10);
        const double error = IsFloat(dtype) ? 2e-5 : 0;
        const absl::Status same =
            CompareTensors(Evaluate(form, {x, w}).value()[0], Evaluate(graph, {x, w}).value()[0],
                           error, 100 * error);
        EXPECT_TRUE(same.ok()) << same;
      }
    }
  }
}

}  // namespace
}  // namespace athanor
