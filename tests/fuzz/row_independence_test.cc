// Checks proofs of row independence of whole graphs on values: the seeds, the small graphs of
// tests/tuner, the models of tests/models. FuzzGraph checks the same for changed seeds.
#include "compiler/ir/rows/row_independence.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/rows/row_independence_testing.h"
#include "gtest/gtest.h"
#include "server/tuner/run/inputs.h"
#include "tests/fuzz/seeds.h"
#include "tests/models/text_graph.h"
#include "tests/tuner/small_graphs.h"

namespace athanor {
namespace {

// Returns the proof for a dim; if it is one, checks it on random values with valid indices. The dim
// has 4 rows, the other dims 3.
RowProof Proved(const Graph& graph, const std::string& dim) {
  const RowProof proof = ProveRowIndependent(graph, dim);
  if (!proof.independent) return proof;
  Expr::Env dims;
  for (const Dim& d : graph.dims) {
    dims[d.name] = std::clamp<int64_t>(d.name == dim ? 4 : 3, d.min, d.max);
  }
  std::mt19937 rng(5);
  auto inputs = RandomInputs(graph, dims, /*seed=*/1, IndexChoice::kSmall);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  if (!inputs.ok()) return proof;
  EXPECT_EQ(TryRows(graph, dim, proof, dims, *std::move(inputs), rng), absl::OkStatus())
      << "dim " << dim << " of\n"
      << ToText(graph);
  return proof;
}

TEST(RowIndependenceTest, ModelsAreBatched) {
  for (const std::string model : {"encoder", "digits", "dlrm"}) {
    for (const char* form : {"_composites", "_primitives"}) {
      const Graph graph = TestdataGraph(model + form);
      const RowProof proof = Proved(graph, "b");
      EXPECT_TRUE(proof.independent) << model << form << ": " << proof.reason;
      for (const RowProof::Rows& rows : proof.inputs) EXPECT_TRUE(rows.any());
      for (const RowProof::Rows& rows : proof.outputs) EXPECT_TRUE(rows.any());
    }
  }
  EXPECT_EQ(Proved(TestdataGraph("encoder_composites"), "s").reason,
            "\"ids\" (Input): has dim s on axis 1; rows must be on axis 0");
}

TEST(RowIndependenceTest, Seeds) {
  const std::map<std::pair<std::string, std::string>, std::string> refused = {
      {{"attention", "s"}, "\"q\" (Input): has dim s on axis 1; rows must be on axis 0"},
      {{"tables", "n"}, "\"rows\" (Input): has dim n on axis 1; rows must be on axis 0"},
      {{"tables", "b"}, "\"bag\" (EmbeddingBag): its offsets count ids across the rows of dim b"},
      {{"quantized", "s"}, "\"x\" (Input): has dim s on axis 1; rows must be on axis 0"},
      {{"scatter", "n"}, "\"s\" (Scatter): writes by index across the rows of dim n"},
      {{"integers", "b"}, "%2 (RandomBits): numbers its words across the rows of dim b"},
      {{"maps", "h"},
       "\"image\" (Input): axis 0 has size 2*h + k, not a number of elements for each row of dim "
       "h"},
      {{"maps", "k"},
       "\"image\" (Input): axis 0 has size 2*h + k, not a number of elements for each row of dim "
       "k"},
      {{"loops", "n"}, "\"last\" (Scan): its length, n, varies with the size of dim n"},
      {{"windows", "s"}, "\"x\" (Input): has dim s on axis 2; rows must be on axis 0"},
  };
  int proved = 0;
  for (const Graph& graph : SeedGraphs()) {
    for (const Dim& dim : graph.dims) {
      const auto it = refused.find({graph.name, dim.name});
      EXPECT_EQ(Proved(graph, dim.name).reason, it == refused.end() ? "" : it->second)
          << graph.name << ", dim " << dim.name;
      proved += it == refused.end();
    }
  }
  EXPECT_EQ(proved, 7);
}

TEST(RowIndependenceTest, SmallGraphs) {
  std::map<std::string, int> verdicts;  // by dim, or by reason without the node's name
  for (const char* body : kSmallGraphs) {
    const absl::StatusOr<Graph> graph = ParseSmallGraph(body);
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (const char* dim : {"b", "s"}) {
      const RowProof proof = Proved(*graph, dim);
      ++verdicts[proof.independent ? dim : proof.reason];
      ASSERT_FALSE(HasFailure()) << body;
    }
  }
  for (const auto& [verdict, count] : verdicts) std::printf("%3d %s\n", count, verdict.c_str());
  EXPECT_GE(verdicts["b"], 30);
}

}  // namespace
}  // namespace athanor
