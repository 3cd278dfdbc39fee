// Runs random genomes for random forms of small graphs on the GPU, against the reference evaluator:
// whatever a search for a GPU may choose is right there. A kernel that the compiler has too few
// registers for is none that a search takes; there are few. ATHANOR_GENOMES is the number of
// genomes (200), ATHANOR_GENOMES_FIRST that of the first.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/run/inputs.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/harness.h"
#include "tests/tuner/random_genome.h"
#include "tests/tuner/same_values.h"

namespace athanor {
namespace {

// Compares one run, at sizes that depend on the seed; counts its elements, or that a search would
// refuse one of its kernels.
void Check(const Graph& graph, const ScheduledGraph& scheduled, const v1::Target& target,
           uint64_t seed, Bounded* counted, int* refused) {
  Expr::Env dims;
  constexpr int64_t kSizes[] = {1, 5, 18};
  for (size_t d = 0; d < graph.dims.size(); ++d) {
    dims[graph.dims[d].name] = std::min(graph.dims[d].max, kSizes[(seed + d) % 3]);
  }
  const auto all = RandomInputs(graph, dims, seed, IndexChoice::kSmall);
  ASSERT_TRUE(all.ok()) << all.status();
  const auto middle = all->begin() + static_cast<int64_t>(graph.InputIds().size());
  const auto want = EvaluateWithBounds(graph, *all, &dims);
  ASSERT_TRUE(want.ok()) << want.status();
  auto compiled = CompileScheduled(scheduled, {middle, all->end()}, target);
  if (absl::IsResourceExhausted(compiled.status())) {
    ++*refused;
    return;
  }
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto got = compiled->Run({all->begin(), middle});
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < got->size(); ++i) {
    const Errors& errors = want->errors[i];
    const auto within = WithinBounds((*got)[i], want->values[i], errors);
    EXPECT_TRUE(within.ok()) << "output " << i << ": " << within.status();
    counted->elements += static_cast<int64_t>(errors.size());
    counted->bounded += std::count_if(errors.begin(), errors.end(),
                                      [](double error) { return std::isfinite(error); });
  }
}

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  int value = otherwise;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &value)) << name << "=" << text;
  return value;
}

TEST(GenomesOnGpuTest, AreRight) {
  const int count = FromEnvironment("ATHANOR_GENOMES", 200);
  const int first = FromEnvironment("ATHANOR_GENOMES_FIRST", 0);
  const v1::Target target = TestGpu().value()->target();
  const auto graphs = SmallForms(target);
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  std::mt19937_64 random(11 + first);
  Bounded counted;
  int refused = 0;
  for (int i = first; i < first + count && !testing::Test::HasFailure(); ++i) {
    const absl::StatusOr<Graph> form = (*graphs)[i % graphs->size()]->RandomForm(i);
    ASSERT_TRUE(form.ok()) << form.status();
    std::string about = absl::StrCat("genome ", i, ":");
    const ScheduledGraph scheduled = RandomGenome(*form, target, random, &about);
    SCOPED_TRACE(about);
    SCOPED_TRACE(ToText(*form));
    Check(*form, scheduled, target, i, &counted, &refused);
  }
  // One of 688 was refused when this was written.
  EXPECT_LE(refused, 2 + count / 50);
  // The share of a few genomes is that of their graphs.
  constexpr int kMany = 100;
  if (count < kMany) return;
  EXPECT_GT(counted.share(), kLeastBounded) << "of " << counted.elements << " elements";
}

}  // namespace
}  // namespace athanor
