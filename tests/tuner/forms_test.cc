// Every form that the rules make of a graph computes the same. Evaluates random choices in the
// e-graphs of small graphs, and the neighbours that a search would try, with the reference
// evaluator.
//
//   ATHANOR_FORMS=10000 bazel-bin/tests/tuner/forms_test    # the long form; 200 by default
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/regions/region_forms.h"
#include "gtest/gtest.h"
#include "tests/tuner/same_values.h"
#include "tests/tuner/small_graphs.h"

namespace athanor {
namespace {

struct Space {
  Graph graph;
  std::unique_ptr<RegionForms> forms;
};

// Returns whole graphs as one region, and graphs cut into small regions.
std::vector<Space> Spaces() {
  std::vector<Space> spaces;
  for (const char* body : kSmallGraphs) {
    const absl::StatusOr<Graph> graph = ParseSmallGraph(body);
    EXPECT_TRUE(graph.ok()) << graph.status() << body;
    if (!graph.ok()) continue;
    absl::StatusOr<Prepared> prepared = Prepare(*graph);
    EXPECT_TRUE(prepared.ok()) << prepared.status() << body;
    if (!prepared.ok()) continue;
    for (const CutOptions& cut : {CutOptions{}, CutOptions{.max_nodes = 5, .min_nodes = 2}}) {
      RegionFormsOptions options{.sizes = {{3, 5}}, .machine = Machine::Typical({}), .cut = cut};
      options.limits.nodes = 4000;
      auto forms = RegionForms::Create(prepared->graph, options);
      EXPECT_TRUE(forms.ok()) << forms.status() << body;
      if (forms.ok()) spaces.push_back({prepared->graph, *std::move(forms)});
    }
  }
  return spaces;
}

void ExpectSame(const Graph& graph, const Graph& form, uint64_t seed, Bounded* counted) {
  const absl::Status valid = Verify(form);
  EXPECT_TRUE(valid.ok()) << valid << ToText(form);
  EXPECT_EQ(form.dims, graph.dims);
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 4}, {1, 1}}) {
    const absl::Status same = SameValues(graph, form, sizes, seed, counted);
    EXPECT_TRUE(same.ok()) << same << "\n" << ToText(graph) << "became\n" << ToText(form);
  }
}

TEST(FormsTest, RandomFormsComputeTheSame) {
  int count = 200;
  if (const char* asked = std::getenv("ATHANOR_FORMS")) {
    ASSERT_TRUE(absl::SimpleAtoi(asked, &count)) << asked;
  }
  const std::vector<Space> spaces = Spaces();
  std::set<std::string> distinct, given;
  Bounded counted;
  for (const Space& space : spaces) given.insert(CanonicalHash(space.graph));
  for (int i = 0; i < count && !HasFailure(); ++i) {
    const Space& space = spaces[i % spaces.size()];
    const absl::StatusOr<Graph> form = space.forms->RandomForm(i);
    ASSERT_TRUE(form.ok()) << form.status();
    SCOPED_TRACE(absl::StrCat("form ", i));
    distinct.insert(CanonicalHash(*form));
    ExpectSame(space.graph, *form, i, &counted);
  }
  EXPECT_GT(counted.share(), kLeastBounded);
  if (count >= 200) EXPECT_GT(distinct.size(), given.size() + 10);
  std::printf("%d forms, %zu distinct, of %zu graphs; %.3f of %lld elements compared\n", count,
              distinct.size(), given.size(), counted.share(),
              static_cast<long long>(counted.elements));
}

TEST(FormsTest, NeighboursComputeTheSame) {
  int neighbours = 0, joined = 0;
  Bounded counted;
  for (Space& space : Spaces()) {
    for (int form : space.forms->Neighbours(0)) {
      if (HasFailure() || ++neighbours > 2000) return;
      joined += absl::StrContains(space.forms->About(form), "boundary_layouts(");
      SCOPED_TRACE(space.forms->About(form));
      ExpectSame(space.graph, space.forms->graph(form), form, &counted);
    }
  }
  EXPECT_GT(neighbours, 40);
  EXPECT_GT(counted.share(), kLeastBounded);
  EXPECT_GT(joined, 0);
}

}  // namespace
}  // namespace athanor
