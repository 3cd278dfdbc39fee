// Tests that handlers_oracle_test does not cover: edge cases of versions, types and dims, refusals.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Attributes = std::map<std::string, TestAttr>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Operand {
  Elem elem;
  std::vector<TestSize> shape;
};

TestModel NodeOf(const std::string& op, int64_t opset, const std::vector<Operand>& operands,
                 const Attributes& attrs, int results = 1, Elem result = Elem::kFloat) {
  TestModel m(opset);
  std::vector<std::string> names, outputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    names.push_back("x" + std::to_string(i));
    m.Input(names.back(), operands[i].elem, operands[i].shape);
  }
  for (int i = 0; i < results; ++i) outputs.push_back("y" + std::to_string(i));
  m.Node(op, names, outputs, attrs);
  for (int i = 0; i < results; ++i) m.Output(outputs[i], i == 0 ? result : Elem::kInt64);
  return m;
}

std::vector<double> Numbers(const absl::StatusOr<std::vector<Tensor>>& results, size_t which = 0) {
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() && which < results->size() ? ValuesOf((*results)[which])
                                                 : std::vector<double>();
}

void ExpectRefused(const TestModel& m, const std::string& part, const ImportOptions& options = {}) {
  const TestImport import = ImportBytes(m.Bytes(), options);
  EXPECT_FALSE(import.status.ok()) << part;
  EXPECT_NE(std::string(import.status.message()).find(part), std::string::npos)
      << import.status << "\nlacks " << part;
}

TEST(HandlersWindowTest, SizesOfAConvolutionFollowDims) {
  TestModel m =
      NodeOf("Conv", 11, {{Elem::kFloat, {"n", 1, "h", "w"}}, {Elem::kFloat, {1, 1, 3, 3}}},
             {{"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}});
  ImportOptions options;
  options.dims = {{.name = "n", .min = 0, .max = 4},
                  {.name = "h", .min = 1, .max = 9},
                  {.name = "w", .min = 1, .max = 9}};
  const TestImport import = ImportBytes(m.Bytes(), options);
  ASSERT_TRUE(import.status.ok()) << import.status;
  const Graph& graph = import.imported.graph;
  EXPECT_EQ(ShapeToString(graph.node(graph.outputs[0].node).type.shape),
            "[n, 1, floordiv(h + 1, 2), floordiv(w + 1, 2)]");
  const Tensor ones = Of(DType::kF32, {1, 1, 3, 3}, std::vector<double>(9, 1));
  EXPECT_EQ(Numbers(Evaluate(import, {Of(DType::kF32, {1, 1, 1, 2}, {3, 4}), ones})),
            (std::vector<double>{7}));
  EXPECT_EQ(Numbers(Evaluate(import, {Of(DType::kF32, {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}), ones})),
            (std::vector<double>{12, 16}));
  EXPECT_TRUE(Numbers(Evaluate(import, {Tensor::Zeros(DType::kF32, {0, 1, 5, 5}), ones})).empty());
}

TEST(HandlersWindowTest, WindowsThatDoNotFit) {
  const std::vector<Operand> operands = {{Elem::kFloat, {1, 2, "h"}}, {Elem::kFloat, {3, 2, 5}}};
  ImportOptions small, large;
  small.dims = {{.name = "h", .min = 1, .max = 9}};
  large.dims = {{.name = "h", .min = 5, .max = 9}};
  ExpectRefused(NodeOf("Conv", 11, operands, {}), "must not be negative", small);
  EXPECT_TRUE(ImportBytes(NodeOf("Conv", 11, operands, {}).Bytes(), large).status.ok());
  ExpectRefused(NodeOf("Conv", 11, {{Elem::kFloat, {1, 2, 4}}, {Elem::kFloat, {3, 2, 5}}}, {}),
                "has 4 elements, 4 with its padding, and a window reaches over 5");
}

TEST(HandlersWindowTest, ConvolutionsThatAreNone) {
  const auto conv = [](std::vector<TestSize> x, std::vector<TestSize> w, Attributes attrs = {}) {
    return NodeOf("Conv", 11, {{Elem::kFloat, x}, {Elem::kFloat, w}}, attrs);
  };
  ExpectRefused(conv({1, 4, 9}, {3, 2, 3}), "x has 4 channels (axis 1), w takes 2");
  ExpectRefused(conv({1, 4, 9}, {3, 2, 3}, {{"group", 2}}), "group=2 does not provably divide");
  ExpectRefused(conv({1, 4, 9}, {3, 4, 3}, {{"group", 0}}), "attribute group is 0");
  ExpectRefused(conv({1, 4}, {3, 4}), "it needs the axes [N, C]");
  ExpectRefused(conv({1, 4, 9}, {3, 4, 3, 3}), "their ranks must be equal");
  ExpectRefused(conv({1, 4, 9}, {3, 4, 3}, {{"kernel_shape", Ints{2}}}), "attribute kernel_shape");
  ExpectRefused(conv({1, 4, 9}, {3, 4, 3}, {{"pads", Ints{1}}}), "attribute pads holds 1 values");
  ExpectRefused(conv({1, 4, 9}, {3, 4, 3}, {{"auto_pad", std::string("SAME")}}), "SAME_UPPER");
  ExpectRefused(
      NodeOf("Conv", 11,
             {{Elem::kFloat, {1, 4, 9}}, {Elem::kFloat, {3, 4, 3}}, {Elem::kFloat, {4}}}, {}),
      "B has shape [4]; it must be [3]");
  ExpectRefused(
      NodeOf("ConvTranspose", 11, {{Elem::kFloat, {1, 4, 9}}, {Elem::kFloat, {3, 4, 3}}}, {}),
      "W must be [C, M/group, ...] of constant sizes");
}

TEST(HandlersWindowTest, ATransposedConvolutionOfDims) {
  TestModel m =
      NodeOf("ConvTranspose", 11, {{Elem::kFloat, {1, 1, "w"}}, {Elem::kFloat, {1, 1, 3}}},
             {{"strides", Ints{2}}, {"output_padding", Ints{1}}, {"pads", Ints{1, 1}}});
  ImportOptions options;
  options.dims = {{.name = "w", .min = 1, .max = 9}};
  const TestImport import = ImportBytes(m.Bytes(), options);
  ASSERT_TRUE(import.status.ok()) << import.status;
  const Graph& graph = import.imported.graph;
  EXPECT_EQ(ShapeToString(graph.node(graph.outputs[0].node).type.shape), "[1, 1, 2*w]");
  const Tensor w = Of(DType::kF32, {1, 1, 3}, {1, 10, 100});
  EXPECT_EQ(Numbers(Evaluate(import, {Of(DType::kF32, {1, 1, 2}, {1, 2}), w})),
            (std::vector<double>{10, 102, 20, 200}));
}

// Multiplies each element of x by each tap of its group's kernels and adds the products at their
// positions.
TEST(HandlersWindowTest, ATransposedConvolutionOfGroupsAndStrides) {
  constexpr int kGroup = 2, kMaps = 3, kH = 3, kW = 4, kKh = 4, kKw = 2, kSh = 2, kSw = 3;
  constexpr int kOutH = (kH - 1) * kSh + kKh - 1 + 1, kOutW = (kW - 1) * kSw + kKw - 2;
  std::vector<double> x, w, y(kGroup * kMaps * kOutH * kOutW);
  for (int i = 0; i < kGroup * kH * kW; ++i) x.push_back(i % 7 - 3);
  for (int i = 0; i < kGroup * kMaps * kKh * kKw; ++i) w.push_back(i % 11 - 5);
  for (int g = 0; g < kGroup; ++g) {
    for (int i = 0; i < kMaps * kH * kW * kKh * kKw; ++i) {
      const int m = i / (kH * kW * kKh * kKw), v = i % kW, u = i / kW % kH;
      const int b = i / (kH * kW) % kKw, a = i / (kH * kW * kKw) % kKh;
      const int p = u * kSh + a - 1, q = v * kSw + b - 2;
      if (p < 0 || p >= kOutH || q < 0 || q >= kOutW) continue;
      y[((g * kMaps + m) * kOutH + p) * kOutW + q] +=
          x[(g * kH + u) * kW + v] * w[((g * kMaps + m) * kKh + a) * kKw + b];
    }
  }
  TestModel m =
      NodeOf("ConvTranspose", 11,
             {{Elem::kFloat, {1, kGroup, kH, kW}}, {Elem::kFloat, {kGroup, kMaps, kKh, kKw}}},
             {{"strides", Ints{kSh, kSw}},
              {"group", kGroup},
              {"pads", Ints{1, 2, 0, 0}},
              {"output_padding", Ints{1, 0}}});
  EXPECT_EQ(Numbers(RunModel(m, {Of(DType::kF32, {1, kGroup, kH, kW}, x),
                                 Of(DType::kF32, {kGroup, kMaps, kKh, kKw}, w)})),
            y);
}

TEST(HandlersWindowTest, PositionsOfMaxima) {
  const auto run = [](const std::vector<double>& x, Elem elem = Elem::kFloat) {
    const auto size = static_cast<int64_t>(x.size());
    return RunModel(NodeOf("MaxPool", 12, {{elem, {1, 1, size}}},
                           {{"kernel_shape", Ints{2}}, {"pads", Ints{1, 1}}}, 2, elem),
                    {Of(CarrierOf(elem), {1, 1, size}, x)});
  };
  EXPECT_EQ(Numbers(run({3, 3, 1, 5}), 1),
            (std::vector<double>{0, 0, 1, 3, 3}));  // the first of equal ones
  const auto nan = run({1, kNan, kNan, 2});
  EXPECT_TRUE(std::isnan(Numbers(nan)[1]));
  EXPECT_EQ(Numbers(nan, 1), (std::vector<double>{0, 1, 1, 2, 3}));
  const double lowest = -std::numeric_limits<double>::infinity();
  // Never a position in the padding.
  EXPECT_EQ(Numbers(run({lowest, lowest}), 1), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(Numbers(run({-128, -128}, Elem::kInt8), 1), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(Numbers(run({0, 200, 7}, Elem::kUInt8)), (std::vector<double>{0, 200, 200, 7}));
}

// Before opset 7 there is no count_include_pad. With it, positions that only a larger result adds
// never count.
TEST(HandlersWindowTest, MeansAtTheEdges) {
  const Attributes attrs = {{"kernel_shape", Ints{3}}, {"strides", Ints{2}}, {"pads", Ints{1, 1}}};
  const Tensor x = Of(DType::kF32, {1, 1, 4}, {2, 4, 6, 8});
  EXPECT_EQ(Numbers(RunModel(NodeOf("AveragePool", 6, {{Elem::kFloat, {1, 1, 4}}}, attrs), {x})),
            (std::vector<double>{3, 6}));
  Attributes counting = attrs;
  counting["count_include_pad"] = 1;
  EXPECT_EQ(Numbers(RunModel(NodeOf("AveragePool", 7, {{Elem::kFloat, {1, 1, 4}}}, counting), {x})),
            (std::vector<double>{2, 6}));
  counting["ceil_mode"] = 1;
  EXPECT_EQ(
      Numbers(RunModel(NodeOf("AveragePool", 10, {{Elem::kFloat, {1, 1, 4}}}, counting), {x})),
      (std::vector<double>{2, 6, 4}));  // mean of 8 and the padding
}

TEST(HandlersWindowTest, PowersOfLowPrecisionAreSummedInF32) {
  const Tensor x = Of(DType::kF16, {1, 1, 3}, {300, 400, 0});  // their squares exceed f16
  for (const char* op : {"GlobalLpPool", "LpPool"}) {
    const Attributes attrs =
        std::string(op) == "LpPool" ? Attributes{{"kernel_shape", Ints{3}}} : Attributes{};
    EXPECT_EQ(Numbers(RunModel(
                  NodeOf(op, 22, {{Elem::kFloat16, {1, 1, 3}}}, attrs, 1, Elem::kFloat16), {x})),
              (std::vector<double>{500}))
        << op;
  }
  ExpectRefused(
      NodeOf("LpPool", 22, {{Elem::kFloat, {1, 1, 3}}}, {{"kernel_shape", Ints{3}}, {"p", 0}}),
      "attribute p is 0");
}

// Positions exactly on elements give a convolution, those between give means, those outside give 0.
TEST(HandlersWindowTest, DeformedConvolution) {
  const auto run = [](const std::vector<double>& offset, const std::vector<double>& mask) {
    TestModel m = NodeOf("DeformConv", 19,
                         {{Elem::kFloat, {1, 1, 2, 3}},
                          {Elem::kFloat, {1, 1, 1, 2}},
                          {Elem::kFloat, {1, 4, 2, 2}},
                          {Elem::kFloat, {1}},
                          {Elem::kFloat, {1, 2, 2, 2}}},
                         {});
    return Numbers(
        RunModel(m, {Of(DType::kF32, {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}),
                     Of(DType::kF32, {1, 1, 1, 2}, {1, 10}), Of(DType::kF32, {1, 4, 2, 2}, offset),
                     Of(DType::kF32, {1}, {100}), Of(DType::kF32, {1, 2, 2, 2}, mask)}));
  };
  const std::vector<double> ones(8, 1), none(16, 0);
  EXPECT_EQ(run(none, ones), (std::vector<double>{121, 132, 154, 165}));
  std::vector<double> offset = none;
  offset[0] = 0.5;     // row offset of the first tap at the first position: between 1 and 4
  offset[4 + 3] = -9;  // column offset of the last tap at the last position: outside
  EXPECT_EQ(run(offset, ones), (std::vector<double>{122.5, 132, 154, 160}));
  std::vector<double> mask = ones;
  mask[4] = 0.5;  // the second tap at the first position
  EXPECT_EQ(run(none, mask), (std::vector<double>{111, 132, 154, 165}));
}

TEST(HandlersWindowTest, AStateBeforeAConvolution) {
  TestModel m(27);
  m.Input("x", Elem::kFloat, {1, 2, "l"}).Input("w", Elem::kFloat, {2, 1, 3});
  m.Input("s", Elem::kFloat, {1, 2, 2});
  m.Node("CausalConvWithState", {"x", "w"}, {"y", "next"});
  m.Node("CausalConvWithState", {"x", "w", "", "s"}, {"z", "after"});
  for (const char* name : {"y", "next", "z", "after"}) m.Output(name, Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "l", .min = 1, .max = 8}};
  const auto got = RunModel(
      m,
      {Of(DType::kF32, {1, 2, 1}, {1, 3}), Of(DType::kF32, {2, 1, 3}, {100, 10, 1, 1, 2, 3}),
       Of(DType::kF32, {1, 2, 2}, {5, 6, 7, 8})},
      options);
  EXPECT_EQ(Numbers(got, 0), (std::vector<double>{1, 9}));
  EXPECT_EQ(Numbers(got, 1), (std::vector<double>{0, 1, 0, 3}));
  EXPECT_EQ(Numbers(got, 2), (std::vector<double>{561, 32}));
  EXPECT_EQ(Numbers(got, 3), (std::vector<double>{6, 1, 8, 3}));
}

TEST(HandlersWindowTest, MaximaGoBack) {
  TestModel m(11);
  m.Input("x", Elem::kFloat, {1, 1, 2}).Input("i", Elem::kInt64, {1, 1, 2});
  m.Initializer("shape", Of(DType::kI64, {3}, {1, 1, 6}));
  m.Node("MaxUnpool", {"x", "i", "shape"}, {"y"},
         {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}});
  m.Output("y", Elem::kFloat);
  const Tensor x = Of(DType::kF32, {1, 1, 2}, {7, 8}), at = Of(DType::kI64, {1, 1, 2}, {1, 2});
  EXPECT_EQ(Numbers(RunModel(m, {x, at})), (std::vector<double>{0, 7, 8, 0, 0, 0}));
  TestModel smaller(11);
  smaller.Input("x", Elem::kFloat, {1, 1, 2}).Input("i", Elem::kInt64, {1, 1, 2});
  smaller.Initializer("shape", Of(DType::kI64, {3}, {1, 1, 3}));
  smaller.Node("MaxUnpool", {"x", "i", "shape"}, {"y"},
               {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}});
  smaller.Output("y", Elem::kFloat);
  ExpectRefused(smaller, "output_shape is [1, 1, 3]");
}

}  // namespace
}  // namespace athanor::onnx
