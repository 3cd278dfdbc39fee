#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"
#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
using List = std::vector<int64_t>;

bool Says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST(HandlersIndexTest, GatherCountsFromTheEnd) {
  const Tensor x = Count(DType::kF32, {2, 3});
  EXPECT_EQ(
      OneNode("Gather", 13).In(x, {2, "n"}).In(Ints({-1, 0})).Attr("axis", int64_t{-1}).Result(),
      Of(DType::kF32, {2, 2}, {2, 0, 5, 3}));
  EXPECT_EQ(OneNode("Gather", 13).In(x).In(Of(DType::kI32, {}, {1})).Result(),
            Of(DType::kF32, {3}, {3, 4, 5}));
  EXPECT_EQ(OneNode("Gather", 13).In(x).In(Ints({2})).Out(Elem::kFloat).Run().status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(HandlersIndexTest, GatherElementsChecksItsAxis) {
  const Tensor x = Count(DType::kF32, {3, 3});
  const auto run = [&](const Values& indices) {
    return OneNode("GatherElements", 13)
        .In(x, {"n", 3})
        .In(Of(DType::kI64, {2, 3}, indices))
        .Attr("axis", int64_t{0})
        .Out(Elem::kFloat)
        .Run();
  };
  EXPECT_EQ(run({1, 2, 0, -1, 0, 0}).value()[0], Of(DType::kF32, {2, 3}, {3, 7, 2, 6, 1, 2}));
  EXPECT_EQ(run({1, 2, 0, 3, 0, 0}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(Says(OneNode("GatherElements", 13).In(x).In(Ints({0})).Error(), "equal rank"));
}

TEST(HandlersIndexTest, GatherNd) {
  const Tensor x = Count(DType::kF32, {2, 2, 2});
  EXPECT_EQ(OneNode("GatherND", 11).In(x).In(Of(DType::kI64, {2, 1, 2}, {0, 1, -1, 0})).Result(),
            Of(DType::kF32, {2, 1, 2}, {2, 3, 4, 5}));
  EXPECT_EQ(OneNode("GatherND", 12)
                .In(x, {"b", 2, 2})
                .In(Of(DType::kI64, {2, 1}, {1, 0}), {"b", 1})
                .Attr("batch_dims", int64_t{1})
                .Result(),
            Of(DType::kF32, {2, 2}, {2, 3, 4, 5}));
  EXPECT_TRUE(Says(OneNode("GatherND", 11).In(x).In(Of(DType::kI64, {1, 4}, {0, 0, 0, 0})).Error(),
                   "1 to 3"));
}

TEST(HandlersIndexTest, ScatterInEveryModeOfItsVersion) {
  const Tensor x = Of(DType::kF32, {1, 3}, {1, 2, 3});
  const auto run = [&](int64_t opset, std::string_view op, std::string mode) {
    OneNode t(op, opset);
    t.In(x).In(Of(DType::kI64, {1, 2}, {1, -2})).In(Of(DType::kF32, {1, 2}, {10, 20}));
    if (!mode.empty()) t.Attr("reduction", std::move(mode));
    return t.Attr("axis", int64_t{1});
  };
  EXPECT_EQ(ValuesOf(run(9, "Scatter", "").Result()), (Values{1, 20, 3}));
  EXPECT_EQ(ValuesOf(run(11, "ScatterElements", "").Result()), (Values{1, 20, 3}));
  EXPECT_EQ(ValuesOf(run(16, "ScatterElements", "add").Result()), (Values{1, 32, 3}));
  EXPECT_EQ(ValuesOf(run(16, "ScatterElements", "mul").Result()), (Values{1, 400, 3}));
  EXPECT_EQ(ValuesOf(run(18, "ScatterElements", "max").Result()), (Values{1, 20, 3}));
  EXPECT_EQ(ValuesOf(run(18, "ScatterElements", "min").Result()), (Values{1, 2, 3}));
  EXPECT_TRUE(Says(run(16, "ScatterElements", "max").Error(), "\"max\""));
}

TEST(HandlersIndexTest, ScatterNdOverWholeSlices) {
  const Tensor x = Count(DType::kI32, {3, 2});
  EXPECT_EQ(OneNode("ScatterND", 16)
                .In(x, {"n", 2})
                .In(Of(DType::kI64, {2, 1}, {-1, 0}))
                .In(Of(DType::kI32, {2, 2}, {9, 8, 7, 6}))
                .Result(),
            Of(DType::kI32, {3, 2}, {7, 6, 2, 3, 9, 8}));
}

TEST(HandlersIndexTest, TensorScatterLinearAndCircular) {
  const Tensor past = Count(DType::kF32, {2, 3, 1});
  const Tensor update = Of(DType::kF32, {2, 2, 1}, {10, 11, 12, 13});
  const auto run = [&](const Values& first, std::string mode) {
    return OneNode("TensorScatter", 24)
        .In(past, {"b", 3, 1})
        .In(update, {"b", 2, 1})
        .In(Ints(first), {"b"})
        .Attr("mode", std::move(mode))
        .Out(Elem::kFloat)
        .Run();
  };
  EXPECT_EQ(ValuesOf(run({1, 0}, "linear").value()[0]), (Values{0, 10, 11, 12, 13, 5}));
  EXPECT_EQ(ValuesOf(run({2, 1}, "circular").value()[0]), (Values{11, 1, 10, 3, 12, 13}));
  EXPECT_EQ(run({2, 0}, "linear").status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(run({-1, 0}, "linear").status().code(), absl::StatusCode::kOutOfRange);
}

TEST(HandlersIndexTest, OneHot) {
  const Tensor values = Of(DType::kF32, {2}, {-1, 5});
  const auto run = [&](int64_t opset, const Tensor& depth) {
    return ValuesOf(
        OneNode("OneHot", opset).In(Ints({2, -1, 3})).Fixed(depth).In(values).Result(Elem::kFloat));
  };
  EXPECT_EQ(run(11, Of(DType::kI32, {1}, {3})), (Values{-1, -1, 5, -1, -1, 5, -1, -1, -1}));
  EXPECT_EQ(run(9, Of(DType::kF32, {}, {3})), (Values{-1, -1, 5, -1, -1, -1, -1, -1, -1}));
  const Tensor across = OneNode("OneHot", 11)
                            .In(Of(DType::kF32, {2}, {1, 0}), {"n"})
                            .Fixed(Of(DType::kI64, {}, {2}))
                            .Fixed(values)
                            .Attr("axis", int64_t{0})
                            .Result();
  EXPECT_EQ(across, Of(DType::kF32, {2, 2}, {-1, 5, 5, -1}));
  EXPECT_TRUE(
      Says(OneNode("OneHot", 11).In(Ints({1})).In(Ints({2})).Fixed(values).Error(), "depth"));
}

TEST(HandlersIndexTest, CompressByAKnownCondition) {
  const Tensor x = Count(DType::kF32, {2, 3});
  const Tensor some = Of(DType::kBool, {2}, {0, 1});
  EXPECT_EQ(OneNode("Compress", 9).In(x).Fixed(some).Attr("axis", int64_t{1}).Result(),
            Of(DType::kF32, {2, 1}, {1, 4}));
  EXPECT_EQ(OneNode("Compress", 9).In(x).Fixed(some).Result(), Of(DType::kF32, {1}, {1}));
  EXPECT_TRUE(Says(OneNode("Compress", 9).In(x).In(some).Error(), "condition"));
}

TEST(HandlersIndexTest, WhatIsCountedMustBeKnown) {
  const Tensor x = Of(DType::kF32, {2, 3}, {0, 1, 0, -2, 0, 3});
  EXPECT_EQ(OneNode("NonZero", 13).Fixed(x).Result(Elem::kInt64),
            Of(DType::kI64, {2, 3}, {0, 1, 1, 1, 0, 2}));
  EXPECT_TRUE(Says(OneNode("NonZero", 13).In(x).Error(), "values={\"x0\""));
  EXPECT_EQ(OneNode("NonZero", 13).Fixed(Of(DType::kI64, {}, {5})).Result(Elem::kInt64),
            Tensor::Zeros(DType::kI64, {0, 1}));
}

TEST(HandlersIndexTest, OfNothingOtherAxesMayBeOfAnySize) {
  const Tensor x = Tensor::Zeros(DType::kI64, {int64_t{1} << 40, 0});
  EXPECT_NE(OneNode("Unique", 11).Fixed(x).Attr("axis", int64_t{0}).Error().find("are supported"),
            std::string::npos);
  // Its sizes exceed the limits; it must be refused before any loop over them.
  EXPECT_NE(OneNode("Concat", 13).Fixed(x).Fixed(x).Attr("axis", int64_t{1}).Error().find("limit"),
            std::string::npos);
}

TEST(HandlersIndexTest, UniqueSortedAndByPlace) {
  const Tensor x = Ints({2, 1, 1, 3, -4});
  EXPECT_EQ(OneNode("Unique", 11).Fixed(x).Result(Elem::kInt64), Ints({-4, 1, 2, 3}));
  EXPECT_EQ(OneNode("Unique", 11).Fixed(x).Attr("sorted", int64_t{0}).Result(Elem::kInt64),
            Ints({2, 1, 3, -4}));
  const Tensor rows = Of(DType::kI64, {3, 2}, {1, 0, 1, 0, 0, 9});
  const std::vector<Tensor> all = OneNode("Unique", 11)
                                      .Fixed(rows)
                                      .Attr("axis", int64_t{0})
                                      .Out(Elem::kInt64)
                                      .Out(Elem::kInt64)
                                      .Out(Elem::kInt64)
                                      .Out(Elem::kInt64)
                                      .Run()
                                      .value();
  EXPECT_EQ(all[0], Of(DType::kI64, {2, 2}, {0, 9, 1, 0}));
  EXPECT_EQ(all[1], Ints({2, 0}));
  EXPECT_EQ(all[2], Ints({1, 1, 0}));
  EXPECT_EQ(all[3], Ints({1, 2}));
}

TEST(HandlersIndexTest, NonMaxSuppressionKeepsTheBest) {
  // The second box covers 0.9 of its union with the first; the third is apart.
  const Tensor boxes = Of(DType::kF32, {1, 3, 4}, {0, 0, 1, 0.9, 0, 0, 1, 1, 5, 5, 6, 6});
  const Tensor scores = Of(DType::kF32, {1, 1, 3}, {0.5, 0.75, 0.25});
  const auto run = [&](double most, double overlap, double least) {
    return OneNode("NonMaxSuppression", 11)
        .Fixed(boxes)
        .Fixed(scores)
        .Fixed(Ints({most}))
        .Fixed(Of(DType::kF32, {1}, {overlap}))
        .Fixed(Of(DType::kF32, {1}, {least}))
        .Result(Elem::kInt64);
  };
  EXPECT_EQ(ValuesOf(run(3, 0.5, 0)), (Values{0, 0, 1, 0, 0, 2}));
  EXPECT_EQ(ValuesOf(run(3, 0.95, 0)), (Values{0, 0, 1, 0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(ValuesOf(run(3, 0.5, 0.3)), (Values{0, 0, 1}));
  EXPECT_EQ(run(0, 0.5, 0).shape, (List{0, 3}));
}

}  // namespace
}  // namespace athanor::onnx
