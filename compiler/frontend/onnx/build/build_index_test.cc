#include "compiler/frontend/onnx/build/build_index.h"

#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_testing.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;

TEST(BuildIndexTest, GatherCountsFromBothEnds) {
  for (const Elem elem : {Elem::kInt32, Elem::kInt64}) {
    Built t({{"v", 1, 9}});
    const Value y =
        Gather(t.b(), t.Input(Elem::kFloat, {2, Expr::Symbol("v")}), t.Input(elem, {2, 2}), 1);
    const Tensor in = Count(DType::kF32, {2, 3});
    const auto at = [&](const Values& v) { return Of(CarrierOf(elem), {2, 2}, v); };
    const Tensor got = t.Try(y, {in, at({0, -1, -3, 2})}).value();
    EXPECT_EQ(got.shape, (std::vector<int64_t>{2, 2, 2}));
    EXPECT_EQ(ValuesOf(got), (Values{0, 2, 0, 2, 3, 5, 3, 5}));
    for (const double outside : {3.0, -4.0, 1e9}) {
      EXPECT_EQ(t.Try(y, {in, at({0, 0, 0, outside})}).status().code(),
                absl::StatusCode::kOutOfRange);
    }
  }
}

TEST(BuildIndexTest, ANarrowIndexDoesNotWrapWhereItCountsFromTheEnd) {
  Built t;
  const Value y = Gather(t.b(), t.Input(Elem::kInt64, {200}), t.Input(Elem::kInt8, {3}), 0);
  const Tensor in = Count(DType::kI64, {200});
  EXPECT_EQ(ValuesOf(t.Try(y, {in, Of(DType::kI8, {3}, {-1, -100, 127})}).value()),
            (Values{199, 100, 127}));
  Built u;
  const Value z = Gather(u.b(), u.Input(Elem::kInt64, {200}), u.Input(Elem::kUInt8, {2}), 0);
  EXPECT_EQ(ValuesOf(u.Try(z, {in, Of(DType::kU8, {2}, {199, 0})}).value()), (Values{199, 0}));
}

TEST(BuildIndexTest, AKnownRunOfPositionsIsASlice) {
  Built t({{"v", 3, 9}});
  const Value x = t.Input(Elem::kFloat, {Expr::Symbol("v"), 2});
  const Tensor in = Count(DType::kF32, {4, 2});
  const auto at = [&](std::vector<Expr> sizes, std::vector<int64_t> shape) {
    return Gather(t.b(), x, t.b().Sizes(Elem::kInt64, std::move(sizes), std::move(shape)), 0);
  };
  const Value last = at({-1}, {});
  EXPECT_EQ(last.rank(), 1);
  EXPECT_EQ(ValuesOf(t.Try(last, {in}).value()), (Values{6, 7}));
  EXPECT_EQ(ValuesOf(t.Try(at({2, 1, 0}, {3}), {in}).value()), (Values{4, 5, 2, 3, 0, 1}));
  EXPECT_EQ(ValuesOf(t.Try(at({1, 1}, {2}), {in}).value()), (Values{2, 3, 2, 3}));
  EXPECT_EQ(ValuesOf(t.Try(at({Expr::Symbol("v") - 2}, {1}), {in}).value()), (Values{4, 5}));
  EXPECT_EQ(t.Count(Op::kGather), 0);
  EXPECT_EQ(ValuesOf(t.Try(at({0, 2, -1}, {3}), {in}).value()), (Values{0, 1, 4, 5, 6, 7}));
  EXPECT_EQ(t.Count(Op::kGather), 1);
  // Not inside for every size: requests with a smaller size get an error.
  const Value fourth = at({3}, {1});
  EXPECT_EQ(ValuesOf(t.Try(fourth, {in}).value()), (Values{6, 7}));
  EXPECT_EQ(t.Try(fourth, {Count(DType::kF32, {3, 2})}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(t.Filled(), 0);
}

TEST(BuildIndexTest, ABranchThatIsNotTakenRaisesNoError) {
  Built t;
  const Value x = t.Input(Elem::kFloat, {3}), at = t.Input(Elem::kInt64, {1});
  const Value taken = t.Input(Elem::kBool, {});
  const auto run = [&](const Value& y, bool condition, double index) {
    return t.Try(y, {Count(DType::kF32, {3}), Of(DType::kI64, {1}, {index}),
                     Of(DType::kBool, {}, {condition ? 1.0 : 0.0})});
  };
  for (const bool when : {true, false}) {
    Value y;
    {
      const OpBuilder::Guard guard(&t.b(), taken, when);
      y = Gather(t.b(), x, at, 0);
    }
    EXPECT_EQ(ValuesOf(run(y, when, 2).value()), Values{2});
    EXPECT_EQ(run(y, when, 5).status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(ValuesOf(run(y, !when, 5).value()), Values{0});
  }
  EXPECT_EQ(run(Gather(t.b(), x, at, 0), false, 5).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(BuildIndexTest, RowsAlongAnAxisThatIsNotThereAreRefused) {
  Built t;
  Gather(t.b(), t.Input(Elem::kFloat, {}), t.Input(Elem::kInt64, {1}), 0);
  EXPECT_EQ(t.b().status().message(), "rows of [] are chosen along axis 0, which it does not have");
}

TEST(BuildIndexTest, GatherAtChecksEachAxis) {
  Built t({{"n", 1, 9}});
  const Value x = t.Input(Elem::kInt16, {Expr::Symbol("n"), 3});
  const Value y = GatherAt(t.b(), x, {t.Input(Elem::kInt64, {4}), t.Input(Elem::kInt32, {4})});
  const Tensor in = Count(DType::kI16, {2, 3});
  const auto run = [&](const Values& row, const Values& column) {
    return t.Try(y, {in, Of(DType::kI64, {4}, row), Of(DType::kI32, {4}, column)});
  };
  EXPECT_EQ(ValuesOf(run({0, 1, -1, -2}, {2, 0, -1, -3}).value()), (Values{2, 3, 5, 0}));
  // Inside the flattened tensor, but outside its own axis.
  for (const double outside : {3.0, 4.0, -4.0}) {
    EXPECT_EQ(run({0, 0, 0, 0}, {0, 0, 0, outside}).status().code(), absl::StatusCode::kOutOfRange);
  }
  EXPECT_EQ(run({0, 2, 0, 0}, {0, -3, 0, 0}).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(BuildIndexTest, PositionsThatAreCountedNeedNoCheck) {
  Built t({{"n", 1, 9}});
  const Value x = t.Input(Elem::kFloat, {Expr::Symbol("n"), 3});
  const Shape shape = {Expr::Symbol("n"), 1};
  const Value y =
      GatherAt(t.b(), x, {t.b().Iota(Elem::kInt64, shape, 0), t.Input(Elem::kInt64, shape)});
  const int compared = t.Count(Op::kLessThan);
  EXPECT_EQ(compared, 3);  // only for the second index: counting from the end, and both bounds
  EXPECT_EQ(
      ValuesOf(t.Try(y, {Count(DType::kF32, {3, 3}), Of(DType::kI64, {3, 1}, {2, -2, 0})}).value()),
      (Values{2, 4, 6}));
}

TEST(BuildIndexTest, ScatterAtTakesDuplicatesInOrder) {
  const auto run = [](std::string_view mode, const Values& row) {
    Built t({{"n", 1, 9}});
    const Value x = t.Input(Elem::kFloat, {Expr::Symbol("n"), 2});
    const Value at = t.Input(Elem::kInt64, {3}), column = t.Input(Elem::kInt64, {3});
    const Value y = ScatterAt(t.b(), x, {at, column}, t.Input(Elem::kFloat, {3}), mode);
    return t.Try(y, {Of(DType::kF32, {2, 2}, {10, 20, 30, 40}), Of(DType::kI64, {3}, row),
                     Of(DType::kI64, {3}, {0, 1, 0}), Of(DType::kF32, {3}, {1, 2, 3})});
  };
  EXPECT_EQ(ValuesOf(run("set", {1, 0, -1}).value()), (Values{10, 2, 3, 40}));
  EXPECT_EQ(ValuesOf(run("add", {1, 0, -1}).value()), (Values{10, 22, 34, 40}));
  EXPECT_EQ(ValuesOf(run("min", {1, 0, -1}).value()), (Values{10, 2, 1, 40}));
  EXPECT_EQ(run("set", {1, 0, 2}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(run("median", {1, 0, 0}).ok());
}

TEST(BuildIndexTest, TheOtherAxesComeWhole) {
  Built t({{"n", 1, 9}});
  const Value x = t.Input(Elem::kFloat, {Expr::Symbol("n"), 2, 2});
  const Value at = t.Input(Elem::kInt64, {2}), other = t.Input(Elem::kInt64, {2});
  const Tensor in = Count(DType::kF32, {3, 2, 2});
  const Tensor rows = Of(DType::kI64, {2}, {2, -3}), columns = Of(DType::kI64, {2}, {-1, 0});
  EXPECT_EQ(t.Run(GatherAt(t.b(), x, {at, other}), {in, rows, columns}),
            Of(DType::kF32, {2, 2}, {10, 11, 0, 1}));
  const Value minus = Neg(t.b(), GatherAt(t.b(), x, {at, other}));
  EXPECT_EQ(t.Run(ScatterAt(t.b(), x, {at, other}, minus, "set"), {in, rows, columns}),
            Of(DType::kF32, {3, 2, 2}, {-0.0, -1, 2, 3, 4, 5, 6, 7, 8, 9, -10, -11}));
}

TEST(BuildIndexTest, NoMoreIndicesThanAxes) {
  Built t;
  const Value x = t.Input(Elem::kFloat, {2}), at = t.Input(Elem::kInt64, {3});
  GatherAt(t.b(), x, {at, at});
  EXPECT_EQ(t.b().status().message(), "elements of [2] are chosen by 1 to 1 indices, not by 2");
}

}  // namespace
}  // namespace athanor::onnx
