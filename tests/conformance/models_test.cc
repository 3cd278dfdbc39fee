// Runs the small models of tests/models against the reference evaluator, whole.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"
#include "server/tuner/run/inputs.h"
#include "tests/conformance/harness.h"
#include "tests/models/text_graph.h"

namespace athanor {
namespace {

// Returns weights and inputs as a trained model has them.
std::vector<Tensor> Drawn(const Graph& graph, const Expr::Env& dims) {
  auto drawn = DrawInputs(graph, dims, /*seed=*/3,
                          DrawOptions{.choice = IndexChoice::kSmall, .model_weights = true});
  EXPECT_TRUE(drawn.ok()) << drawn.status();
  std::vector<Tensor> tensors;
  for (DrawnInput& input : *drawn) {
    EXPECT_EQ(input.drawn.elements(), Tensor::Zeros(DType::kBool, input.shape).elements());
    input.drawn.shape = input.shape;
    tensors.push_back(std::move(input.drawn));
  }
  return tensors;
}

class ModelsTest : public testing::TestWithParam<const char*> {};

TEST_P(ModelsTest, ComputeWhatTheReferenceDoes) {
  for (const char* form : {"_composites", "_primitives"}) {
    const Graph graph = TestdataGraph(std::string(GetParam()) + form);
    for (const auto& [b, s] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {8, 2}}) {
      const std::vector<Tensor> all = Drawn(graph, {{"b", b}, {"s", s}});
      const auto middle = all.begin() + static_cast<int64_t>(graph.InputIds().size());
      // Norms divide by deviations that may be small, which enlarges what was rounded before.
      ExpectMatchesReference(graph, {all.begin(), middle}, {middle, all.end()}, /*slack=*/50);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelsTest, testing::Values("digits", "dlrm", "encoder"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace athanor
