// Every genome that the search may choose is possible and right, not only the chosen one: random
// rewrites, random fusion decisions and random schedules of small graphs are lowered, compiled, and
// checked as whole plans against the reference evaluator.
//
//   ATHANOR_GENOMES=10000 bazel-bin/tests/tuner/genomes_test    # the long form; 80 by default
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/plan_builder.h"
#include "gtest/gtest.h"
#include "tests/tuner/random_genome.h"
#include "tests/tuner/same_values.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

class GenomesTest : public TunerTest {
 protected:
  absl::Status Check(const Graph& graph, const v1::Plan& plan) {
    internal::CheckRequest request;
    *request.mutable_plan() = plan;
    for (const v1::Kernel& kernel : plan.kernels()) {
      std::string& object = objects_[kernel.source_hash()];
      if (object.empty()) {
        auto compiled = tuner_->Compile(kernel.source(), target_);
        if (!compiled.ok()) return compiled.status();
        object = *std::move(compiled);
      }
      request.add_objects(object);
    }
    request.set_graph_text(ToText(graph));
    request.set_seed(random_());
    for (int64_t size : {1, 5, 18}) {
      auto* sizes = request.add_sizes();
      for (const Dim& dim : graph.dims) {
        sizes->add_values(std::min(dim.max, size + (dim.name == graph.dims[0].name ? 0 : 2)));
      }
    }
    return tuner_->Check(request);
  }

  std::mt19937_64 random_{7};
  std::map<std::string, std::string> objects_;  // keyed by source
};

TEST_F(GenomesTest, RandomGenomesAreRight) {
  int count = 80;
  if (const char* asked = std::getenv("ATHANOR_GENOMES")) {
    ASSERT_TRUE(absl::SimpleAtoi(asked, &count)) << asked;
  }
  const auto graphs = SmallForms(target_);
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  PlanBuilder builder(target_);
  Bounded counted;
  for (int i = 0; i < count && !HasFailure(); ++i) {
    const RegionForms& forms = *(*graphs)[i % graphs->size()];
    absl::StatusOr<Graph> form = forms.RandomForm(i);
    ASSERT_TRUE(form.ok()) << form.status();
    // Every fourth graph is the prepared one, unrewritten.
    const Graph& graph = random_() % 4 ? *form : forms.graph(0);
    std::string about = absl::StrCat("genome ", i, ":");
    const ScheduledGraph scheduled = RandomGenome(graph, target_, random_, &about);
    SCOPED_TRACE(about);
    SCOPED_TRACE(ToText(graph));
    const absl::Status same = SameValues(forms.graph(0), graph, {3, 5}, i, &counted);
    ASSERT_TRUE(same.ok()) << same << ToText(forms.graph(0));
    auto built = builder.Build(scheduled, {.kind = "test"});
    ASSERT_TRUE(built.ok()) << built.status();
    const absl::Status right = Check(graph, built->plan);
    EXPECT_TRUE(right.ok()) << right;
    if (i % 100 != 99) continue;
    std::printf("%d genomes, %zu kernels\n", i + 1, objects_.size());
    std::fflush(stdout);
  }
  EXPECT_GT(counted.share(), kLeastBounded) << "of " << counted.elements << " elements";
  EXPECT_EQ(tuner_->starts(), 1);
}

}  // namespace
}  // namespace athanor
