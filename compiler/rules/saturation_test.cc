// All rows together on layers of models: saturation ends, and the rows find the intended forms.
#include <map>
#include <memory>
#include <set>
#include <string>

#include "compiler/rules/saturate.h"
#include "compiler/rules/terms_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns the results of `op` of which values of the graph's nodes are slices, with the number of
// slices.
std::map<egraph::ClassId, int> SlicesOf(const Terms& t, Op op) {
  std::map<egraph::ClassId, std::set<egraph::ClassId>> slices;
  for (NodeId n = 0; n < static_cast<NodeId>(t.graph().nodes.size()); ++n) {
    for (const egraph::NodeId view : t.NodesOf(t.class_of(n), Op::kIndexMap)) {
      const egraph::ClassId whole = t.Child(view, 0);
      const Shape& from = t.facts().Type(t.terms(), whole).shape;
      const Shape& to = t.graph().node(n).type.shape;
      if (t.NodesOf(whole, op).empty() || from.size() != to.size() || from == to) continue;
      slices[whole].insert(t.class_of(n));
    }
  }
  std::map<egraph::ClassId, int> counts;
  for (const auto& [whole, of] : slices) counts[whole] = static_cast<int>(of.size());
  return counts;
}

uint64_t Unions(const egraph::Report& report, std::string_view row) {
  uint64_t unions = 0;
  for (const egraph::RuleReport& rule : report.rules) {
    if (std::string_view(rule.name).substr(0, row.size()) == row) unions += rule.unions;
  }
  return unions;
}

void ExpectSaturated(const egraph::Report& report, size_t most_nodes) {
  EXPECT_EQ(report.reason, egraph::StopReason::kSaturated) << egraph::ReportText(report);
  EXPECT_LT(report.iterations.back().nodes, most_nodes) << egraph::ReportText(report);
  for (const egraph::RuleReport& rule : report.rules) {
    EXPECT_EQ(rule.refused, 0u) << rule.name << ": " << rule.last_error;
    EXPECT_EQ(rule.last_error, "") << rule.name;
  }
}

TEST(SaturationTest, AnEncoderLayersProjectionsAreSlicesOfOne) {
  const Graph graph = EncoderLayers(1);
  Terms t(graph);
  ExpectSaturated(t.Run(RewritingRows()), 2000);
  ASSERT_TRUE(t.terms().Verify().ok()) << t.terms().Verify();
  // Merged queries, keys and values, with their biases and without.
  int biased = 0, plain = 0;
  for (const auto& [whole, count] : SlicesOf(t, Op::kAdd)) biased += count == 3;
  for (const auto& [whole, count] : SlicesOf(t, Op::kContract)) plain += count == 3;
  EXPECT_EQ(biased, 1);
  EXPECT_EQ(plain, 1);
}

TEST(SaturationTest, ADecoderLayersNormsGoIntoItsWeights) {
  const Graph graph = DecoderLayers(1);
  Terms t(graph);
  const egraph::Report report = t.Run(RewritingRows());
  ExpectSaturated(report, 2000);
  std::map<int, int> wholes;  // by number of slices
  for (const auto& [whole, count] : SlicesOf(t, Op::kContract)) ++wholes[count];
  EXPECT_GE(wholes[3], 1);  // queries, keys, values
  EXPECT_GE(wholes[2], 1);  // gate and up
  EXPECT_GT(Unions(report, "weight_takes_factor"), 0u);
  EXPECT_GT(Unions(report, "contract_gives_factor"), 0u);  // root mean squares
}

// A few tokens make the sums of each contraction long beside its results, and so give it two more
// forms, which share operands as it does.
TEST(SaturationTest, SumsInPiecesOfFewTokensComeToAnEnd) {
  size_t nodes[2];
  for (const int64_t tokens : {1024, 2}) {
    Graph graph = DecoderLayers(1, 4096);
    graph.dims[0].max = tokens;
    graph.dims[1].max = 1;
    const std::unique_ptr<TermGraph> terms = TermGraph::Create(graph).value();
    const absl::StatusOr<egraph::Report> report = Saturate(terms.get(), {}, {});
    ASSERT_TRUE(report.ok()) << report.status();
    ExpectSaturated(*report, 2000);
    EXPECT_EQ(Unions(*report, "contract_splits_sum") > 0, tokens == 2);
    nodes[tokens == 2] = report->iterations.back().nodes;
  }
  EXPECT_LT(nodes[1], 3 * nodes[0]);
}

// Decomposes and recognises composites too, within the limits of a region.
TEST(SaturationTest, AllFamiliesTogetherComeToAnEnd) {
  for (const Graph& graph : {EncoderLayers(1), DecoderLayers(1), EncoderLayers(2)}) {
    const std::unique_ptr<TermGraph> terms = TermGraph::Create(graph).value();
    const absl::StatusOr<egraph::Report> report =
        Saturate(terms.get(), {}, {.limits = {.nodes = 50'000, .bytes = size_t{200} << 20}});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->reason, egraph::StopReason::kSaturated) << egraph::ReportText(*report);
    EXPECT_TRUE(terms->terms().Verify().ok()) << terms->terms().Verify();
    for (const egraph::RuleReport& rule : report->rules) EXPECT_EQ(rule.refused, 0u) << rule.name;
  }
}

TEST(SaturationTest, LayersAddUpAndDoNotMultiply) {
  size_t nodes[3];
  for (int layers = 1; layers <= 3; ++layers) {
    const Graph graph = EncoderLayers(layers);
    Terms t(graph);
    const egraph::Report report = t.Run(RewritingRows());
    EXPECT_EQ(report.reason, egraph::StopReason::kSaturated);
    nodes[layers - 1] = report.iterations.back().nodes;
  }
  EXPECT_LE(nodes[2] - nodes[1], nodes[1] - nodes[0] + 10);
}

}  // namespace
}  // namespace athanor
