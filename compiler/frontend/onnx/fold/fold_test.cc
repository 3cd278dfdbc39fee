#include "compiler/frontend/onnx/fold/fold.h"

#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

class FoldTest : public testing::Test {
 protected:
  NodeId Literal(std::vector<float> values) {
    const auto n = static_cast<int64_t>(values.size());
    return b_.Constant(Tensor::Of<float>(DType::kF32, {n}, values)).value();
  }

  Graph graph_{.dims = {{"b", 1, 8}}};
  GraphBuilder b_{&graph_};
};

TEST_F(FoldTest, FoldsWhatFollowsFromLiterals) {
  const NodeId sum = b_.Add(Op::kAdd, {Literal({1, 2}), Literal({10, 20})}).value();
  const NodeId product = b_.Add(Op::kMul, {sum, sum}).value();
  const std::optional<Tensor> folded = Folder({}).Fold(graph_, product);
  ASSERT_TRUE(folded);
  EXPECT_EQ(folded->data<float>()[0], 121);
  EXPECT_EQ(folded->data<float>()[1], 484);
}

TEST_F(FoldTest, AnIotaIsALiteral) {
  const NodeId iota =
      b_.Add(Op::kIota, {}, {{"shape", Shape{3}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}})
          .value();
  const std::optional<Tensor> folded = Folder({}).Fold(graph_, iota);
  ASSERT_TRUE(folded);
  EXPECT_EQ(folded->data<int64_t>()[2], 2);
}

TEST_F(FoldTest, LeavesWhatARequestTells) {
  const NodeId x = b_.Input("x", {DType::kF32, {2}}).value();
  const NodeId w = b_.Parameter("w", {DType::kF32, {2}}).value();
  Folder folder({});
  EXPECT_FALSE(folder.Fold(graph_, x));
  EXPECT_FALSE(folder.Fold(graph_, w));
  EXPECT_FALSE(folder.Fold(graph_, b_.Add(Op::kAdd, {Literal({1, 2}), x}).value()));
}

TEST_F(FoldTest, LeavesWhatHasDims) {
  const NodeId wide =
      b_.Add(Op::kIndexMap, {Literal({1})}, {{"map", IndexMap{{Expr::Symbol("b")}, {Expr(0)}}}})
          .value();
  const NodeId one = b_.Add(Op::kSumReduce, {wide}, {{"axes", std::vector<int64_t>{0}}}).value();
  Folder folder({});
  EXPECT_FALSE(folder.Fold(graph_, wide));
  EXPECT_FALSE(folder.Fold(graph_, one));
}

TEST_F(FoldTest, KeepsWithinItsLimits) {
  const NodeId sum = b_.Add(Op::kAdd, {Literal({1, 2}), Literal({3, 4})}).value();
  EXPECT_FALSE(Folder({.max_result_bytes = 7}).Fold(graph_, sum));
  EXPECT_TRUE(Folder({.max_result_bytes = 8}).Fold(graph_, sum));
  EXPECT_FALSE(Folder({.max_work = 5}).Fold(graph_, sum));
  EXPECT_FALSE(Folder({.max_bytes = 16}).Fold(graph_, sum));
  Folder together({.max_work = 25});
  EXPECT_TRUE(together.Fold(graph_, sum));
  EXPECT_TRUE(together.Fold(graph_, sum));
  EXPECT_FALSE(together.Fold(graph_, sum));
}

TEST_F(FoldTest, ALargeTensorReducedToOneElementIsNotMade) {
  const int64_t huge = int64_t{1} << 30;
  const NodeId wide =
      b_.Add(Op::kIndexMap, {Literal({1})}, {{"map", IndexMap{{huge}, {Expr(0)}}}}).value();
  const NodeId one = b_.Add(Op::kSumReduce, {wide}, {{"axes", std::vector<int64_t>{0}}}).value();
  EXPECT_FALSE(Folder({}).Fold(graph_, one));
}

TEST_F(FoldTest, WhatFollowsFromTooMuchIsNotTriedAgain) {
  Folder folder({.max_work = 10});
  const NodeId sum = b_.Add(Op::kAdd, {Literal({1, 2, 3, 4}), Literal({1, 2, 3, 4})}).value();
  EXPECT_FALSE(folder.Fold(graph_, sum));
  EXPECT_FALSE(folder.Fold(graph_, b_.Add(Op::kExp, {sum}).value()));
  EXPECT_TRUE(folder.Fold(graph_, b_.Add(Op::kExp, {Literal({1})}).value()));
}

TEST_F(FoldTest, NodesGoneOverInVainCountAsWork) {
  NodeId sum = Literal({1, 2, 3, 4});
  for (int i = 0; i < 40; ++i) sum = b_.Add(Op::kAdd, {sum, Literal({1, 2, 3, 4})}).value();
  const auto reduced = [&] {
    return b_.Add(Op::kSumReduce, {sum}, {{"axes", std::vector<int64_t>{0}}}).value();
  };
  const NodeId small = b_.Add(Op::kExp, {Literal({1})}).value();
  Folder folder({.max_bytes = 512, .max_work = 10'000});
  EXPECT_TRUE(folder.Fold(graph_, small));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(folder.Fold(graph_, reduced()));
  EXPECT_FALSE(folder.Fold(graph_, small));
}

TEST_F(FoldTest, NoMoreElementsThanAreAskedFor) {
  const NodeId sum = b_.Add(Op::kAdd, {Literal({1, 2, 3}), Literal({1, 2, 3})}).value();
  EXPECT_FALSE(Folder({}).Fold(graph_, sum, /*most=*/2));
  EXPECT_TRUE(Folder({}).Fold(graph_, sum, /*most=*/3));
}

TEST_F(FoldTest, AConvolutionVisitsItsWholeWeight) {
  const auto literal = [&](std::vector<int64_t> shape) {
    return b_.Constant(Tensor::Zeros(DType::kF32, std::move(shape))).value();
  };
  const Attrs attrs = {{"strides", std::vector<int64_t>{1}},
                       {"dilations", std::vector<int64_t>{1}},
                       {"begin", Shape{99}},
                       {"out", Shape{100}}};
  const NodeId conv = b_.Add(Op::kConv, {literal({1, 1, 1}), literal({1, 1, 100})}, attrs).value();
  EXPECT_FALSE(Folder({.max_work = 5'000}).Fold(graph_, conv));
  EXPECT_TRUE(Folder({.max_work = 20'000}).Fold(graph_, conv));
}

TEST_F(FoldTest, AnIndexOutsideIsLeftForRunTime) {
  const NodeId index = b_.Constant(Tensor::Of<int64_t>(DType::kI64, {1}, {5})).value();
  const NodeId gather =
      b_.Add(Op::kGather, {Literal({1, 2}), index}, {{"axis", int64_t{0}}}).value();
  EXPECT_FALSE(Folder({}).Fold(graph_, gather));
}

TEST_F(FoldTest, CancellingIsHeardBetweenNodes) {
  const NodeId sum = b_.Add(Op::kAdd, {Literal({1, 2}), Literal({3, 4})}).value();
  const NodeId out = b_.Add(Op::kExp, {b_.Add(Op::kExp, {sum}).value()}).value();
  int asked = 0;
  Folder folder({}, [&] { return ++asked == 4; });  // before the first Exp
  EXPECT_FALSE(folder.Fold(graph_, out));
  EXPECT_TRUE(folder.cancelled());
  EXPECT_EQ(asked, 4);
  EXPECT_FALSE(folder.Fold(graph_, sum));
  EXPECT_EQ(asked, 4);
}

TEST_F(FoldTest, NoNodeTakesLongBetweenTwoQuestions) {
  const NodeId sum = b_.Add(Op::kAdd, {Literal({1, 2, 3, 4}), Literal({1, 2, 3, 4})}).value();
  EXPECT_FALSE(Folder({.max_node_work = 11}).Fold(graph_, sum));
  EXPECT_TRUE(Folder({.max_node_work = 12}).Fold(graph_, sum));
}

}  // namespace
}  // namespace athanor::onnx
