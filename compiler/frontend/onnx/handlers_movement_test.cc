#include <algorithm>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/handlers_testing.h"
#include "compiler/ir/message.h"

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
    return OpTrial(14, "Reshape").In(x, {"b", 3, 4}).Const(Ints(shape)).Run().shape;
  };
  EXPECT_EQ(to({0, -1}), (List{2, 12}));
  EXPECT_EQ(to({-1, 4}), (List{6, 4}));
  EXPECT_EQ(to({0, 0, 2, 2}), (List{2, 3, 2, 2}));
  const Tensor none = Tensor::Zeros(DType::kF32, {0, 3});
  EXPECT_EQ(OpTrial(14, "Reshape").In(none).Const(Ints({3, 0})).Attr("allowzero", 1).Run().shape,
            (List{3, 0}));
  EXPECT_TRUE(Says(OpTrial(14, "Reshape").In(none).Const(Ints({0, -1})).Refused(), "beside"));
  EXPECT_TRUE(Says(OpTrial(14, "Reshape").In(x).Const(Ints({-1, -1})).Refused(), "twice"));
  EXPECT_TRUE(Says(OpTrial(14, "Reshape").In(x).Const(Ints({5, -1})).Refused(), "do not divide"));
  EXPECT_TRUE(Says(OpTrial(14, "Reshape").In(x).Const(Ints({2, 3, 4, 0})).Refused(), "copies"));
  EXPECT_TRUE(Says(OpTrial(14, "Reshape").In(x).Const(Ints({-2, 12})).Refused(), "negative"));
  EXPECT_TRUE(Says(OpTrial(14, "Reshape").In(x).In(Ints({24})).Refused(), "values={\"x1\""));
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
  EXPECT_EQ(OpTrial(6, "Squeeze").In(x).Attr("axes", List{2}).Run().shape, (List{1, 2}));
  EXPECT_EQ(OpTrial(11, "Squeeze").In(x).Run().shape, (List{2}));
  EXPECT_EQ(OpTrial(13, "Squeeze").In(x).Const(Ints({-3})).Run().shape, (List{2, 1}));
  EXPECT_EQ(OpTrial(6, "Unsqueeze").In(x).Attr("axes", List{0, 4}).Run().shape,
            (List{1, 1, 2, 1, 1}));
  EXPECT_EQ(OpTrial(13, "Unsqueeze").In(x).Const(Ints({-1})).Run().shape, (List{1, 2, 1, 1}));
  EXPECT_TRUE(Says(OpTrial(13, "Squeeze").In(x, {"b", 2, 1}).Refused(), "may or may not be 1"));
  EXPECT_TRUE(Says(OpTrial(13, "Squeeze").In(x).Const(Ints({1})).Refused(), "must be 1"));
  EXPECT_EQ(OpTrial(13, "Flatten").In(x).Attr("axis", int64_t{-1}).Run().shape, (List{2, 1}));
  EXPECT_EQ(OpTrial(13, "Flatten").In(x).Attr("axis", int64_t{0}).Run().shape, (List{1, 2}));
  EXPECT_EQ(OpTrial(13, "Transpose").In(Count(DType::kI64, {2, 3})).Run(),
            Of(DType::kI64, {3, 2}, {0, 3, 1, 4, 2, 5}));
}

// numpy's, element by element.
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
          OpTrial t(13, "Slice");
          t.Least(3).In(x, {dim ? TestSize("n") : TestSize(7)});
          for (const int64_t number : {start, end, int64_t{0}, step}) {
            t.Const(Tensor::Of<int64_t>(DType::kI64, {1}, {number}));
          }
          const int64_t near = std::clamp<int64_t>(step, -100, 100);
          EXPECT_EQ(ValuesOf(t.Run()), Sliced(7, start, end, near));
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
      OpTrial t(13, "Slice");
      t.Least(0).In(none, {dim ? TestSize("n") : TestSize(0)});
      for (const int64_t number : {start, INT64_MIN, int64_t{0}, int64_t{-1}}) {
        t.Const(Tensor::Of<int64_t>(DType::kI64, {1}, {number}));
      }
      EXPECT_EQ(t.Run().shape, (List{0}));
    }
  }
}

TEST(HandlersMovementTest, SliceByAttributesAndByDims) {
  const Tensor x = Count(DType::kF32, {3, 4});
  EXPECT_EQ(
      OpTrial(9, "Slice").In(x).Attr("starts", List{1, -3}).Attr("ends", List{1000, -1}).Run(),
      Of(DType::kF32, {2, 2}, {5, 6, 9, 10}));
  EXPECT_TRUE(Says(OpTrial(13, "Slice").In(x).In(Ints({0})).Const(Ints({1})).Refused(), "starts"));
  EXPECT_TRUE(Says(OpTrial(13, "Slice")
                       .In(x)
                       .Const(Ints({0}))
                       .Const(Ints({1}))
                       .Const(Ints({0}))
                       .Const(Ints({0}))
                       .Refused(),
                   "0"));
}

TEST(HandlersMovementTest, SplitInEveryForm) {
  const Tensor x = Count(DType::kF32, {2, 7});
  const auto shapes = [&](OpTrial t, int results) {
    std::vector<List> shapes;
    const std::vector<Tensor> parts = t.TryAll(results, Elem::kFloat).value();
    for (const Tensor& y : parts) shapes.push_back(y.shape);
    return shapes;
  };
  using Lists = std::vector<List>;
  EXPECT_EQ(shapes(OpTrial(6, "Split").In(x).Attr("axis", int64_t{1}).Attr("split", List{3, 4}), 2),
            (Lists{{2, 3}, {2, 4}}));
  EXPECT_EQ(shapes(OpTrial(13, "Split").In(x), 2), (Lists{{1, 7}, {1, 7}}));
  EXPECT_EQ(shapes(OpTrial(13, "Split").In(x).Const(Ints({0, 2, 0})), 3),
            (Lists{{0, 7}, {2, 7}, {0, 7}}));
  EXPECT_EQ(shapes(OpTrial(18, "Split")
                       .In(x, {2, "n"})
                       .Attr("axis", int64_t{-1})
                       .Attr("num_outputs", int64_t{2}),
                   2),
            (Lists{{2, 4}, {2, 3}}));
  EXPECT_TRUE(Says(OpTrial(13, "Split")
                       .In(x)
                       .Attr("axis", int64_t{1})
                       .TryAll(2, Elem::kFloat)
                       .status()
                       .ToString(),
                   "does not divide into 2 equal parts"));
  EXPECT_TRUE(Says(OpTrial(13, "Split").In(x).Const(Ints({3})).Refused(), "sizes sum to 3"));
  EXPECT_TRUE(Says(OpTrial(18, "Split").In(x).Refused(), "neither"));
  EXPECT_TRUE(
      Says(OpTrial(18, "Split").In(x).Attr("num_outputs", INT64_MAX).Refused(), "equally many"));
}

TEST(HandlersMovementTest, ExpandAndTile) {
  const Tensor x = Count(DType::kI32, {3, 1});
  EXPECT_EQ(OpTrial(8, "Expand").In(x).Const(Ints({2, 1, 2})).Run().shape, (List{2, 3, 2}));
  EXPECT_EQ(OpTrial(8, "Expand").In(x, {"n", 1}).ShapeOfFirst().Run(), x);
  EXPECT_EQ(OpTrial(6, "Tile").In(x, {"n", 1}).Const(Ints({2, 2})).Run(),
            Of(DType::kI32, {6, 2}, {0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(OpTrial(6, "Tile").In(x).Const(Ints({0, 1})).Run().shape, (List{0, 1}));
  EXPECT_TRUE(Says(OpTrial(6, "Tile").In(x).Const(Ints({2})).Refused(), "each axis needs one"));
}

TEST(HandlersMovementTest, PadInEveryMode) {
  const Tensor x = Of(DType::kF32, {3}, {1, 2, 3});
  const auto pad = [&](std::string mode, double before, double after, bool dim) {
    return ValuesOf(OpTrial(19, "Pad")
                        .In(x, {dim ? TestSize("n") : TestSize(3)})
                        .Const(Ints({before, after}))
                        .Attr("mode", std::move(mode))
                        .Run());
  };
  for (const bool dim : {false, true}) {
    EXPECT_EQ(pad("constant", 1, 2, dim), (Values{0, 1, 2, 3, 0, 0}));
    EXPECT_EQ(pad("edge", 2, 1, dim), (Values{1, 1, 1, 2, 3, 3}));
    EXPECT_EQ(pad("reflect", 2, 5, dim), (Values{3, 2, 1, 2, 3, 2, 1, 2, 3, 2}));
    EXPECT_EQ(pad("wrap", 4, 1, dim), (Values{3, 1, 2, 3, 1, 2, 3, 1}));
  }
  EXPECT_EQ(pad("constant", -1, 1, false), (Values{2, 3, 0}));
  EXPECT_EQ(pad("edge", -1, 2, false), (Values{2, 3, 3, 3}));
  EXPECT_TRUE(Says(OpTrial(19, "Pad")
                       .Least(0)
                       .In(Count(DType::kF32, {4}), {"n"})
                       .Const(Ints({1, 1}))
                       .Attr("mode", std::string("wrap"))
                       .Refused(),
                   "nothing can be repeated"));
  EXPECT_EQ(pad("reflect", 2, -1, false), (Values{1, 2, 1, 2}));
  EXPECT_EQ(ValuesOf(OpTrial(19, "Pad")
                         .In(Of(DType::kF32, {1}, {7}))
                         .Const(Ints({2, 1}))
                         .Attr("mode", std::string("reflect"))
                         .Run()),
            (Values{7, 7, 7, 7}));
}

TEST(HandlersMovementTest, PadVersions) {
  const Tensor x = Of(DType::kF32, {1, 2}, {1, 2});
  EXPECT_EQ(OpTrial(6, "Pad").In(x).Attr("pads", List{0, 1, 1, 0}).Attr("value", 9.0f).Run(),
            Of(DType::kF32, {2, 3}, {9, 1, 2, 9, 9, 9}));
  // The value may come with the request, and axes may be chosen.
  EXPECT_EQ(OpTrial(18, "Pad")
                .In(x)
                .Const(Ints({1, 0}))
                .In(Of(DType::kF32, {1}, {5}))
                .Const(Ints({-1}))
                .Run(),
            Of(DType::kF32, {1, 3}, {5, 1, 2}));
  EXPECT_TRUE(Says(OpTrial(18, "Pad")
                       .In(x)
                       .Const(Ints({0, 0, 0, 0}))
                       .Attr("mode", std::string("wrap"))
                       .Refused(),
                   "\"wrap\""));
  EXPECT_TRUE(Says(OpTrial(18, "Pad").In(x).Const(Ints({0, -3, 0, 0})).Refused(), "negative size"));
  EXPECT_TRUE(Says(OpTrial(18, "Pad").In(x).In(Ints({0, 0, 0, 0})).Refused(), "its pads"));
}

TEST(HandlersMovementTest, BlocksAndDepth) {
  const Tensor x = Count(DType::kF32, {1, 8, 1, 1});
  EXPECT_EQ(OpTrial(13, "DepthToSpace").In(x).Attr("blocksize", int64_t{2}).Run(),
            Of(DType::kF32, {1, 2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 7}));
  const Tensor columns = OpTrial(13, "DepthToSpace")
                             .In(x)
                             .Attr("blocksize", int64_t{2})
                             .Attr("mode", std::string("CRD"))
                             .Run();
  EXPECT_EQ(columns, Count(DType::kF32, {1, 2, 2, 2}));
  EXPECT_EQ(OpTrial(13, "SpaceToDepth").In(columns).Attr("blocksize", int64_t{2}).Run(),
            Of(DType::kF32, {1, 8, 1, 1}, {0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(OpTrial(28, "SpaceToDepth")
                .In(columns)
                .Attr("blocksize", int64_t{2})
                .Attr("mode", std::string("CRD"))
                .Run(),
            x);
  EXPECT_TRUE(Says(OpTrial(13, "SpaceToDepth").In(x).Attr("blocksize", int64_t{2}).Refused(),
                   "does not divide by 2"));
}

TEST(HandlersMovementTest, CenterCropPad) {
  const Tensor x = Count(DType::kF32, {5});
  const auto to = [&](double size, bool dim) {
    return ValuesOf(OpTrial(18, "CenterCropPad")
                        .In(x, {dim ? TestSize("n") : TestSize(5)})
                        .Const(Ints({size}))
                        .Run());
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
  EXPECT_EQ(ValuesOf(OpTrial(14, "Trilu").In(x, {"n", "n"}).Run()),
            (Values{1, 2, 3, 0, 5, 6, 0, 0, 9}));
  const Tensor k = Of(DType::kI64, {}, {1});
  EXPECT_EQ(ValuesOf(OpTrial(14, "Trilu").In(x).In(k).Run()), (Values{0, 2, 3, 0, 0, 6, 0, 0, 0}));
  EXPECT_EQ(ValuesOf(OpTrial(14, "Trilu").In(x).In(k).Attr("upper", int64_t{0}).Run()),
            (Values{1, 2, 0, 4, 5, 6, 7, 8, 9}));
}

TEST(HandlersMovementTest, ReverseSequence) {
  const Tensor x = Count(DType::kF32, {3, 2});
  const Tensor lengths = Ints({3, 1});
  EXPECT_EQ(ValuesOf(OpTrial(10, "ReverseSequence").In(x, {"t", "b"}).In(lengths, {"b"}).Run()),
            (Values{4, 1, 2, 3, 0, 5}));
  const Tensor y = OpTrial(10, "ReverseSequence")
                       .In(x)
                       .In(Ints({2, 0, 1}))
                       .Attr("time_axis", int64_t{1})
                       .Attr("batch_axis", int64_t{0})
                       .Run();
  EXPECT_EQ(ValuesOf(y), (Values{1, 0, 2, 3, 4, 5}));
  EXPECT_FALSE(OpTrial(10, "ReverseSequence").In(x).In(Ints({4, 1})).Try(Elem::kFloat).ok());
}

TEST(HandlersMovementTest, Col2ImSumsWhatOverlaps) {
  // Blocks of 2 by 1 at strides 1 and 2 of an image of 3 by 3.
  const Tensor x = Of(DType::kF32, {1, 2, 4}, {1, 2, 3, 4, 10, 20, 30, 40});
  const Tensor y = OpTrial(18, "Col2Im")
                       .In(x)
                       .Const(Ints({3, 3}))
                       .Const(Ints({2, 1}))
                       .Attr("strides", List{1, 2})
                       .Run();
  EXPECT_EQ(y, Of(DType::kF32, {1, 1, 3, 3}, {1, 0, 2, 13, 0, 24, 30, 0, 40}));
  EXPECT_TRUE(Says(OpTrial(18, "Col2Im").In(x).Const(Ints({3, 3})).Const(Ints({3, 1})).Refused(),
                   "does not divide by 3"));
}

// Cut to 32 bits these would be 0 and 1.
TEST(HandlersMovementTest, PermAndBlocksizeBeyond32BitsAreRefused) {
  const Tensor x = Count(DType::kF32, {2, 3});
  EXPECT_TRUE(Says(OpTrial(13, "Transpose").In(x).Attr("perm", List{int64_t{1} << 32, 1}).Refused(),
                   "\"perm\" holds 4294967296"));
  EXPECT_TRUE(Says(OpTrial(13, "Transpose").In(x).Attr("perm", List{-1, 0}).Refused(), "holds -1"));
  const Tensor image = Count(DType::kF32, {1, 4, 2, 2});
  for (const char* op : {"DepthToSpace", "SpaceToDepth"}) {
    const std::string refused =
        OpTrial(13, op).In(image).Attr("blocksize", int64_t{1} << 32).Refused();
    EXPECT_TRUE(Says(refused, "blocksize of 1 to 2147483647")) << refused;
  }
}

TEST(HandlersMovementTest, Col2ImOfBlocksBeyondInt64) {
  const Tensor x = Count(DType::kF32, {1, 4, 1});
  const double huge = 0x1p62;
  EXPECT_TRUE(Says(OpTrial(18, "Col2Im").In(x).Const(Ints({2, 2})).Const(Ints({huge, 4})).Refused(),
                   "more than an int64 holds"));
  const std::string reach = OpTrial(18, "Col2Im")
                                .In(x)
                                .Const(Ints({2, 2}))
                                .Const(Ints({2, 2}))
                                .Attr("dilations", List{INT64_MAX, 1})
                                .Refused();
  EXPECT_FALSE(reach.empty());
}

// Of known contents as of data: no part has less than nothing, no axis is sliced twice.
TEST(HandlersMovementTest, KnownContentsAreSplitAndSlicedByTheSameRules) {
  const auto split = [](bool known) {
    OpTrial trial(18, "Split");
    known ? trial.Const(Ints({1, 2, 3, 4, 5})) : trial.In(Ints({1, 2, 3, 4, 5}));
    return trial.Attr("num_outputs", int64_t{4}).TryAll(4, Elem::kInt64).status();
  };
  const auto slice = [](bool known) {
    OpTrial trial(13, "Slice");
    known ? trial.Const(Ints({1, 2, 3, 4, 5})) : trial.In(Ints({1, 2, 3, 4, 5}));
    return trial.Const(Ints({1, 0})).Const(Ints({3, 2})).Const(Ints({0, -1})).Try(Elem::kInt64);
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
