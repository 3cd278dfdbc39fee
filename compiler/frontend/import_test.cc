#include <string>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using absl::StatusCode;

// y = relu(x + bias), with a dim.
GraphMessage Good() {
  GraphMessage m;
  m.graph.set_name("good");
  m.Dim("b", 1, 64).Input("x", "f32", {"b", "2"}).Parameter("bias", "f32", {"2"});
  m.Node("wide", "IndexMap", {"bias"});
  v1::IndexMapAttr* map = m.attr("map").mutable_index_map();
  *map->add_shape() = ExprToProto(Expr::Symbol("b"));
  *map->add_shape() = ExprToProto(2);
  *map->add_coordinates() = ExprToProto(Expr::Axis(1));
  m.Node("sum", "Add", {"x", "wide"}).Node("y", "Relu", {"sum"}).Output("out", "y");
  return m;
}

v1::GraphNode& NodeOf(GraphMessage& m, const std::string& name) {
  for (v1::GraphNode& node : *m.graph.mutable_nodes()) {
    if (node.name() == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return m.node();
}

void ExpectRefused(const GraphMessage& m, StatusCode code, const std::string& part,
                   const GraphLimits& limits = {}) {
  const absl::StatusOr<ImportedGraph> imported = ImportGraph(m.graph, limits);
  ASSERT_FALSE(imported.ok()) << "expected: " << part;
  EXPECT_EQ(imported.status().code(), code) << imported.status();
  EXPECT_NE(std::string(imported.status().message()).find(part), std::string::npos)
      << imported.status() << "\nexpected: " << part;
}

void ExpectInvalid(const GraphMessage& m, const std::string& part, const GraphLimits& limits = {}) {
  ExpectRefused(m, StatusCode::kInvalidArgument, part, limits);
}

void ExpectUnimplemented(const GraphMessage& m, const std::string& part) {
  ExpectRefused(m, StatusCode::kUnimplemented, part);
}

TEST(ImportTest, StatesAreNotUploaded) {
  GraphMessage m = Good();
  m.Node("kv", "StateRead", {});
  ExpectUnimplemented(m, "node \"kv\" (StateRead): an uploaded graph has no states");
  m = Good();
  m.Node("w", "StateWrite", {"x", "x", "x"});
  ExpectUnimplemented(m, "node \"w\" (StateWrite): an uploaded graph has no states");
  m = Good();
  m.graph.add_updates("y");
  ExpectUnimplemented(m, "update \"y\": an uploaded graph has no states");
}

TEST(ImportTest, StatesOfTheServersOwnGraphs) {
  const Graph graph = ParseGraph(R"(graph "g" { dim N in [1, 9]
      %0 = Input "x" : f32[2] %1 = Input "i" : i32[2]
      %2 = StateRead "s" {role=""} : f32[N] %3 = StateWrite "w"(%2, %1, %0) output "y" = %0
      update %3 })")
                          .value();
  const v1::Graph message = GraphToProto(graph);
  ASSERT_EQ(message.updates_size(), 1);
  EXPECT_EQ(message.updates(0), "w");
  EXPECT_TRUE(message.nodes(2).has_type());
  const auto read = [](const v1::Graph& own) {
    return ImportGraph(own, {}, kMaxNesting, GraphMaker::kServer);
  };
  EXPECT_EQ(ToText(read(message)->graph), ToText(graph));
  EXPECT_EQ(
      ToText(ImportGraph(message.SerializeAsString(), {}, kMaxNesting, GraphMaker::kServer)->graph),
      ToText(graph));
  EXPECT_FALSE(ImportGraph(message).ok());
  const auto error = [&](const v1::Graph& own) {
    const absl::Status status = read(own).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  v1::Graph wrong = message;
  wrong.set_updates(0, "z");
  EXPECT_NE(error(wrong).find("update \"z\""), std::string::npos) << error(wrong);
  wrong.clear_updates();
  EXPECT_NE(error(wrong).find("is none of the graph's updates"), std::string::npos);
  wrong = message;
  wrong.mutable_nodes(2)->clear_has_type();
  EXPECT_NE(error(wrong).find("\"s\" (StateRead): has no type"), std::string::npos);
}

TEST(ImportTest, ReadsAGraph) {
  const ImportedGraph imported = ImportGraph(Good().graph).value();
  EXPECT_EQ(imported.parameter_hashes, std::vector<std::string>{std::string(32, 'b')});
  const Graph& graph = imported.graph;
  EXPECT_EQ(graph.name, "good");
  EXPECT_EQ(graph.dims, (std::vector<Dim>{{"b", 1, 64}}));
  ASSERT_EQ(graph.nodes.size(), 5u);
  EXPECT_EQ(graph.nodes[4].op, Op::kRelu);
  EXPECT_EQ(TypeToString(graph.nodes[4].type), "f32[b, 2]");
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.outputs[0].name, "out");
  EXPECT_EQ(graph.outputs[0].node, 4);
  EXPECT_TRUE(ImportGraph(Good().graph.SerializeAsString()).ok());
  EXPECT_TRUE(GraphFromProto(Good().graph).ok());
}

TEST(ImportTest, ElementsTravelBesideTheGraph) {
  GraphMessage m;
  m.Input("q", "i8", {"4"}).Input("x", "u8", {"4"});
  m.Output("a", "x").Output("b", "q");
  NodeOf(m, "q").set_element("int4");
  m.graph.mutable_outputs(0)->set_element("float8e4m3fn");
  const ImportedGraph imported = ImportGraph(m.graph).value();
  EXPECT_EQ(imported.input_elements, (std::vector<std::string>{"int4", ""}));
  EXPECT_EQ(imported.output_elements, (std::vector<std::string>{"float8e4m3fn", ""}));
  const ImportedGraph again = ImportGraph(GraphToProto(imported)).value();
  EXPECT_EQ(again.input_elements, imported.input_elements);
  EXPECT_EQ(again.output_elements, imported.output_elements);
}

TEST(BadGraphTest, Elements) {
  GraphMessage carrier = Good();
  NodeOf(carrier, "x").set_element("int4");
  ExpectInvalid(carrier, "node \"x\" (Input): element \"int4\" is sent as i8, not as f32");
  GraphMessage unknown = Good();
  unknown.graph.mutable_outputs(0)->set_element("float32");
  ExpectInvalid(unknown, "output \"out\": element \"float32\" is unknown, or a dtype");
  GraphMessage inner = Good();
  NodeOf(inner, "y").set_element("int4");
  ExpectInvalid(inner, "node \"y\" (Relu): has an element; only an Input and an output have one");
}

TEST(ImportTest, NodesComeInAnyOrder) {
  GraphMessage reversed = Good();
  auto* nodes = reversed.graph.mutable_nodes();
  for (int i = 0; i < nodes->size() / 2; ++i) nodes->SwapElements(i, nodes->size() - 1 - i);
  const Graph graph = GraphFromProto(reversed.graph).value();
  EXPECT_EQ(CanonicalHash(graph), CanonicalHash(GraphFromProto(Good().graph).value()));
  // Nodes that are ready keep the order of the message: bias and wide come before x.
  EXPECT_EQ(graph.nodes[0].name, "bias");
  EXPECT_EQ(graph.nodes[1].name, "wide");
  EXPECT_EQ(graph.nodes[2].name, "x");
}

TEST(ImportTest, RoundTrip) {
  const ImportedGraph first = ImportGraph(Good().graph).value();
  const v1::Graph message = GraphToProto(first.graph, first.parameter_hashes);
  const ImportedGraph second = ImportGraph(message).value();
  EXPECT_EQ(ToText(second.graph), ToText(first.graph));
  EXPECT_EQ(second.parameter_hashes, first.parameter_hashes);
}

TEST(ImportTest, NodesWithoutNamesAreExportedUnderFreeOnes) {
  Graph graph;
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("n1", {DType::kF32, {3}}).value();
  const NodeId a = builder.Add(Op::kExp, {x}).value();
  builder.Output("y", builder.Add(Op::kTanh, {a}).value());
  const v1::Graph message = GraphToProto(graph);
  EXPECT_EQ(message.nodes(1).name(), "n1_");
  EXPECT_EQ(CanonicalHash(GraphFromProto(message).value()), CanonicalHash(graph));
}

TEST(ImportTest, EveryTypeOfAttributeSurvives) {
  GraphMessage m;
  m.Dim("b", 0, 8).Input("x", "f32", {"b", "4", "4"}).Input("seed", "u64", {});
  m.Node("cast", "Cast", {"x"}).attr("dtype").set_dtype("bf16");
  m.Node("sum", "SumReduce", {"x"}).attr("axes").mutable_ints()->add_values(1);
  m.Node("soft", "Softmax", {"x"}).attr("axis").set_i(2);
  m.Node("gelu", "Gelu", {"x"}).attr("approximate").set_s("tanh");
  m.Node("bits", "RandomBits", {"seed"});
  *m.attr("shape").mutable_shape()->add_sizes() = ExprToProto(2 * Expr::Symbol("b"));
  m.Node("att", "Attention", {"x", "x", "x"}).attr("causal").set_b(true);
  m.attr("scale").set_f(0.25);
  m.Constant("c", "i8", {3}, "abc");
  m.Input("axes", "i8", {"2"}).attr("value").mutable_tensor()->set_dtype("i8");
  m.attr("value").mutable_tensor()->add_shape(2);
  m.attr("value").mutable_tensor()->set_data("ab");
  m.Node("pad", "IndexMap", {"c"});
  *m.attr("map").mutable_index_map()->add_shape() = ExprToProto(5);
  *m.attr("map").mutable_index_map()->add_coordinates() = ExprToProto(Expr::Axis(0) - 1);
  m.attr("fill").mutable_tensor()->set_dtype("i8");
  m.attr("fill").mutable_tensor()->set_data("z");
  for (const char* node : {"cast", "sum", "soft", "gelu", "bits", "att", "pad"}) {
    m.Output(node, node);
  }
  const absl::StatusOr<Graph> graph = GraphFromProto(m.graph);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ToText(GraphFromProto(GraphToProto(*graph)).value()), ToText(*graph));
}

TEST(ImportTest, EmptySizesAreFine) {
  GraphMessage m;
  m.Dim("b", 0, 4).Input("x", "f32", {"b", "0"}).Output("y", "x");
  EXPECT_TRUE(ImportGraph(m.graph).ok());
}

TEST(BadGraphTest, Cycles) {
  GraphMessage m = Good();
  NodeOf(m, "sum").set_inputs(1, "y");
  ExpectInvalid(m, "the graph has a cycle: \"sum\" -> \"y\" -> \"sum\"; a graph must be acyclic");
  GraphMessage self = Good();
  NodeOf(self, "y").set_inputs(0, "y");
  ExpectInvalid(self, "the graph has a cycle: \"y\" -> \"y\"");
}

TEST(BadGraphTest, LongCyclesAreShownInPart) {
  GraphMessage m;
  for (int i = 0; i < 500; ++i) {
    m.Node("n" + std::to_string(i), "Exp", {"n" + std::to_string((i + 1) % 500)});
  }
  m.Output("y", "n0");
  ExpectInvalid(m, "... (500 nodes) -> ");
}

TEST(BadGraphTest, MissingInputs) {
  GraphMessage m = Good();
  NodeOf(m, "sum").set_inputs(1, "wife");
  ExpectInvalid(m,
                "node \"sum\" (Add): operand 1 is \"wife\", but the graph has no node of that "
                "name; did you mean \"wide\"?");
  NodeOf(m, "sum").mutable_inputs()->RemoveLast();
  ExpectInvalid(m, "node \"sum\" (Add): has 1 operands; Add takes 2");
  GraphMessage output = Good();
  output.graph.mutable_outputs(0)->set_node("z");
  ExpectInvalid(output, "output \"out\" is \"z\", but the graph has no node of that name");
  output.graph.clear_outputs();
  ExpectInvalid(output, "the graph has no outputs");
}

TEST(BadGraphTest, DuplicateNames) {
  GraphMessage nodes = Good();
  nodes.Node("x", "Relu", {"x"});
  ExpectInvalid(nodes, "node \"x\" is there twice, as nodes[0] and nodes[5]");
  GraphMessage outputs = Good();
  outputs.Output("out", "x");
  ExpectInvalid(outputs, "output \"out\" is there twice");
  GraphMessage dims = Good();
  dims.Dim("b", 1, 2);
  ExpectInvalid(dims, "dim \"b\" is declared twice");
}

TEST(BadGraphTest, EmptyNames) {
  GraphMessage m = Good();
  m.Node("", "Relu", {"x"});
  ExpectInvalid(m, "nodes[5] (Relu) has no name");
  GraphMessage output = Good();
  output.Output("", "x");
  ExpectInvalid(output, "output 1 has no name");
}

TEST(BadGraphTest, UnknownOps) {
  GraphMessage m = Good();
  NodeOf(m, "y").set_op("Rellu");
  ExpectUnimplemented(m, "node \"y\": op \"Rellu\" is not supported; did you mean \"Relu\"?");
  NodeOf(m, "y").set_op("Convolution");
  ExpectUnimplemented(m, "node \"y\": op \"Convolution\" is not supported");
  NodeOf(m, "y").set_op("");
  ExpectUnimplemented(m, "node \"y\": op \"\" is not supported");
}

TEST(BadGraphTest, UnknownMissingAndWrongAttributes) {
  GraphMessage m = Good();
  (*NodeOf(m, "y").mutable_attrs())["slope"].set_f(0.1);
  ExpectInvalid(m, "node \"y\" (Relu): Relu has no attribute \"slope\"; it takes none");
  NodeOf(m, "y").set_op("Softmax");
  ExpectInvalid(m, "Softmax has no attribute \"slope\"; it takes axis");
  NodeOf(m, "y").clear_attrs();
  ExpectInvalid(m, "node \"y\" (Softmax): attribute axis (int:");
  (*NodeOf(m, "y").mutable_attrs())["axis"].set_f(1);
  ExpectInvalid(m, "node \"y\" (Softmax): attribute axis is of type float; it must be of type int");
  (*NodeOf(m, "y").mutable_attrs())["axis"].clear_kind();
  ExpectInvalid(m, "attribute axis is of type nothing; it must be of type int");
  (*NodeOf(m, "y").mutable_attrs())["axis"].set_i(7);
  ExpectInvalid(m, "node \"y\" (Softmax): axis=7 is not an axis of shape [b, 2]");
}

TEST(BadGraphTest, AttributesOfInputsAndParameters) {
  GraphMessage m = Good();
  (*NodeOf(m, "x").mutable_attrs())["axis"].set_i(0);
  ExpectInvalid(m, "node \"x\" (Input): Input has no attribute \"axis\"");
  // Users may not state attributes that are found from the contents.
  m = Good();
  (*NodeOf(m, "bias").mutable_attrs())["magnitude"].set_i(20);
  ExpectInvalid(m, "node \"bias\" (Parameter): has attribute magnitude, which is found from");
}

TEST(BadGraphTest, DTypeMismatches) {
  GraphMessage m = Good();
  NodeOf(m, "x").set_dtype("f16");
  ExpectInvalid(m, "node \"sum\" (Add): operand 0 has dtype f16, operand 1 has f32");
  ExpectInvalid(m, "Cast(dtype=f16)");
  NodeOf(m, "x").set_dtype("float32");
  ExpectInvalid(m,
                "node \"x\" (Input): dtype \"float32\" is not a dtype; the dtypes are bool, i8,");
}

TEST(BadGraphTest, DTypesThatAnOpDoesNotTake) {
  GraphMessage m;
  m.Input("x", "i32", {"2"}).Node("y", "Exp", {"x"}).Output("y", "y");
  ExpectUnimplemented(m, "node \"y\" (Exp): operand 0 has dtype i32");
}

TEST(BadGraphTest, StorageDTypesDoNotTravel) {
  GraphMessage input;
  input.Input("x", "f8e4m3", {"2"}).Output("y", "x");
  ExpectUnimplemented(input, "node \"x\" (Input): an input of dtype f8e4m3 cannot be sent");
  GraphMessage output;
  output.Parameter("w", "f8e5m2", {"2"}).Output("y", "w");
  ExpectUnimplemented(output, "output \"y\" has dtype f8e5m2, which cannot be sent");
}

TEST(BadGraphTest, ShapesThatDoNotFit) {
  GraphMessage m = Good();
  *NodeOf(m, "x").mutable_shape(1) = ExprToProto(3);
  ExpectInvalid(m,
                "node \"sum\" (Add): axis 1 of operand 0 has size 3, axis 1 of operand 1 has "
                "size 2; they must be equal");
  *NodeOf(m, "x").mutable_shape(1) = ExprToProto(Expr::Symbol("b"));
  ExpectInvalid(m, "must be equal for every size of the dims, which is not proved");
}

TEST(BadGraphTest, UndeclaredDims) {
  GraphMessage m = Good();
  *NodeOf(m, "x").mutable_shape(0) = ExprToProto(Expr::Symbol("batch") + 1);
  ExpectInvalid(m, "node \"x\" (Input): axis 0: \"batch\" in \"batch + 1\" is not a dim");
  *NodeOf(m, "x").mutable_shape(0) = ExprToProto(Expr::Axis(0));
  ExpectInvalid(m, "\"$0\"");
}

TEST(BadGraphTest, DimsWithWrongBounds) {
  const auto bounds = [](int64_t min, int64_t max) {
    GraphMessage m = Good();
    m.graph.mutable_dims(0)->set_min(min);
    m.graph.mutable_dims(0)->set_max(max);
    return m;
  };
  ExpectInvalid(bounds(9, 8), "dim \"b\": max is 8; it must be at least min, 9");
  ExpectInvalid(bounds(-1, 8), "dim \"b\": min is -1; it must be at least 0");
  ExpectInvalid(bounds(0, 0), "dim \"b\": max is 0; it must be at least 1");
  ExpectInvalid(bounds(0, -5), "dim \"b\": max is -5; it must be at least 1");
  EXPECT_TRUE(ImportGraph(bounds(0, 1).graph).ok());
}

TEST(BadGraphTest, DimNames) {
  for (const char* name : {"", "$0", "2b", "b c", "b*c", "\xc3\xa9"}) {
    GraphMessage m = Good();
    m.Dim(name, 1, 2);
    ExpectInvalid(m, "the name must be a letter or _");
  }
}

TEST(BadGraphTest, DimsThatNoInputDetermines) {
  GraphMessage m = Good();
  m.Dim("k", 1, 4).Node("iota", "Iota", {});
  *m.attr("shape").mutable_shape()->add_sizes() = ExprToProto(Expr::Symbol("k"));
  m.attr("axis").set_i(0);
  m.attr("dtype").set_dtype("i32");
  m.Output("i", "iota");
  ExpectInvalid(m, "dim k does not follow from the inputs' shapes");
}

TEST(BadGraphTest, SizesWhoseProductOverflows) {
  GraphMessage m = Good();
  m.Input("big", "f64", {"4294967296", "4294967296"});
  ExpectInvalid(m, "node \"big\" (Input): type f64[4294967296, 4294967296] takes more than 2^63");
  // A size of 0 does not hide the overflow.
  GraphMessage zero = Good();
  zero.Input("big", "u8", {"0", "9223372036854775807", "3"});
  ExpectInvalid(zero, "node \"big\" (Input)");
  // Overflow is checked over the dims' bounds, not only for constants.
  GraphMessage dims;
  dims.Dim("n", 1, int64_t{1} << 40).Input("x", "f32", {"n", "n"}).Output("y", "x");
  ExpectInvalid(dims, "node \"x\" (Input): type f32[n, n] takes more than 2^63");
  GraphMessage literal = Good();
  literal.Constant("c", "u8", {int64_t{1} << 32, int64_t{1} << 32}, "");
  ExpectInvalid(literal, "node \"c\" (Constant): attribute value: type u8[4294967296, 4294967296]");
}

TEST(BadGraphTest, NegativeSizes) {
  GraphMessage m = Good();
  m.Input("n", "f32", {"-1"});
  ExpectInvalid(m, "node \"n\" (Input): axis 0 has size -1");
  GraphMessage dims = Good();
  dims.Input("n", "f32", {"b - 2"});
  ExpectInvalid(dims,
                "node \"n\" (Input): axis 0 has size b - 2, which can be -1 within the dims'");
  GraphMessage literal = Good();
  literal.Constant("c", "f32", {-4}, "");
  ExpectInvalid(literal, "node \"c\" (Constant): attribute value: axis 0 has size -4");
}

TEST(BadGraphTest, WrongByteCountsOfLiterals) {
  for (size_t size : {0, 11, 13}) {
    GraphMessage m = Good();
    m.Constant("c", "f32", {3}, std::string(size, '\0'));
    ExpectInvalid(m, "node \"c\" (Constant): attribute value: literal of type f32[3] has " +
                         std::to_string(size) + " bytes; it needs 12");
  }
  GraphMessage bools = Good();
  bools.Constant("c", "bool", {1}, "\x02");
  ExpectInvalid(bools, "bool literal holds byte 2");
}

TEST(BadGraphTest, InputsAndParametersWithoutType) {
  GraphMessage m = Good();
  NodeOf(m, "x").set_has_type(false);
  ExpectInvalid(m, "node \"x\" (Input): has no type; set dtype, shape and has_type");
  GraphMessage parameter = Good();
  NodeOf(parameter, "bias").set_has_type(false);
  ExpectInvalid(parameter, "node \"bias\" (Parameter): has no type");
}

TEST(BadGraphTest, ContentHashes) {
  GraphMessage m = Good();
  NodeOf(m, "bias").set_content_hash("short");
  ExpectInvalid(m, "node \"bias\" (Parameter): content_hash has 5 bytes; it must be the 32 bytes");
  GraphMessage other = Good();
  NodeOf(other, "y").set_content_hash(std::string(32, 'x'));
  ExpectInvalid(other, "node \"y\" (Relu): has a content_hash; only a Parameter has one");
}

TEST(BadGraphTest, ParametersOfVaryingShape) {
  GraphMessage m = Good();
  *NodeOf(m, "bias").mutable_shape(0) = ExprToProto(Expr::Symbol("b"));
  ExpectInvalid(m,
                "node \"bias\" (Parameter): axis 0 has size b; a parameter's shape must be "
                "constant");
}

TEST(BadGraphTest, StatedTypesThatContradict) {
  GraphMessage m = Good();
  m.Typed("f32", {"b", "2"});
  EXPECT_TRUE(ImportGraph(m.graph).ok());
  m.node().set_dtype("f64");
  ExpectInvalid(m,
                "node \"y\" (Relu): is stated to be f64[b, 2], but its operands and attributes "
                "give f32[b, 2]");
  m.node().set_dtype("f32");
  *m.node().mutable_shape(1) = ExprToProto(Expr::Symbol("q"));
  ExpectInvalid(m, "is stated to be f32[b, q]");
  m.node().mutable_shape()->RemoveLast();
  ExpectInvalid(m, "is stated to be f32[b]");
}

TEST(BadGraphTest, IndexMapsThatLeaveTheOperand) {
  GraphMessage m = Good();
  *(*NodeOf(m, "wide").mutable_attrs())["map"].mutable_index_map()->mutable_coordinates(0) =
      ExprToProto(Expr::Axis(1) + 1);
  ExpectInvalid(m, "node \"wide\" (IndexMap): coordinate 0, $1 + 1, is not provably inside [0, 2)");
}

TEST(BadGraphTest, NestedExpressions) {
  GraphMessage m = Good();
  v1::SizeExpr deep = ExprToProto(Expr::Symbol("b"));
  for (int i = 0; i < 20; ++i) {
    v1::SizeExpr outer;
    v1::SizeExpr::Pair* pair = outer.add_terms()->add_factors()->mutable_max();
    outer.mutable_terms(0)->set_coefficient(1);
    *pair->mutable_a() = deep;
    *pair->mutable_b() = ExprToProto(i + 2);
    deep = outer;
  }
  *NodeOf(m, "x").mutable_shape(0) = deep;
  ExpectInvalid(m, "node \"x\" (Input): shape[0]: size expression is nested deeper than 16 levels");
}

TEST(BadGraphTest, Limits) {
  ExpectInvalid(Good(), "the graph has 5 nodes; the limit is 4", {.max_nodes = 4});
  ExpectInvalid(Good(), "the graph has 1 dims; the limit is 0", {.max_dims = 0});
  ExpectInvalid(Good(), "node \"x\" (Input): shape has 2 entries, one per axis; the limit is 1",
                {.max_rank = 1});
  ExpectInvalid(Good(), "takes 512 bytes at the dims' largest sizes; the limit is 511",
                {.max_tensor_bytes = 511});
  GraphMessage literal = Good();
  literal.Constant("c", "u8", {100}, std::string(100, 'x'));
  ExpectInvalid(literal, "literal has 100 bytes; the limit is 99", {.max_attr_bytes = 99});
  EXPECT_TRUE(ImportGraph(literal.graph, {.max_attr_bytes = 100}).ok());
}

TEST(BadGraphTest, LongNames) {
  const std::string name(1025, 'n');
  GraphMessage node = Good();
  node.Node(name, "Relu", {"x"});
  ExpectInvalid(node, "is 1025 bytes long; the limit is 1024");
  GraphMessage output = Good();
  output.Output(name, "x");
  ExpectInvalid(output, "is 1025 bytes long; the limit is 1024");
  GraphMessage graph = Good();
  graph.graph.set_name(name);
  ExpectInvalid(graph, "is 1025 bytes long; the limit is 1024");
  GraphMessage text = Good();
  text.Node("g", "Gelu", {"x"}).attr("approximate").set_s(name);
  ExpectInvalid(text, "node \"g\" (Gelu): attribute approximate: text");
}

TEST(BadGraphTest, InvalidUtf8) {
  GraphMessage node = Good();
  node.Node("n\xff", "Relu", {"x"});
  ExpectInvalid(node, "is not valid UTF-8");
  GraphMessage operand = Good();
  NodeOf(operand, "y").set_inputs(0, "\xc0\x80");
  ExpectInvalid(operand, "node \"y\" (Relu): operand 0 is");
  GraphMessage op = Good();
  NodeOf(op, "y").set_op("\xed\xa0\x80");
  ExpectUnimplemented(op, "node \"y\": op ");
  GraphMessage attr = Good();
  attr.Node("g", "Gelu", {"x"}).attr("approximate").set_s("\xff");
  ExpectInvalid(attr, "is not valid UTF-8");
  GraphMessage name = Good();
  name.graph.set_name("\xff");
  ExpectInvalid(name, "is not valid UTF-8");
}

TEST(BadGraphTest, BytesThatAreNoGraph) {
  const absl::Status status = ImportGraph(std::string_view("\x0a\x05"
                                                           "ab"))
                                  .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()).find("athanor.v1.Graph: name is cut off"), 0u);
  std::string bytes = Good().graph.SerializeAsString();
  bytes[bytes.find("wide")] = '\xff';
  const absl::Status utf8 = ImportGraph(bytes).status();
  EXPECT_EQ(utf8.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(utf8.message()), "athanor.v1.Graph: nodes[2].name is not valid UTF-8");
}

}  // namespace
}  // namespace athanor
