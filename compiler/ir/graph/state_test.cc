#include "compiler/ir/graph/state.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Rows are written to a state, and read back in another order.
constexpr char kCache[] = R"(graph "g" {
  dim t in [0, 8]
  dim n in [1, 64]
  %0 = Input "x" : f32[t, 2]
  %1 = Input "i" : i32[t]
  %2 = StateRead "old" : f32[n, 2]
  %3 = StateRead "kv" {role="keys"} : f32[n, 1, 2]
  %4 = IndexMap(%0) {map=map[t, 1, 2]($0, $2)} : f32[t, 1, 2]
  %5 = StateWrite(%3, %1, %4) : f32[n, 1, 2]
  %6 = Gather(%5, %1) {axis=0} : f32[t, 1, 2]
  %7 = Gather(%2, %1) {axis=0} : f32[t, 2]
  output "y" = %6
  output "z" = %7
  update %5
}
)";

// The graph with `from` replaced by `to` in its text.
absl::StatusOr<Graph> Edited(const std::string& from, const std::string& to) {
  std::string text = kCache;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return ParseGraph(text.replace(at, from.size(), to));
}

void ExpectRefused(const std::string& from, const std::string& to, const std::string& part) {
  const absl::StatusOr<Graph> graph = Edited(from, to);
  ASSERT_FALSE(graph.ok()) << to;
  EXPECT_TRUE(absl::IsInvalidArgument(graph.status())) << graph.status();
  EXPECT_NE(std::string(graph.status().message()).find(part), std::string::npos)
      << graph.status() << "\nexpected: " << part;
}

TEST(StateTest, TextIsReadBack) {
  const Graph graph = ParseGraph(kCache).value();
  EXPECT_EQ(ToText(graph), kCache);
  EXPECT_EQ(graph.updates, std::vector<NodeId>{5});
  EXPECT_EQ(graph.StateIds(), (std::vector<NodeId>{2, 3}));
  EXPECT_EQ(graph.ArgumentIds(), (std::vector<NodeId>{0, 1, 2, 3}));
  EXPECT_EQ(RoleOf(graph.node(3)), "keys");
  EXPECT_EQ(RoleOf(graph.node(2)), "");
}

TEST(StateTest, BuilderMakesUpdates) {
  Graph graph;
  GraphBuilder builder(&graph);
  const NodeId state = builder.State("s", {DType::kF32, {16, 1, 2}}, "values").value();
  const NodeId index = builder.Input("i", {DType::kI32, {3}}).value();
  const NodeId update = builder.Input("u", {DType::kF32, {3, 1, 2}}).value();
  const NodeId write = builder.Write(state, index, update).value();
  builder.Output("y", write);
  EXPECT_EQ(graph.updates, std::vector<NodeId>{write});
  EXPECT_EQ(Verify(graph), absl::OkStatus());
  EXPECT_EQ(RoleOf(graph.node(state)), "values");
  EXPECT_FALSE(builder.State("t", {DType::kF32, {16, 2}}, "values").ok());
}

TEST(StateTest, WritesAreVerified) {
  ExpectRefused("  update %5\n", "", "%5 (StateWrite): is none of the graph's updates");
  ExpectRefused("update %5", "update %5 update %5", "update 1, %5 (StateWrite), is there twice");
  ExpectRefused("update %5", "update %5 update %6", "update 1 is %6 (Gather); it must be");
  // A second write of the state.
  ExpectRefused("  output \"y\" = %6\n",
                "  %8 = StateWrite(%3, %1, %4)\n  output \"y\" = %6\n  update %8\n",
                "\"kv\" (StateRead): is written by %5 (StateWrite) and by %8 (StateWrite)");
  // A write of a write.
  ExpectRefused("  output \"y\" = %6\n",
                "  %8 = StateWrite(%5, %1, %4)\n  output \"y\" = %6\n  update %8\n",
                "%8 (StateWrite): writes %5 (StateWrite); it must write a StateRead");
  // Readers of the old value.
  ExpectRefused("Gather(%5, %1)", "Gather(%3, %1)",
                "%6 (Gather): reads \"kv\" (StateRead), which %5 (StateWrite) writes");
  ExpectRefused("output \"z\" = %7", "output \"z\" = %3", "output \"z\" is \"kv\" (StateRead)");
  Graph graph = ParseGraph(kCache).value();
  graph.updates = {99};
  EXPECT_TRUE(absl::IsInvalidArgument(Verify(graph)));
  graph.updates = {-1};
  EXPECT_TRUE(absl::IsInvalidArgument(Verify(graph)));
}

TEST(StateTest, LoopsHaveNone) {
  const absl::StatusOr<Graph> graph = ParseGraph(R"(graph "g" { %0 = Input "x" : f32[2]
    %1 = Scan(%0) {body=graph "" {%0 = Input "i" : i64[] %1 = Input "h" : f32[2]
      %2 = StateRead "s" : f32[2] output "h" = %2}, length=shape[3], result=0, scanned=0, states=1}
    output "y" = %1 })");
  EXPECT_NE(std::string(graph.status().message()).find("a graph inside a graph has no states"),
            std::string::npos)
      << graph.status();
}

// No output needs the write, and it is still there.
TEST(StateTest, CanonicalFormKeepsWrites) {
  const Graph graph =
      Edited("  %6 = Gather(%5, %1) {axis=0} : f32[t, 1, 2]\n", "  %6 = Exp(%0) : f32[t, 2]\n")
          .value();
  std::vector<std::string> dims;
  const Graph canonical = Canonicalize(graph, &dims);
  EXPECT_EQ(Verify(canonical), absl::OkStatus());
  ASSERT_EQ(canonical.updates.size(), 1u);
  EXPECT_EQ(canonical.node(canonical.updates[0]).op, Op::kStateWrite);
  ASSERT_EQ(canonical.StateIds().size(), 2u);
  EXPECT_EQ(canonical.node(3).name, "s1");
  EXPECT_EQ(RoleOf(canonical.node(3)), "keys");
  EXPECT_EQ(dims, (std::vector<std::string>{"t", "n"}));
  EXPECT_EQ(ToText(Canonicalize(canonical)), ToText(ParseGraph(ToText(canonical)).value()));
}

TEST(StateTest, HashIsOfWritesAndRoles) {
  const std::string hash = CanonicalHash(ParseGraph(kCache).value());
  const auto edited = [](const std::string& from, const std::string& to) {
    return CanonicalHash(Edited(from, to).value());
  };
  EXPECT_EQ(edited("\"kv\"", "\"cache\""), hash);
  EXPECT_EQ(edited("\"old\"", "\"old\" {role=\"\"}"), hash);
  EXPECT_NE(edited("\"keys\"", "\"values\""), hash);
  EXPECT_NE(edited("StateRead \"old\"", "Input \"old\""), hash);
  Graph without = Edited("Gather(%5, %1)", "Gather(%4, %1)").value();
  const std::string written = CanonicalHash(without);
  without.updates.clear();
  EXPECT_NE(CanonicalHash(without), written);
}

// Writes come in the order of their states, whatever their own.
TEST(StateTest, OrderOfUpdatesDoesNotMatter) {
  const auto graph = [](const char* updates) {
    return ParseGraph(absl::StrCat(R"(graph "g" { %0 = Input "x" : f32[2] %1 = Input "i" : i32[2]
      %2 = StateRead "a" : f32[9] %3 = StateRead "b" : f32[9] %4 = StateWrite(%3, %1, %0)
      %5 = StateWrite(%2, %1, %0) output "y" = %0 )",
                                   updates, "}"))
        .value();
  };
  const Graph one = graph("update %4 update %5"), other = graph("update %5 update %4");
  EXPECT_EQ(ToText(Canonicalize(one)), ToText(Canonicalize(other)));
  EXPECT_EQ(CanonicalHash(one), CanonicalHash(other));
}

TEST(StateTest, EvaluateReturnsWhatStatesHold) {
  const Graph graph = ParseGraph(kCache).value();
  const Tensor x = Of(DType::kF32, {2, 2}, {1, 2, 3, 4}), i = Of(DType::kI32, {2}, {2, 0});
  const Tensor old = Of(DType::kF32, {3, 2}, {10, 11, 12, 13, 14, 15});
  const Tensor kv = Of(DType::kF32, {3, 1, 2}, {20, 21, 22, 23, 24, 25});
  const std::vector<Tensor> values = Evaluate(graph, {x, i, old, kv}).value();
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(ValuesOf(values[0]), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(ValuesOf(values[1]), (std::vector<double>{14, 15, 10, 11}));
  EXPECT_EQ(values[2].bytes, old.bytes);
  EXPECT_EQ(ValuesOf(values[3]), (std::vector<double>{3, 4, 22, 23, 1, 2}));
  // The same through the canonical form.
  const std::vector<Tensor> again = Evaluate(Canonicalize(graph), {x, i, old, kv}).value();
  for (size_t o = 0; o < values.size(); ++o) EXPECT_EQ(again[o].bytes, values[o].bytes) << o;
}

TEST(StateTest, EvaluateOfNoRowsAndBadRows) {
  const Graph graph = ParseGraph(kCache).value();
  const Tensor old = Of(DType::kF32, {1, 2}, {1, 2}), kv = Of(DType::kF32, {1, 1, 2}, {3, 4});
  const std::vector<Tensor> values = Evaluate(graph, {Tensor::Zeros(DType::kF32, {0, 2}),
                                                      Tensor::Zeros(DType::kI32, {0}), old, kv})
                                         .value();
  EXPECT_EQ(values[3].bytes, kv.bytes);
  const Tensor x = Of(DType::kF32, {1, 2}, {5, 6});
  for (double index : {1, -1}) {
    const auto bad = Evaluate(graph, {x, Of(DType::kI32, {1}, {index}), old, kv});
    EXPECT_TRUE(absl::IsOutOfRange(bad.status())) << bad.status();
    EXPECT_NE(std::string(bad.status().message()).find("%5 (StateWrite)"), std::string::npos);
  }
  // Every state is an argument, of the shape that its slots' dim gives all of them.
  EXPECT_FALSE(Evaluate(graph, {x, Of(DType::kI32, {1}, {0}), old}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      Evaluate(graph, {x, Of(DType::kI32, {1}, {0}), old, Tensor::Zeros(DType::kF32, {2, 1, 2})})
          .status()));
}

TEST(StateTest, SlotsBindADim) {
  const Graph graph = ParseGraph(kCache).value();
  EXPECT_EQ(VerifyBindable(graph), absl::OkStatus());
  const Expr::Env dims = BindDims(graph, {{3, 2}, {3}, {7, 2}, {7, 1, 2}}).value();
  EXPECT_EQ(dims.at("n"), 7);
  EXPECT_EQ(BindDims(graph, {{3, 2}, {3}}).value().count("n"), 0u);
  EXPECT_FALSE(BindDims(graph, {{3, 2}, {3}, {7, 2}}).ok());
}

}  // namespace
}  // namespace athanor
