// Runs random compositions of index maps through pipeline, Clang and executor against the reference
// evaluator: every graph that the IR accepts compiles and is right, at several sizes after one
// compilation. ATHANOR_RANDOM_MAPS is the least number of maps (1,500), ATHANOR_RANDOM_MAPS_SEED
// the first seed. A failure prints its seed; a single map (ATHANOR_RANDOM_MAPS=1) prints its graph
// before it runs.
#include "tests/conformance/random_maps.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/sample/compare.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  int64_t value = 0;
  const char* text = std::getenv(name);
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

void Check(const MapCase& c, const Graph& graph, uint64_t seed) {
  static const auto& targets = *new std::vector<v1::Target>(TestTargets({0, 32, 16}));
  auto compiled = Compile(graph, {}, targets[seed % targets.size()], 1 + seed % 2);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::mt19937 rng(static_cast<uint32_t>(seed));
  for (const Expr::Env& dims : c.sizes) {
    std::vector<Tensor> inputs;
    for (NodeId i : graph.InputIds()) {
      inputs.push_back(
          RandomTensor(DType::kF32, ConcreteShape(graph.node(i).type.shape, dims).value(), rng));
    }
    auto want = Evaluate(graph, inputs);
    ASSERT_TRUE(want.ok()) << want.status();
    auto got = compiled->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < want->size(); ++i) {
      EXPECT_EQ(CompareTensors((*got)[i], (*want)[i], 2e-4, 2e-4), absl::OkStatus())
          << "output " << i << " at m = " << dims.at("m") << ", n = " << dims.at("n");
    }
  }
}

TEST(RandomMapsTest, ComputeWhatTheReferenceDoes) {
  const int64_t wanted = FromEnvironment("ATHANOR_RANDOM_MAPS", 1500);
  uint64_t seed = FromEnvironment("ATHANOR_RANDOM_MAPS_SEED", 1);
  int64_t maps = 0, graphs = 0, refused = 0;
  for (; maps < wanted && !HasFailure(); ++seed) {
    const MapCase c = RandomMaps(seed);
    SCOPED_TRACE(c.text + "seed " + std::to_string(seed));
    if (wanted == 1)
      std::fputs(c.text.c_str(), stderr);  // printed first, since it may crash the process
    const auto graph = ParseGraph(c.text);
    ++graphs;
    if (!graph.ok()) {
      // Refusals allowed: not proved to stay inside, or to have no negative size. Others are
      // mistakes of the generator.
      const std::string why(graph.status().message());
      EXPECT_TRUE(why.find("is not provably inside") != std::string::npos ||
                  why.find("a size must not be negative") != std::string::npos)
          << why;
      ++refused;
      continue;
    }
    maps += c.maps;
    Check(c, *graph, seed);
  }
  std::printf("%lld maps in %lld graphs, %lld graphs refused as not proved\n",
              static_cast<long long>(maps), static_cast<long long>(graphs),
              static_cast<long long>(refused));
  EXPECT_LE(refused * 50, graphs) << "more than one graph in 50 is refused";
}

}  // namespace
}  // namespace athanor
