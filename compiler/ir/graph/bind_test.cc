#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

// A graph of inputs x0, x1, ... of the given shapes.
Graph Inputs(const std::vector<std::string>& shapes) {
  std::string text = "graph \"g\" { dim b in [1, 64] dim c in [0, 8] dim d in [0, 8]\n";
  for (size_t i = 0; i < shapes.size(); ++i) {
    text += Cat("%", i, " = Input \"x", i, "\" : f32", shapes[i], "\n");
  }
  absl::StatusOr<Graph> graph = ParseGraph(text + "output \"y\" = %0\n}");
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *graph;
}

std::string ErrorOf(const Graph& graph, const Shapes& shapes) {
  const absl::StatusOr<Expr::Env> env = BindDims(graph, shapes);
  EXPECT_TRUE(absl::IsInvalidArgument(env.status())) << env.status();
  return std::string(env.status().message());
}

TEST(BindDims, SolvesSymbolsAndLinearSizes) {
  const Graph graph = Inputs({"[b, 3]", "[2*c + b]", "[d*c, floordiv(d, 2) + 1, d + 1]"});
  const absl::StatusOr<Expr::Env> env = BindDims(graph, Shapes{{5, 3}, {11}, {21, 4, 8}});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(*env, (Expr::Env{{"b", 5}, {"c", 3}, {"d", 7}}));
  // The first input whose axis is a dim alone may come last.
  const Graph later = Inputs({"[b + c]", "[c]"});
  EXPECT_EQ(*BindDims(later, Shapes{{9}, {0}}), (Expr::Env{{"b", 9}, {"c", 0}}));
  EXPECT_EQ(*BindDims(Inputs({"[8 - c]"}), Shapes{{6}}), (Expr::Env{{"c", 2}}));
}

TEST(BindDims, NamesInputAndAxisThatDoNotFit) {
  const Graph graph = Inputs({"[b, 3]", "[2*c + b]"});
  EXPECT_EQ(ErrorOf(graph, {{5, 4}, {11}}), "\"x0\" (Input) axis 1 is 4; it must be 3");
  EXPECT_EQ(ErrorOf(graph, {{65, 3}, {70}}),
            "\"x0\" (Input) axis 0 is 65, so dim b is 65; it must be in [1, 64]");
  EXPECT_EQ(ErrorOf(graph, {{5, 3}, {12}}),
            "\"x1\" (Input) axis 0 is 12, but no integer c gives its size b + 2*c this value");
  EXPECT_EQ(ErrorOf(graph, {{5, 3}, {3}}),
            "\"x1\" (Input) axis 0 is 3, so dim c is -1; it must be in [0, 8]");
  EXPECT_EQ(ErrorOf(graph, {{5}, {3}}),
            "\"x0\" (Input) has rank 1; it must have rank 2, as in [b, 3]");
  EXPECT_EQ(ErrorOf(graph, {{5, -3}, {3}}), "\"x0\" (Input) axis 1 is -3; it must not be negative");
  EXPECT_EQ(ErrorOf(graph, {{5, 3}}), "got 1 shapes; the graph has 2 inputs and 0 parameters");
  EXPECT_EQ(ErrorOf(Inputs({"[b]", "[b + 1]"}), {{4}, {4}}),
            "\"x1\" (Input) axis 0 is 4; it must be b + 1 = 5 with b = 4");
}

TEST(BindDims, SaysWhenADimDoesNotFollow) {
  EXPECT_NE(ErrorOf(Inputs({"[b*c]"}), {{6}}).find("do not follow from the inputs' shapes"),
            std::string::npos);
  // c = 0 leaves d undetermined.
  EXPECT_NE(ErrorOf(Inputs({"[c, c*d]"}), {{0, 0}}).find("do not follow"), std::string::npos);
  EXPECT_TRUE(BindDims(Inputs({"[c, c*d]"}), Shapes{{2, 6}}).ok());
}

TEST(BindDims, TakesParametersToo) {
  const absl::StatusOr<Graph> graph = ParseGraph(
      "graph \"g\" { dim b in [1, 4]\n%0 = Parameter \"w\" : f32[3]\n%1 = Input \"x\" : f32[b]\n"
      "output \"y\" = %1\n}");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(BindDims(*graph, Shapes{{2}}).ok());
  EXPECT_TRUE(BindDims(*graph, Shapes{{2}, {3}}).ok());
  EXPECT_EQ(ErrorOf(*graph, {{2}, {4}}), "\"w\" (Parameter) axis 0 is 4; it must be 3");
}

TEST(VerifyBindable, NeedsEveryUsedDim) {
  EXPECT_TRUE(VerifyBindable(Inputs({"[b, 2*c + b]"})).ok());
  EXPECT_TRUE(VerifyBindable(Inputs({"[b*c + 1]", "[b]"})).ok());
  EXPECT_FALSE(VerifyBindable(Inputs({"[c*d]", "[c]"})).ok());  // c may be 0
  EXPECT_FALSE(VerifyBindable(Inputs({"[floordiv(b, 2)]"})).ok());
  const absl::StatusOr<Graph> iota = ParseGraph(
      "graph \"g\" { dim b in [1, 4]\n%0 = Iota {axis=0, dtype=i32, shape=shape[b]}\n"
      "output \"y\" = %0\n}");
  ASSERT_TRUE(iota.ok());
  EXPECT_EQ(VerifyBindable(*iota).message(),
            "dim b does not follow from the inputs' shapes: some input needs an axis of size b, or "
            "linear in it");
}

}  // namespace
}  // namespace athanor
