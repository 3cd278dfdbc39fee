#include "compiler/ir/graph/text.h"

#include <bit>
#include <limits>
#include <string>

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/message.h"
#include "compiler/ir/value/text_values.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr std::string_view kEverything = R"text(graph "all \"kinds\" of\nvalues" {
  dim b in [1, 64]
  dim seq.len in [0, 9223372036854775807]
  %0 = Input "x" : f32[b, 4]
  %1 = Parameter "décalage\t\001" : f32[4]
  %2 = Constant {value=f16[6] {1.0, -0.0, 5.9604645e-08, 65504.0, -inf, nan(0x7e01)}} : f16[6]
  %3 = Constant {value=bool[2] {true, false}} : bool[2]
  %4 = Constant {value=i64[] {-9223372036854775808}} : i64[]
  %5 = Constant {value=u64[2, 0] {}} : u64[2, 0]
  %6 = Constant {value=f8e8m0[2] {5.877472e-39, nan(0xff)}} : f8e8m0[2]
  %7 = Iota {axis=0, dtype=u8, shape=shape[2*b + 3, 1]} : u8[2*b + 3, 1]
  %8 = IndexMap "grown"(%0) {fill=f32[] {-1.5}, map=map[b + 1, 4]($0 - 1, floordiv($1, 2))} : f32[b + 1, 4]
  %9 = IndexMap(%1) {map=map[b, 4]($1)} : f32[b, 4]
  %10 = SumReduce(%0) {axes=[0, 1]} : f32[]
  %11 = MaxReduce(%0) {axes=[]} : f32[b, 4]
  %12 = Attention(%0, %9, %11) {causal=true, scale=0.1} : f32[b, 4]
  %13 = RmsNorm(%0, %1) {epsilon=0.0} : f32[b, 4]
  %14 = Input "axes" {value=i64[2] {1, -1}} : i64[2]
  output "grown" = %8
  output "" = %0
}
)text";

TEST(Text, PrintsWhatItRead) {
  std::string text(kEverything);
  text.replace(text.find("output \"\""), 9, "output \"\\\"\"");
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ToText(*graph), text);
  EXPECT_EQ(graph->name, "all \"kinds\" of\nvalues");
  EXPECT_EQ(graph->nodes[1].name, std::string("d\xc3\xa9") + "calage\t\x01");
}

TEST(Text, AcceptsCommentsAnyNumbersAndLeftOutTypes) {
  const absl::StatusOr<Graph> graph = ParseGraph(
      "# by hand\ngraph \"g\"{dim b in [1,2]%7=Input \"x\":f32[ b ,3] # x\n%3=Exp(%7)\n"
      "%5 = Add ( %3 , %7 ) { } output \"y\"=%5}");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(TypeToString(graph->nodes[2].type), "f32[b, 3]");
  const absl::StatusOr<Graph> again = ParseGraph(ToText(*graph));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToText(*again), ToText(*graph));
}

void ExpectReadsBack(const Graph& graph) {
  const absl::StatusOr<Graph> again = ParseGraph(ToText(graph));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->name, graph.name);
  EXPECT_EQ(again->dims, graph.dims);
  ASSERT_EQ(again->nodes.size(), graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node &a = graph.nodes[i], &b = again->nodes[i];
    EXPECT_EQ(a.op, b.op) << i;
    EXPECT_EQ(a.inputs, b.inputs) << i;
    EXPECT_EQ(a.type, b.type) << i;
    EXPECT_EQ(a.name, b.name) << i;
    EXPECT_TRUE(a.attrs == b.attrs) << graph.Describe(static_cast<NodeId>(i));
  }
  ASSERT_EQ(again->outputs.size(), graph.outputs.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_EQ(again->outputs[i].name, graph.outputs[i].name);
    EXPECT_EQ(again->outputs[i].node, graph.outputs[i].node);
  }
}

TEST(Text, DimsReadBackUnderAnyName) {
  Graph graph;
  graph.name = "graph \"in\" {";
  Shape shape;
  for (const char* name : {"in", "dim", "graph", "output", "min", "max", "floordiv", "mod", "f32",
                           "map", "shape", "hex", "true", "nan", "inf", "_", "a.b.", "Input"}) {
    graph.dims.push_back({name, static_cast<int64_t>(graph.dims.size()), 40});
    shape = {Expr::Symbol(name), 2 * Expr::Symbol(name) + MinOf(Expr::Symbol("in"), 7)};
    GraphBuilder builder(&graph);
    ASSERT_TRUE(builder.Input(name, {DType::kF32, shape}).ok()) << name;
  }
  graph.dims.push_back({"unused", 0, std::numeric_limits<int64_t>::max()});
  GraphBuilder builder(&graph);
  builder.Output(
      "y",
      builder.Add(Op::kIota, {}, {{"dtype", DType::kF32}, {"axis", int64_t{0}}, {"shape", shape}})
          .value());
  ExpectReadsBack(graph);
}

TEST(Text, OutputsReadBackInOrder) {
  Graph graph;
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("same \"name\"\n\t\x7f\xc3\xa9#%{", {DType::kBF16, {2}}).value();
  const NodeId w = builder.Parameter("w", {DType::kBF16, {2}}).value();
  const NodeId c = builder.Constant(Tensor::Zeros(DType::kBF16, {0, 3})).value();
  const NodeId unused = builder.Add(Op::kExp, {w}, {}, "unused").value();
  builder.Output("z", unused);
  builder.Output("a", x);
  builder.Output("same \"name\"", x);
  builder.Output("\\ # %0", c);
  builder.Output("w", w);
  ExpectReadsBack(graph);
}

TEST(Text, ValuesReadBackBitForBit) {
  Graph graph;
  GraphBuilder builder(&graph);
  for (const DTypeRow& row : kDTypes) {
    // Listed and hexadecimal literals, with NaN payloads and signs, subnormals and infinities.
    for (int64_t elements : {64, 65, 1000}) {
      Tensor value = Tensor::Zeros(row.dtype, {elements, 1});
      for (size_t i = 0; i < value.bytes.size(); ++i) {
        const auto byte = static_cast<uint8_t>(i * 167 + i / 251 * 13 + elements);
        value.bytes[i] = static_cast<char>(row.dtype == DType::kBool ? byte & 1 : byte | 0x70);
      }
      if (!builder.Constant(value).ok()) continue;  // f8 constants do not compute
    }
  }
  const NodeId x = builder.Input("x", {DType::kF32, {3, 4}}).value();
  const NodeId s = builder.Parameter("s", {DType::kF32, {4}}).value();
  for (double epsilon : {0.0, 5e-324, 0.1, 1e300}) {
    builder.Output(Cat("y", epsilon),
                   builder.Add(Op::kRmsNorm, {x, s}, {{"epsilon", epsilon}}).value());
  }
  EXPECT_GT(graph.nodes.size(), 30);
  ExpectReadsBack(graph);
}

// As large as a graph from outside may hold: 256 terms and atoms, names of 256 letters.
TEST(Text, TheLargestExpressionsReadBack) {
  Graph graph;
  Expr size = 1;
  for (int d = 0; d < 60; ++d) {
    const std::string name = std::string(250, 'n') + Cat(d);
    graph.dims.push_back({name, 1, 2});
    size += 12345 * Expr::Symbol(name) * Expr::Symbol(name);
  }
  GraphBuilder builder(&graph);
  builder.Output("y", builder.Input("x", {DType::kF32, {size}}).value());
  EXPECT_GT(ToText(graph).size(), 30'000);
  ExpectReadsBack(graph);
}

TEST(Text, LargeLiteralsRoundTripAsBytes) {
  Graph graph;
  GraphBuilder builder(&graph);
  Tensor value = Tensor::Zeros(DType::kF32, {65});
  for (size_t i = 0; i < value.bytes.size(); ++i) value.bytes[i] = static_cast<char>(7 * i);
  builder.Output("y", builder.Constant(value).value());
  const absl::StatusOr<Graph> again = ParseGraph(ToText(graph));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(GetAttr<Tensor>(again->nodes[0].attrs, "value"), value);
}

TEST(Text, AttributesByThemselves) {
  const Attrs attrs = {{"axis", int64_t{1}}, {"dtype", DType::kF32}, {"spec", std::string("a,b")}};
  EXPECT_EQ(AttrsText(attrs), "axis=1, dtype=f32, spec=\"a,b\"");
  EXPECT_EQ(*ParseAttrs(AttrsText(attrs)), attrs);
  EXPECT_EQ(*ParseAttrs(" "), Attrs());
  for (const char* bad : {"axis", "axis=", "axis=1,", "axis=1 2", "axis=1, axis=2", "{axis=1}"}) {
    EXPECT_FALSE(ParseAttrs(bad).ok()) << bad;
  }
}

TEST(Text, DeclarationsByThemselves) {
  const TensorType type{DType::kF16, {Expr::Symbol("b"), 3}};
  EXPECT_EQ(DeclarationText({"x", type}), "\"x\" : f16[b, 3]");
  for (const char* name : {"x", "a\"b", "\\", "\\\"", "]", "\xc3\xa9\n"}) {
    const Declaration declaration{name, type};
    const std::string text = DeclarationText(declaration);
    EXPECT_EQ(*ParseDeclaration(text), declaration) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '"'), 2) << text;
  }
  const Declaration weight{"w", type, {{"magnitude", int64_t{20}}}};
  EXPECT_EQ(DeclarationText(weight), "\"w\" {magnitude=20} : f16[b, 3]");
  EXPECT_EQ(*ParseDeclaration(DeclarationText(weight)), weight);
  for (const char* bad : {"", "x : f32[2]", "\"x\"", "\"x\" : f32", "\"x\" : f32[2] y"}) {
    EXPECT_FALSE(ParseDeclaration(bad).ok()) << bad;
  }
}

// Tries every bit pattern of the narrow dtypes, and edge values of the wide ones.
TEST(Text, EveryElementReadsBackBitForBit) {
  for (const DTypeRow& row : kDTypes) {
    std::vector<uint64_t> patterns;
    for (uint64_t i = 0; i < (row.bytes == 1 ? 256u : 65536u); ++i) {
      patterns.push_back(i << (8 * (row.bytes - (row.bytes == 1 ? 1 : 2))));
      if (row.bytes > 2) patterns.push_back(patterns.back() | 1), patterns.push_back(i);
    }
    for (uint64_t bits : patterns) {
      if (row.dtype == DType::kBool && bits > 1) continue;
      Tensor t = Tensor::Zeros(row.dtype, {1});
      t.bytes.assign(reinterpret_cast<const char*>(&bits), row.bytes);
      const std::string text = ElementText(t, 0);
      std::string bytes;
      ASSERT_TRUE(AppendElement(row.dtype, text, &bytes)) << row.name << " " << text;
      ASSERT_EQ(bytes, t.bytes) << row.name << " " << text;
    }
  }
}

TEST(Text, RefusesElementsBeyondTheDType) {
  std::string bytes;
  EXPECT_FALSE(AppendElement(DType::kI8, "128", &bytes));
  EXPECT_TRUE(AppendElement(DType::kI8, "-128", &bytes));
  EXPECT_FALSE(AppendElement(DType::kU8, "-1", &bytes));
  EXPECT_FALSE(AppendElement(DType::kU8, "256", &bytes));
  EXPECT_FALSE(AppendElement(DType::kF16, "65520.0", &bytes));
  EXPECT_FALSE(AppendElement(DType::kF32, "1e39", &bytes));
  EXPECT_FALSE(AppendElement(DType::kF8E4M3, "inf", &bytes));
  EXPECT_FALSE(AppendElement(DType::kF32, "nan", &bytes));
  EXPECT_FALSE(AppendElement(DType::kF32, "nan(0x3f800000)", &bytes));
  EXPECT_FALSE(AppendElement(DType::kBool, "1", &bytes));
  EXPECT_FALSE(AppendElement(DType::kI32, "", &bytes));
  EXPECT_FALSE(AppendElement(DType::kI32, "1.0", &bytes));
}

TEST(Text, FloatAttributesKeepTheirBits) {
  for (double value : {0.1, -0.0, 1e300, 5e-324, std::numeric_limits<double>::infinity(),
                       std::bit_cast<double>(0x7ff8000000000123)}) {
    const auto bits = std::bit_cast<uint64_t>(value);
    EXPECT_EQ(ParseFloat(DType::kF64, FloatText(DType::kF64, bits)), bits) << value;
  }
}

struct BadText {
  std::string_view text, message;
};

TEST(Text, NamesTheLineOfAnError) {
  constexpr std::string_view kHead =
      "graph \"g\" {\n dim b in [1, 4]\n %0 = Input \"x\" : f32[b]\n";
  const BadText cases[] = {
      {"%1 = Frob(%0)\n", "line 4: op \"Frob\" is not in the op table"},
      {"%1 = Exp(%2)\n", "line 4: %2 is used before it is defined"},
      {"%0 = Exp(%0)\n", "line 4: %0 is defined twice"},
      {"%1 = Exp(%0) : f32[b, 1]\n", "line 4: %1 (Exp) is stated as f32[b, 1]"},
      {"%1 = Exp(%0) : f33[b]\n", "line 4: \"f33\" is not a dtype"},
      {"%1 = Exp \"x\"(%0)\n", "line 4: \"x\" (Exp): another node is already named \"x\""},
      {"%1 = Exp \"x(%0)\n", "line 4: the node's name has no closing quote"},
      {"%1 = Exp \"\\q\"(%0)\n", "line 4: the node's name: "},
      {"%1 = Exp(%0\n", "line 5: expected ')'"},
      {"%1 = Sum(%0) {axes=[0}\n", "op \"Sum\""},
      {"%1 = SumReduce(%0) {axes=[0}\n", "line 4: expected ']', found \"}\""},
      {"%1 = SumReduce(%0) {axes=[99999999999999999999]}\n", "line 4: expected an integer"},
      {"%1 = SumReduce(%0) {axes=[0], axes=[0]}\n", "line 4: attribute axes is given twice"},
      {"%1 = SumReduce(%0) {axes=what}\n", "line 4: \"what\" is not an attribute's value"},
      {"%1 = Iota {shape=shape[b +]}\n", "line 4: expression: expected"},
      {"%1 = Constant {value=f32[1] {hex \"0\"}}\n", "line 4: expected two hexadecimal digits"},
      {"%1 = Constant {value=u8[1] {300}}\n", "line 4: \"300\" is not a value of dtype u8"},
      {"dim c in [1, 2]\n", "line 4: expected a node"},
      {"output \"y\" = %9\n", "line 4: %9 is used before it is defined"},
      {"output \"y\" = %0\n output \"y\" = %0\n", "output \"y\" is there twice"},
      {"", "no outputs"},
  };
  for (const BadText& bad : cases) {
    const absl::StatusOr<Graph> graph = ParseGraph(Cat(kHead, " ", bad.text, "}"));
    ASSERT_FALSE(graph.ok()) << bad.text;
    EXPECT_NE(std::string(graph.status().message()).find(bad.message), std::string::npos)
        << bad.text << graph.status();
  }
  for (std::string_view text :
       {"", "graph", "graph \"g\"", "graph \"g\" {", "graph \"g\" {} x",
        "graph \"g\" { dim b in [2, 1] }", "graph \"g\" { dim b in [1] }"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseGraph(text).status())) << text;
  }
}

}  // namespace
}  // namespace athanor
