#include "compiler/frontend/dim_binding.h"

#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

// A graph with inputs x0, x1, ... of those shapes.
Graph GraphOf(std::vector<Dim> dims, const std::vector<std::vector<std::string>>& shapes) {
  Graph graph;
  graph.dims = std::move(dims);
  GraphBuilder builder(&graph);
  for (size_t i = 0; i < shapes.size(); ++i) {
    TensorType type{DType::kF32, {}};
    for (const std::string& size : shapes[i]) type.shape.push_back(Expr::Parse(size).value());
    builder.Output("y" + std::to_string(i), builder.Input("x" + std::to_string(i), type).value());
  }
  return graph;
}

using Shapes = std::vector<std::vector<int64_t>>;

absl::StatusOr<std::vector<int64_t>> Bind(const Graph& graph, const Shapes& shapes) {
  std::vector<absl::Span<const int64_t>> spans(shapes.begin(), shapes.end());
  std::vector<int64_t> dims;
  const absl::Status status = DimBinding::Create(graph).value().Bind(spans, &dims);
  if (!status.ok()) return status;
  return dims;
}

std::string ErrorOf(const Graph& graph, const Shapes& shapes) {
  absl::StatusOr<std::vector<int64_t>> dims = Bind(graph, shapes);
  if (dims.ok()) return "no error";
  EXPECT_EQ(dims.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(dims.status().message());
}

TEST(DimBindingTest, BindsDimsAndChecksEveryAxis) {
  const Graph graph = GraphOf({{"b", 1, 64}, {"s", 0, 512}}, {{"b", "s", "8"}, {"s", "b"}});
  EXPECT_EQ(Bind(graph, {{2, 128, 8}, {128, 2}}).value(), (std::vector<int64_t>{2, 128}));
  EXPECT_EQ(Bind(graph, {{64, 0, 8}, {0, 64}}).value(), (std::vector<int64_t>{64, 0}));
  EXPECT_EQ(ErrorOf(graph, {{2, 128, 8}, {128, 3}}),
            "input \"x1\": axis 1 is 3; it must be b, which is 2 by the shapes of the other axes");
  EXPECT_EQ(ErrorOf(graph, {{2, 128, 9}, {128, 2}}),
            "input \"x0\": axis 2 is 9; it must be 8 (the model takes [b, s, 8])");
  EXPECT_EQ(ErrorOf(graph, {{2, 128}, {128, 2}}),
            "input \"x0\": shape has 2 axes; the model takes [b, s, 8]");
}

TEST(DimBindingTest, RefusesSizesOutsideTheBounds) {
  const Graph graph = GraphOf({{"b", 1, 64}}, {{"b"}});
  EXPECT_EQ(ErrorOf(graph, {{65}}),
            "input \"x0\": axis 0 is 65, which makes dim \"b\" 65; it must be in [1, 64]");
  EXPECT_NE(ErrorOf(graph, {{0}}).find("it must be in [1, 64]"), std::string::npos);
  EXPECT_EQ(ErrorOf(graph, {{-1}}), "input \"x0\": axis 0 is -1; sizes must not be negative");
  EXPECT_NE(ErrorOf(graph, {{INT64_MAX}}).find("it must be in [1, 64]"), std::string::npos);
  EXPECT_NE(ErrorOf(graph, {{INT64_MIN}}).find("must not be negative"), std::string::npos);
}

TEST(DimBindingTest, SolvesCompoundSizes) {
  const Graph graph = GraphOf({{"b", 1, 64}, {"s", 1, 64}}, {{"b*s + 1"}, {"2*b"}});
  EXPECT_EQ(Bind(graph, {{13}, {6}}).value(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(ErrorOf(graph, {{13}, {7}}),
            "input \"x1\": axis 0 is 7; no value of dim \"b\" gives 2*b this size");
  EXPECT_NE(ErrorOf(graph, {{0}, {6}}).find("no value of dim \"s\" gives"), std::string::npos);
}

TEST(DimBindingTest, ChecksCompoundSizesThatSolveNothing) {
  const Graph graph = GraphOf({{"s", 1, 64}}, {{"floordiv(s, 2)"}, {"s"}});
  EXPECT_EQ(Bind(graph, {{3}, {7}}).value(), (std::vector<int64_t>{7}));
  EXPECT_EQ(ErrorOf(graph, {{4}, {7}}),
            "input \"x0\": axis 0 is 4; it must be floordiv(s, 2), which is 3 by the shapes of the "
            "other axes");
}

TEST(DimBindingTest, RefusesDimsThatNoInputDetermines) {
  for (const char* size : {"floordiv(s, 2)", "s*s", "b*s"}) {
    // With b = 0 allowed, b*s does not determine s.
    const Graph graph = GraphOf({{"b", 0, 4}, {"s", 1, 64}}, {{"b"}, {size}});
    const absl::Status status = DimBinding::Create(graph).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_NE(status.message().find("dim \"s\" does not follow"), absl::string_view::npos);
    EXPECT_FALSE(VerifyBindable(graph).ok()) << size;
  }
}

TEST(DimBindingTest, DimsThatNothingUsesTakeTheirMin) {
  EXPECT_EQ(Bind(GraphOf({{"u", 3, 9}}, {{"4"}}), {{4}}).value(), (std::vector<int64_t>{3}));
}

TEST(DimBindingTest, DimsOfStatesTakeTheirMin) {
  Graph graph = GraphOf({{"b", 1, 4}, {"n", 3, 64}}, {{"b"}});
  GraphBuilder builder(&graph);
  ASSERT_TRUE(builder.State("s", {DType::kF32, {Expr::Symbol("n") * 16, 2}}).ok());
  EXPECT_TRUE(VerifyBindable(graph).ok());
  EXPECT_EQ(Bind(graph, {{3}}).value(), (std::vector<int64_t>{3, 3}));
}

// The reference evaluator binds dims too; the two must never disagree.
TEST(DimBindingTest, AgreesWithTheEvaluator) {
  const Graph graph = GraphOf({{"b", 1, 8}, {"s", 0, 8}}, {{"b", "3*s + b"}, {"min(b, s)"}});
  int bound = 0;
  for (int64_t x = 0; x < 10; ++x) {
    for (int64_t y = 0; y < 30; ++y) {
      for (int64_t z = 0; z < 9; ++z) {
        const absl::StatusOr<Expr::Env> env = BindDims(graph, Shapes{{x, y}, {z}});
        const absl::StatusOr<std::vector<int64_t>> dims = Bind(graph, {{x, y}, {z}});
        ASSERT_EQ(env.ok(), dims.ok()) << x << " " << y << " " << z << " " << env.status() << "\n"
                                       << dims.status();
        if (!env.ok()) continue;
        EXPECT_EQ((*dims)[0], env->at("b"));
        EXPECT_EQ((*dims)[1], env->at("s"));
        ++bound;
      }
    }
  }
  EXPECT_GT(bound, 50);
}

}  // namespace
}  // namespace athanor
