#include <algorithm>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"
#include "compiler/frontend/onnx/testing/node_testing.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
using List = std::vector<int64_t>;

bool Says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST(HandlersMovementTest, ReshapeCopiesAndInfers) {
  const Tensor x = Count(DType::kF32, {2, 3, 4});
  const auto to = [&](const Values& shape) {
    return OneNode("Reshape", 14).In(x, {"b", 3, 4}).Fixed(Ints(shape)).Result().shape;
  };
  EXPECT_EQ(to({0, -1}), (List{2, 12}));
  EXPECT_EQ(to({-1, 4}), (List{6, 4}));
  EXPECT_EQ(to({0, 0, 2, 2}), (List{2, 3, 2, 2}));
  const Tensor none = Tensor::Zeros(DType::kF32, {0, 3});
  EXPECT_EQ(OneNode("Reshape", 14).In(none).Fixed(Ints({3, 0})).Attr("allowzero", 1).Result().shape,
            (List{3, 0}));
  EXPECT_TRUE(Says(OneNode("Reshape", 14).In(none).Fixed(Ints({0, -1})).Error(),
                   "the size of -1 is undefined"));
  EXPECT_TRUE(Says(OneNode("Reshape", 14).In(x).Fixed(Ints({-1, -1})).Error(), "twice"));
  EXPECT_TRUE(Says(OneNode("Reshape", 14).In(x).Fixed(Ints({5, -1})).Error(), "do not divide"));
  EXPECT_TRUE(Says(OneNode("Reshape", 14).In(x).Fixed(Ints({2, 3, 4, 0})).Error(), "copies"));
  EXPECT_TRUE(Says(OneNode("Reshape", 14).In(x).Fixed(Ints({-2, 12})).Error(), "negative"));
  EXPECT_TRUE(Says(OneNode("Reshape", 14).In(x).In(Ints({24})).Error(), "values={\"x1\""));
}

TEST(HandlersMovementTest, ReshapeByComputedSizes) {
  const Tensor x = Count(DType::kF32, {2, 5, 6}), like = Count(DType::kF32, {2, 5, 3, 2});
  TestModel m(17);
  m.Input("x", Elem::kFloat, {"b", "s", 6}).Initializer("two", Ints({2}));
  m.Initializer("rest", Ints({3, -1})).Initializer("from", Ints({0}));
  m.Node("Shape", {"x"}, {"shape"}).Node("Slice", {"shape", "from", "two"}, {"head"});
  m.Node("Concat", {"head", "rest"}, {"to"}, {{"axis", int64_t{0}}});
  m.Node("Reshape", {"x", "to"}, {"y"}).Output("y", Elem::kFloat);
  ImportOptions options;
  for (const char* name : {"b", "s"}) options.dims.push_back({.name = name, .min = 1, .max = 8});
  EXPECT_EQ(RunModel(m, {x}, options).value()[0], like);
}

TEST(HandlersMovementTest, AxesByAttributeAndByOperand) {
  const Tensor x = Count(DType::kI64, {1, 2, 1});
  EXPECT_EQ(OneNode("Squeeze", 6).In(x).Attr("axes", List{2}).Result().shape, (List{1, 2}));
  EXPECT_EQ(OneNode("Squeeze", 11).In(x).Result().shape, (List{2}));
  EXPECT_EQ(OneNode("Squeeze", 13).In(x).Fixed(Ints({-3})).Result().shape, (List{2, 1}));
  EXPECT_EQ(OneNode("Unsqueeze", 6).In(x).Attr("axes", List{0, 4}).Result().shape,
            (List{1, 1, 2, 1, 1}));
  EXPECT_EQ(OneNode("Unsqueeze", 13).In(x).Fixed(Ints({-1})).Result().shape, (List{1, 2, 1, 1}));
  EXPECT_TRUE(Says(OneNode("Squeeze", 13).In(x, {"b", 2, 1}).Error(), "may or may not be 1"));
  EXPECT_TRUE(Says(OneNode("Squeeze", 13).In(x).Fixed(Ints({1})).Error(), "must be 1"));
  EXPECT_EQ(OneNode("Flatten", 13).In(x).Attr("axis", int64_t{-1}).Result().shape, (List{2, 1}));
  EXPECT_EQ(OneNode("Flatten", 13).In(x).Attr("axis", int64_t{0}).Result().shape, (List{1, 2}));
  EXPECT_EQ(OneNode("Transpose", 13).In(Count(DType::kI64, {2, 3})).Result(),
            Of(DType::kI64, {3, 2}, {0, 3, 1, 4, 2, 5}));
}

// Computes numpy's slice element by element.
Values Sliced(int64_t size, int64_t start, int64_t end, int64_t step) {
  if (start < 0) start += size;
  if (end < 0) end = end < -size ? -1 - (step > 0) : end + size;
  start = std::clamp<int64_t>(start, 0, step > 0 ? size : size - 1);
  end = std::clamp<int64_t>(end, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
  Values values;
  for (int64_t i = start; step > 0 ? i < end : i > end; i += step) {
    values.push_back(static_cast<double>(i));
  }
  return values;
}

TEST(HandlersMovementTest, SliceClampsAndCountsFromTheEnd) {
  const Tensor x = Count(DType::kF32, {7});
  for (const int64_t step :
       {int64_t{1}, int64_t{3}, int64_t{-1}, int64_t{-2}, INT64_MAX, INT64_MIN}) {
    for (const int64_t start : {int64_t{0}, int64_t{2}, int64_t{-1}, int64_t{6}, int64_t{9}}) {
      for (const int64_t end : {int64_t{0}, int64_t{4}, int64_t{-2}, INT64_MAX, INT64_MIN}) {
        for (const bool dim : {false, true}) {
          SCOPED_TRACE(Cat(start, " to ", end, " by ", step, dim ? " of a dim" : ""));
          OneNode t("Slice", 13);
          t.Least(3).In(x, {dim ? TestSize("n") : TestSize(7)});
          for (const int64_t number : {start, end, int64_t{0}, step}) {
            t.Fixed(Tensor::Of<int64_t>(DType::kI64, {1}, {number}));
          }
          const int64_t near = std::clamp<int64_t>(step, -100, 100);
          EXPECT_EQ(ValuesOf(t.Result()), Sliced(7, start, end, near));
        }
      }
    }
  }
}

TEST(HandlersMovementTest, NothingIsSlicedFromAnEmptyAxis) {
  const Tensor none = Tensor::Zeros(DType::kF32, {0});
  for (const int64_t start : {int64_t{-1}, int64_t{0}, int64_t{5}, INT64_MAX, INT64_MIN}) {
    for (const bool dim : {false, true}) {
      SCOPED_TRACE(Cat("from ", start, dim ? " of a dim" : ""));
      OneNode t("Slice", 13);
      t.Least(0).In(none, {dim ? TestSize("n") : TestSize(0)});
      for (const int64_t number : {start, INT64_MIN, int64_t{0}, int64_t{-1}}) {
        t.Fixed(Tensor::Of<int64_t>(DType::kI64, {1}, {number}));
      }
      EXPECT_EQ(t.Result().shape, (List{0}));
    }
  }
}

TEST(HandlersMovementTest, SliceByAttributesAndByDims) {
  const Tensor x = Count(DType::kF32, {3, 4});
  EXPECT_EQ(
      OneNode("Slice", 9).In(x).Attr("starts", List{1, -3}).Attr("ends", List{1000, -1}).Result(),
      Of(DType::kF32, {2, 2}, {5, 6, 9, 10}));
  EXPECT_TRUE(Says(OneNode("Slice", 13).In(x).In(Ints({0})).Fixed(Ints({1})).Error(), "starts"));
  EXPECT_TRUE(Says(OneNode("Slice", 13)
                       .In(x)
                       .Fixed(Ints({0}))
                       .Fixed(Ints({1}))
                       .Fixed(Ints({0}))
                       .Fixed(Ints({0}))
                       .Error(),
                   "0"));
}

TEST(HandlersMovementTest, SplitInEveryForm) {
  const Tensor x = Count(DType::kF32, {2, 7});
  const auto shapes = [&](OneNode t, int results) {
    std::vector<List> shapes;
    for (int i = 0; i < results; ++i) t.Out(Elem::kFloat);
    for (const Tensor& y : t.Results()) shapes.push_back(y.shape);
    return shapes;
  };
  using Lists = std::vector<List>;
  EXPECT_EQ(shapes(OneNode("Split", 6).In(x).Attr("axis", int64_t{1}).Attr("split", List{3, 4}), 2),
            (Lists{{2, 3}, {2, 4}}));
  EXPECT_EQ(shapes(OneNode("Split", 13).In(x), 2), (Lists{{1, 7}, {1, 7}}));
  EXPECT_EQ(shapes(OneNode("Split", 13).In(x).Fixed(Ints({0, 2, 0})), 3),
            (Lists{{0, 7}, {2, 7}, {0, 7}}));
  EXPECT_EQ(shapes(OneNode("Split", 18)
                       .In(x, {2, "n"})
                       .Attr("axis", int64_t{-1})
                       .Attr("num_outputs", int64_t{2}),
                   2),
            (Lists{{2, 4}, {2, 3}}));
  EXPECT_TRUE(Says(OneNode("Split", 13)
                       .In(x)
                       .Attr("axis", int64_t{1})
                       .Out(Elem::kFloat)
                       .Out(Elem::kFloat)
                       .Run()
                       .status()
                       .ToString(),
                   "does not divide into 2 equal parts"));
  EXPECT_TRUE(Says(OneNode("Split", 13).In(x).Fixed(Ints({3})).Error(), "sizes sum to 3"));
  EXPECT_TRUE(Says(OneNode("Split", 18).In(x).Error(), "neither"));
  EXPECT_TRUE(
      Says(OneNode("Split", 18).In(x).Attr("num_outputs", INT64_MAX).Error(), "equally many"));
}

TEST(HandlersMovementTest, APartThatIsLeftOutIsOneOfThem) {
  const Tensor x = Of(DType::kF32, {4}, {1, 2, 3, 4});
  for (int64_t opset : {6, 13}) {
    EXPECT_EQ(OneNode("Split", opset).In(x).Out(Elem::kFloat).Unwanted().Result(),
              Of(DType::kF32, {2}, {1, 2}));
  }
  EXPECT_EQ(OneNode("Split", 13).In(x).Fixed(Ints({1, 3})).Out(Elem::kFloat).Unwanted().Result(),
            Of(DType::kF32, {1}, {1}));
  EXPECT_TRUE(
      Says(OneNode("Split", 13).In(x).Fixed(Ints({1, 3})).Error(), "it has 1 results and 2 sizes"));
}

TEST(HandlersMovementTest, ExpandAndTile) {
  const Tensor x = Count(DType::kI32, {3, 1});
  EXPECT_EQ(OneNode("Expand", 8).In(x).Fixed(Ints({2, 1, 2})).Result().shape, (List{2, 3, 2}));
  EXPECT_EQ(OneNode("Expand", 8).In(x, {"n", 1}).ShapeOfFirst().Result(), x);
  EXPECT_EQ(OneNode("Tile", 6).In(x, {"n", 1}).Fixed(Ints({2, 2})).Result(),
            Of(DType::kI32, {6, 2}, {0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(OneNode("Tile", 6).In(x).Fixed(Ints({0, 1})).Result().shape, (List{0, 1}));
  EXPECT_TRUE(Says(OneNode("Tile", 6).In(x).Fixed(Ints({2})).Error(), "each axis needs one"));
}

TEST(HandlersMovementTest, PadInEveryMode) {
  const Tensor x = Of(DType::kF32, {3}, {1, 2, 3});
  const auto pad = [&](std::string mode, double before, double after, bool dim) {
    return ValuesOf(OneNode("Pad", 19)
                        .In(x, {dim ? TestSize("n") : TestSize(3)})
                        .Fixed(Ints({before, after}))
                        .Attr("mode", std::move(mode))
                        .Result());
  };
  for (const bool dim : {false, true}) {
    EXPECT_EQ(pad("constant", 1, 2, dim), (Values{0, 1, 2, 3, 0, 0}));
    EXPECT_EQ(pad("edge", 2, 1, dim), (Values{1, 1, 1, 2, 3, 3}));
    EXPECT_EQ(pad("reflect", 2, 5, dim), (Values{3, 2, 1, 2, 3, 2, 1, 2, 3, 2}));
    EXPECT_EQ(pad("wrap", 4, 1, dim), (Values{3, 1, 2, 3, 1, 2, 3, 1}));
  }
  EXPECT_EQ(pad("constant", -1, 1, false), (Values{2, 3, 0}));
  EXPECT_EQ(pad("edge", -1, 2, false), (Values{2, 3, 3, 3}));
  EXPECT_TRUE(Says(OneNode("Pad", 19)
                       .Least(0)
                       .In(Count(DType::kF32, {4}), {"n"})
                       .Fixed(Ints({1, 1}))
                       .Attr("mode", std::string("wrap"))
                       .Error(),
                   "has no element to repeat"));
  EXPECT_EQ(pad("reflect", 2, -1, false), (Values{1, 2, 1, 2}));
  EXPECT_EQ(ValuesOf(OneNode("Pad", 19)
                         .In(Of(DType::kF32, {1}, {7}))
                         .Fixed(Ints({2, 1}))
                         .Attr("mode", std::string("reflect"))
                         .Result()),
            (Values{7, 7, 7, 7}));
}

TEST(HandlersMovementTest, PadVersions) {
  const Tensor x = Of(DType::kF32, {1, 2}, {1, 2});
  EXPECT_EQ(OneNode("Pad", 6).In(x).Attr("pads", List{0, 1, 1, 0}).Attr("value", 9.0f).Result(),
            Of(DType::kF32, {2, 3}, {9, 1, 2, 9, 9, 9}));
  // The pad value may come with the request, and axes may be selected.
  EXPECT_EQ(OneNode("Pad", 18)
                .In(x)
                .Fixed(Ints({1, 0}))
                .In(Of(DType::kF32, {1}, {5}))
                .Fixed(Ints({-1}))
                .Result(),
            Of(DType::kF32, {1, 3}, {5, 1, 2}));
  EXPECT_TRUE(Says(
      OneNode("Pad", 18).In(x).Fixed(Ints({0, 0, 0, 0})).Attr("mode", std::string("wrap")).Error(),
      "\"wrap\""));
  EXPECT_TRUE(Says(OneNode("Pad", 18).In(x).Fixed(Ints({0, -3, 0, 0})).Error(), "negative size"));
  EXPECT_TRUE(Says(OneNode("Pad", 18).In(x).In(Ints({0, 0, 0, 0})).Error(), "its pads"));
}

TEST(HandlersMovementTest, BlocksAndDepth) {
  const Tensor x = Count(DType::kF32, {1, 8, 1, 1});
  EXPECT_EQ(OneNode("DepthToSpace", 13).In(x).Attr("blocksize", int64_t{2}).Result(),
            Of(DType::kF32, {1, 2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7}));
  const Tensor columns = OneNode("DepthToSpace", 13)
                             .In(x)
                             .Attr("blocksize", int64_t{2})
                             .Attr("mode", std::string("CRD"))
                             .Result();
  EXPECT_EQ(columns, Count(DType::kF32, {1, 2, 2, 2}));
  EXPECT_EQ(OneNode("SpaceToDepth", 13).In(columns).Attr("blocksize", int64_t{2}).Result(),
            Of(DType::kF32, {1, 8, 1, 1}, {0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(OneNode("SpaceToDepth", 28)
                .In(columns)
                .Attr("blocksize", int64_t{2})
                .Attr("mode", std::string("CRD"))
                .Result(),
            x);
  EXPECT_TRUE(Says(OneNode("SpaceToDepth", 13).In(x).Attr("blocksize", int64_t{2}).Error(),
                   "does not divide by 2"));
}

TEST(HandlersMovementTest, CenterCropPad) {
  const Tensor x = Count(DType::kF32, {5});
  const auto to = [&](double size, bool dim) {
    return ValuesOf(OneNode("CenterCropPad", 18)
                        .In(x, {dim ? TestSize("n") : TestSize(5)})
                        .Fixed(Ints({size}))
                        .Result());
  };
  for (const bool dim : {false, true}) {
    EXPECT_EQ(to(2, dim), (Values{1, 2}));
    EXPECT_EQ(to(4, dim), (Values{0, 1, 2, 3}));
    EXPECT_EQ(to(8, dim), (Values{0, 0, 1, 2, 3, 4, 0, 0}));
    EXPECT_EQ(to(5, dim), (Values{0, 1, 2, 3, 4}));
  }
}

TEST(HandlersMovementTest, TriluByDataAndByDefault) {
  const Tensor x = Of(DType::kI8, {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(ValuesOf(OneNode("Trilu", 14).In(x, {"n", "n"}).Result()),
            (Values{1, 2, 3, 0, 5, 6, 0, 0, 9}));
  const Tensor k = Of(DType::kI64, {}, {1});
  EXPECT_EQ(ValuesOf(OneNode("Trilu", 14).In(x).In(k).Result()),
            (Values{0, 2, 3, 0, 0, 6, 0, 0, 0}));
  EXPECT_EQ(ValuesOf(OneNode("Trilu", 14).In(x).In(k).Attr("upper", int64_t{0}).Result()),
            (Values{1, 2, 0, 4, 5, 6, 7, 8, 9}));
}

TEST(HandlersMovementTest, ReverseSequence) {
  const Tensor x = Count(DType::kF32, {3, 2});
  const Tensor lengths = Ints({3, 1});
  EXPECT_EQ(ValuesOf(OneNode("ReverseSequence", 10).In(x, {"t", "b"}).In(lengths, {"b"}).Result()),
            (Values{4, 1, 2, 3, 0, 5}));
  const Tensor y = OneNode("ReverseSequence", 10)
                       .In(x)
                       .In(Ints({2, 0, 1}))
                       .Attr("time_axis", int64_t{1})
                       .Attr("batch_axis", int64_t{0})
                       .Result();
  EXPECT_EQ(ValuesOf(y), (Values{1, 0, 2, 3, 4, 5}));
  EXPECT_FALSE(OneNode("ReverseSequence", 10).In(x).In(Ints({4, 1})).Out(Elem::kFloat).Run().ok());
}

TEST(HandlersMovementTest, Col2ImSumsWhatOverlaps) {
  // Blocks of 2 by 1 at strides 1 and 2 of an image of 3 by 3.
  const Tensor x = Of(DType::kF32, {1, 2, 4}, {1, 2, 3, 4, 10, 20, 30, 40});
  const Tensor y = OneNode("Col2Im", 18)
                       .In(x)
                       .Fixed(Ints({3, 3}))
                       .Fixed(Ints({2, 1}))
                       .Attr("strides", List{1, 2})
                       .Result();
  EXPECT_EQ(y, Of(DType::kF32, {1, 1, 3, 3}, {1, 0, 2, 13, 0, 24, 30, 0, 40}));
  EXPECT_TRUE(Says(OneNode("Col2Im", 18).In(x).Fixed(Ints({3, 3})).Fixed(Ints({3, 1})).Error(),
                   "does not divide by 3"));
}

// Truncated to 32 bits, these would be 0 and 1.
TEST(HandlersMovementTest, PermAndBlocksizeBeyond32BitsAreRefused) {
  const Tensor x = Count(DType::kF32, {2, 3});
  EXPECT_TRUE(Says(OneNode("Transpose", 13).In(x).Attr("perm", List{int64_t{1} << 32, 1}).Error(),
                   "\"perm\" holds 4294967296"));
  EXPECT_TRUE(Says(OneNode("Transpose", 13).In(x).Attr("perm", List{-1, 0}).Error(), "holds -1"));
  const Tensor image = Count(DType::kF32, {1, 4, 2, 2});
  for (const char* op : {"DepthToSpace", "SpaceToDepth"}) {
    const std::string refused =
        OneNode(op, 13).In(image).Attr("blocksize", int64_t{1} << 32).Error();
    EXPECT_TRUE(Says(refused, "blocksize of 1 to 2147483647")) << refused;
  }
}

TEST(HandlersMovementTest, Col2ImOfBlocksBeyondInt64) {
  const Tensor x = Count(DType::kF32, {1, 4, 1});
  const double huge = 0x1p62;
  EXPECT_TRUE(Says(OneNode("Col2Im", 18).In(x).Fixed(Ints({2, 2})).Fixed(Ints({huge, 4})).Error(),
                   "more than an int64 holds"));
  const std::string reach = OneNode("Col2Im", 18)
                                .In(x)
                                .Fixed(Ints({2, 2}))
                                .Fixed(Ints({2, 2}))
                                .Attr("dilations", List{INT64_MAX, 1})
                                .Error();
  EXPECT_FALSE(reach.empty());
}

// Known contents follow the same rules as data: no part has a negative size, no axis is sliced
// twice.
TEST(HandlersMovementTest, KnownContentsAreSplitAndSlicedByTheSameRules) {
  const auto split = [](bool known) {
    OneNode trial("Split", 18);
    known ? trial.Fixed(Ints({1, 2, 3, 4, 5})) : trial.In(Ints({1, 2, 3, 4, 5}));
    for (int i = 0; i < 4; ++i) trial.Out(Elem::kInt64);
    return trial.Attr("num_outputs", int64_t{4}).Run().status();
  };
  const auto slice = [](bool known) {
    OneNode trial("Slice", 13);
    known ? trial.Fixed(Ints({1, 2, 3, 4, 5})) : trial.In(Ints({1, 2, 3, 4, 5}));
    return trial.Fixed(Ints({1, 0}))
        .Fixed(Ints({3, 2}))
        .Fixed(Ints({0, -1}))
        .Out(Elem::kInt64)
        .Run();
  };
  EXPECT_TRUE(Says(split(false).ToString(), "holds -1, a negative size"));
  EXPECT_EQ(split(true), split(false));
  EXPECT_TRUE(Says(slice(false).status().ToString(), "axis -1 is given twice"));
  EXPECT_EQ(slice(true).status(), slice(false).status());
}

TEST(HandlersMovementTest, SliceAsksForAllItNeedsAtOnce) {
  TestModel m(13);
  m.Input("x", Elem::kFloat, {4, 5});
  const std::vector<std::string> needed = {"starts", "ends", "axes", "steps"};
  for (const std::string& name : needed) m.Input(name, Elem::kInt64, {1});
  m.Node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"}).Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_EQ(import.refusals.size(), 1u);
  EXPECT_EQ(import.refusals[0].inputs, needed);
}

}  // namespace
}  // namespace athanor::onnx
