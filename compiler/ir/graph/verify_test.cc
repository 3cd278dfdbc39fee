#include <functional>
#include <limits>
#include <string>

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

Expr B() { return Expr::Symbol("b"); }

// x : f32[b, 4] -> exp -> sum over axis 1, and a literal.
Graph Valid() {
  Graph graph;
  graph.name = "valid";
  graph.dims = {{"b", 1, 64}};
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {B(), 4}}).value();
  const NodeId y = builder.Add(Op::kExp, {x}, {}, "expx").value();
  const NodeId z = builder.Add(Op::kSumReduce, {y}, {{"axes", std::vector<int64_t>{1}}}).value();
  const NodeId c = builder.Constant(Tensor::Zeros(DType::kBool, {2})).value();
  builder.Output("z", z);
  builder.Output("c", c);
  return graph;
}

struct Broken {
  std::string_view message;
  std::function<void(Graph*)> breaks;
};

void ExpectRefused(const Broken& broken) {
  Graph graph = Valid();
  broken.breaks(&graph);
  const absl::Status status = Verify(graph);
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status))
      << broken.message << ": " << status;
  EXPECT_NE(std::string(status.message()).find(broken.message), std::string::npos)
      << broken.message << " is not in: " << status;
}

TEST(Verify, AcceptsValidGraphs) {
  EXPECT_TRUE(Verify(Valid()).ok()) << Verify(Valid());
  EXPECT_TRUE(VerifyBindable(Valid()).ok());
}

TEST(Verify, RefusesBrokenStructure) {
  const Broken cases[] = {
      {"\"expx\" (Exp): operand 0 is %7, which is not a node",
       [](Graph* g) { g->nodes[1].inputs = {7}; }},
      {"operand 0 is %-1", [](Graph* g) { g->nodes[1].inputs = {-1}; }},
      {"operand 0 is %1, the node itself", [](Graph* g) { g->nodes[1].inputs = {1}; }},
      {"operand 0 is %2, a later node", [](Graph* g) { g->nodes[1].inputs = {2}; }},
      {"has 2 operands; Exp takes 1", [](Graph* g) { g->nodes[1].inputs = {0, 0}; }},
      {"\"x\" (Input): has 1 operands", [](Graph* g) { g->nodes[0].inputs = {0}; }},
      {"op 250 is not in the op table", [](Graph* g) { g->nodes[1].op = static_cast<Op>(250); }},
      {"another node is already named \"x\"", [](Graph* g) { g->nodes[1].name = "x"; }},
      {"has no name; every Input needs one", [](Graph* g) { g->nodes[0].name = ""; }},
      {"is not valid UTF-8", [](Graph* g) { g->nodes[1].name = "\xc3("; }},
      {"the limit is 1024", [](Graph* g) { g->nodes[1].name = std::string(1025, 'n'); }},
      {"graph \"gggg", [](Graph* g) { g->name = std::string(1025, 'g'); }},
      {"no outputs", [](Graph* g) { g->outputs.clear(); }},
      {"output 0 has no name", [](Graph* g) { g->outputs[0].name = ""; }},
      {"output \"z\" is there twice", [](Graph* g) { g->outputs[1].name = "z"; }},
      {"output \"z\" is %9", [](Graph* g) { g->outputs[0].node = 9; }},
      {"output \"z\" is %-1", [](Graph* g) { g->outputs[0].node = -1; }},
      {"output \"\\377\" is not valid UTF-8", [](Graph* g) { g->outputs[0].name = "\xff"; }},
  };
  for (const Broken& broken : cases) ExpectRefused(broken);
}

TEST(Verify, RefusesBrokenTypes) {
  const auto type = [](TensorType t) { return [t](Graph* g) { g->nodes[0].type = t; }; };
  const Expr huge = Expr(INT64_MAX);
  const Broken cases[] = {
      {"has type f32[b, 5]; its operands and attributes give f32[b, 4]",
       [](Graph* g) { g->nodes[1].type.shape[1] = 5; }},
      {"has type f64[b, 4]", [](Graph* g) { g->nodes[1].type.dtype = DType::kF64; }},
      {"a malformed type", [](Graph* g) { g->nodes[1].type.dtype = static_cast<DType>(99); }},
      {"dtype 99 is unknown", type({static_cast<DType>(99), {1}})},
      {"axis 1 has size -4", type({DType::kF32, {B(), -4}})},
      {"axis 0 has size b - 2, which can be -1 within the dims' bounds",
       type({DType::kF32, {B() - 2}})},
      {"\"q\" in \"q\" is not a dim", type({DType::kF32, {Expr::Symbol("q")}})},
      {"\"$0\" in \"$0\" is not a dim", type({DType::kF32, {Expr::Axis(0)}})},
      {"leaves the 64-bit range", type({DType::kF32, {huge * 2}})},
      {"leaves the 64-bit range", type({DType::kF32, {huge * B()}})},
      {"more than 2^63 bytes", type({DType::kF32, {huge, 4}})},
      {"more than 2^63 bytes", type({DType::kF32, {huge, 0, huge}})},
      {"the limit is 1099511627776", type({DType::kF32, {1 << 20, 1 << 20, B()}})},
      {"rank 17 is too high; the limit is 16 (--max_rank)", type({DType::kF32, Shape(17, 1)})},
  };
  for (const Broken& broken : cases) ExpectRefused(broken);
}

TEST(Verify, RefusesBrokenAttributesAndDims) {
  const auto axes = [](AttrValue v) { return [v](Graph* g) { g->nodes[2].attrs["axes"] = v; }; };
  const auto literal = [](Tensor t) { return [t](Graph* g) { g->nodes[3].attrs["value"] = t; }; };
  const auto dim = [](Dim d) { return [d](Graph* g) { g->dims.push_back(d); }; };
  const Broken cases[] = {
      {"%2 (SumReduce): attribute axes: is of type int", axes(int64_t{1})},
      {"axes=9 is not an axis", axes(std::vector<int64_t>{9})},
      {"holds 17 axes", axes(std::vector<int64_t>(17, 0))},
      {"attribute axes (ints: ", [](Graph* g) { g->nodes[2].attrs.clear(); }},
      {"Exp has no attribute \"axes\"; it takes none",
       [](Graph* g) { g->nodes[1].attrs["axes"] = true; }},
      {"Input has no attribute", [](Graph* g) { g->nodes[0].attrs["a"] = true; }},
      {"has 1 bytes; it needs 2", literal({DType::kBool, {2}, std::string(1, '\0')})},
      {"bool literal holds byte 7", literal({DType::kBool, {2}, std::string("\0\7", 2)})},
      {"axis 0 has size -2", literal({DType::kBool, {-2}, ""})},
      {"more than 2^63", literal({DType::kBool, {INT64_MAX, INT64_MAX}, ""})},
      {"dtype 77 is unknown", literal({static_cast<DType>(77), {}, ""})},
      {"the limit is 67108864", literal(Tensor::Zeros(DType::kBool, {(64 << 20) + 1}))},
      {"dim b is declared twice", dim({"b", 1, 2})},
      {"dim c has bounds [3, 2]", dim({"c", 3, 2})},
      {"dim c has bounds [-1, 2]", dim({"c", -1, 2})},
      {"dim \"\": the name must be", dim({"", 1, 2})},
      {"dim \"$0\": the name must be", dim({"$0", 1, 2})},
      {"dim \"a b\": the name must be", dim({"a b", 1, 2})},
      {"65 dims; the limit is 64",
       [](Graph* g) {
         for (int i = 0; i < 64; ++i) g->dims.push_back({Cat("d", i), 1, 2});
       }},
  };
  for (const Broken& broken : cases) ExpectRefused(broken);
}

// Under any limits, the sizes of a graph that passed can be multiplied in any order
// (Tensor::elements).
TEST(Verify, NoLimitAllowsSizesThatCannotBeMultiplied) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const GraphLimits none{.max_nodes = kMost, .max_tensor_bytes = kMost, .max_attr_bytes = kMost};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40, 0}, {0, kMost, kMost}}) {
    Graph graph = Valid();
    graph.nodes[3].attrs["value"] = Tensor{DType::kBool, shape, ""};
    const absl::Status status = Verify(graph, none);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("more than 2^63 bytes"), std::string::npos) << status;
  }
  Graph graph = Valid();
  graph.nodes[3].attrs["value"] = Tensor{DType::kBool, {0, int64_t{1} << 40}, ""};
  EXPECT_EQ(Verify(graph, none).message().find("2^63"), std::string::npos);
}

TEST(Verify, EnforcesTheLimitsGiven) {
  const Graph graph = Valid();
  const auto refuses = [&](const GraphLimits& limits) { return !Verify(graph, limits).ok(); };
  EXPECT_FALSE(refuses({}));
  EXPECT_FALSE(refuses({.max_nodes = 4}));
  EXPECT_TRUE(refuses({.max_nodes = 3}));
  EXPECT_FALSE(refuses({.max_rank = 2}));
  EXPECT_TRUE(refuses({.max_rank = 1}));
  EXPECT_TRUE(refuses({.max_dims = 0}));
  EXPECT_FALSE(refuses({.max_tensor_bytes = 64 * 4 * 4}));
  EXPECT_TRUE(refuses({.max_tensor_bytes = 64 * 4 * 4 - 1}));
  EXPECT_FALSE(refuses({.max_name_bytes = 5}));
  EXPECT_TRUE(refuses({.max_name_bytes = 4}));
  EXPECT_FALSE(refuses({.max_attr_bytes = 2}));
  EXPECT_TRUE(refuses({.max_attr_bytes = 1}));
}

TEST(Verify, LimitsTheSizeOfExpressions) {
  Expr size = B();
  for (int i = 0; i < 200; ++i) size = MinOf(size, FloorDiv(size + i, 2) + B());
  Graph graph = Valid();
  graph.nodes[0].type.shape[0] = size;
  EXPECT_TRUE(absl::IsInvalidArgument(Verify(graph))) << Verify(graph);
}

TEST(GraphBuilder, RefusesAtOnceAndNamesTheNode) {
  Graph graph;
  graph.dims = {{"b", 1, 64}};
  GraphBuilder builder(&graph, {.max_nodes = 3});
  const NodeId x = builder.Input("x", {DType::kF32, {B(), 4}}).value();
  const NodeId h = builder.Input("h", {DType::kF16, {B(), 4}}).value();
  EXPECT_EQ(builder.Input("x", {DType::kF32, {}}).status().message(),
            "\"x\" (Input): another node is already named \"x\"; names must be unique");
  EXPECT_EQ(
      builder.Add(Op::kAdd, {x, h}, {}, "sum").status().message(),
      "\"sum\" (Add): operand 0 has dtype f32, operand 1 has f16; they must be equal: convert "
      "operand 1 with Cast(dtype=f32) or operand 0 with Cast(dtype=f16)");
  EXPECT_FALSE(builder.Add(Op::kExp, {5}).ok());
  EXPECT_FALSE(builder.Add(Op::kExp, {-1}).ok());
  EXPECT_FALSE(builder.Add(Op::kInput, {}).ok());
  EXPECT_FALSE(builder.Add(static_cast<Op>(200), {x}).ok());
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_TRUE(builder.Add(Op::kExp, {x}).ok());
  EXPECT_EQ(builder.Add(Op::kExp, {x}).status().message(),
            "%3 (Exp): the graph has more than 3 nodes, the limit (--max_nodes)");
}

TEST(GraphBuilder, ContinuesAGraph) {
  Graph graph = Valid();
  GraphBuilder builder(&graph);
  EXPECT_FALSE(builder.Parameter("x", {DType::kF32, {}}).ok());
  EXPECT_EQ(builder.Parameter("w", {DType::kF32, {}}).value(), 4);
  EXPECT_EQ(graph.InputIds(), std::vector<NodeId>{0});
  EXPECT_EQ(graph.ParameterIds(), std::vector<NodeId>{4});
  EXPECT_EQ(graph.Describe(2), "%2 (SumReduce)");
  EXPECT_EQ(graph.Describe(4), "\"w\" (Parameter)");
  EXPECT_EQ(graph.Describe(9), "%9 (no such node)");
}

}  // namespace
}  // namespace athanor
