#include "tests/conformance/scheduled.h"

#include <cstdlib>
#include <limits>
#include <variant>
#include <vector>

#include "compiler/ir/sample/compare.h"
#include "compiler/search/kernels/space.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

Tensor Random(const Node& node, const ThreeSizes& sizes, std::mt19937& rng) {
  const Expr::Env env = {{"b", sizes[0]}, {"s", sizes[1]}, {"t", sizes[2]}};
  std::vector<int64_t> shape;
  for (const Expr& e : node.type.shape) shape.push_back(e.Evaluate(env).value());
  Tensor t = RandomTensor(node.type.dtype, shape, rng);
  const double special[] = {std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()};
  if (!IsFloat(node.type.dtype) || t.elements() < 20) return t;
  for (double v : special) {
    StoreScalar(t, static_cast<int64_t>(rng() % t.elements()), Scalar::Float(node.type.dtype, v));
  }
  return t;
}

// Each order has another team that is the last of its tile.
void ExpectBits(Compiled& compiled, const std::vector<Tensor>& inputs, const Tensor& want) {
  for (const char* order : {"descending", "5", "ascending"}) {
    setenv("ATHANOR_EMULATOR_ORDER", order, /*overwrite=*/1);
    const auto got = compiled.Run(inputs);
    ASSERT_TRUE(got.ok()) << order << ": " << got.status();
    EXPECT_TRUE((*got)[0].bytes == want.bytes) << order;
  }
}

}  // namespace

void ExpectSchedule(const KernelTask& task, const KernelChoice& choice, const v1::Target& target,
                    absl::Span<const ThreeSizes> all_sizes, std::mt19937& rng) {
  SCOPED_TRACE(ScheduleText(choice));
  std::vector<Tensor> parameters;
  for (NodeId n : task.graph.ParameterIds()) {
    parameters.push_back(Random(task.graph.node(n), all_sizes[0], rng));
  }
  auto compiled = CompileScheduled(WithSchedule(task, choice, target), parameters, target);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (const ThreeSizes& sizes : all_sizes) {
    std::vector<Tensor> inputs;
    for (NodeId n : task.graph.InputIds()) {
      inputs.push_back(Random(task.graph.node(n), sizes, rng));
    }
    std::vector<Tensor> all = inputs;
    all.insert(all.end(), parameters.begin(), parameters.end());
    auto want = Evaluate(task.graph, all);
    ASSERT_TRUE(want.ok()) << want.status();
    auto got = compiled->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    const DType t = (*want)[0].dtype;
    const double bound = t == DType::kF64    ? 1e-12
                         : t == DType::kF16  ? 1e-2
                         : t == DType::kBF16 ? 6e-2
                                             : 2e-4;
    const absl::Status same = CompareTensors((*got)[0], (*want)[0], bound, bound);
    EXPECT_TRUE(same.ok()) << same << " at " << sizes[0] << ", " << sizes[1] << ", " << sizes[2];
    const auto* tile = std::get_if<TileSchedule>(&choice.contract);
    if (tile != nullptr && tile->split > 1) ExpectBits(*compiled, inputs, (*got)[0]);
  }
}

}  // namespace athanor
