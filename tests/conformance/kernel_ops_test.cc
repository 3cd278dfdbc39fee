// Compares every elementwise op of the op table, for every dtype it takes, as each dialect prints
// it, with the reference evaluator: whole vectors, a masked tail, and scalars, on every kind of
// target this machine can run. All ops of a dtype are one kernel, since most of the time goes
// into compiling.
#include <string>
#include <vector>

#include "compiler/codegen/kir/emitter.h"
#include "compiler/codegen/kir/written_kernels_testing.h"
#include "compiler/ir/graph/op.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"
#include "tests/conformance/kernel_runner.h"

namespace athanor {
namespace {

using kir::Emitter;
using kir::kLane;
using kir::Mask;
using kir::Var;

// An op on operands of given dtypes.
struct Case {
  Op op;
  Attrs attrs;
  std::vector<DType> operands;
  DType result;
};

std::string NameOf(const Case& c) {
  std::string name(OpName(c.op));
  if (c.attrs.contains("direction")) name += Cat(".", GetAttr<std::string>(c.attrs, "direction"));
  for (DType t : c.operands) name += Cat(" ", DTypeName(t));
  return Cat(name, " -> ", DTypeName(c.result));
}

// Returns every form of every elementwise op whose last operand is `dtype`.
std::vector<Case> CasesOf(DType dtype) {
  std::vector<Case> cases;
  auto add = [&](const OpRow& row, Attrs attrs, std::vector<DType> operands) {
    std::vector<TensorType> types;
    for (DType t : operands) types.push_back({t, {8}});
    absl::StatusOr<TensorType> type = row.infer(types, attrs, Bounds());
    if (type.ok()) cases.push_back({row.op, std::move(attrs), std::move(operands), type->dtype});
  };
  for (const OpRow& row : OpTable()) {
    if (row.op_class != OpClass::kElementwise) continue;
    if (row.op == Op::kCast || row.op == Op::kBitcast) {
      for (const DTypeRow& to : kDTypes) add(row, {{"dtype", to.dtype}}, {dtype});
    } else if (row.op == Op::kShift) {
      for (const char* d : {"left", "right"})
        add(row, {{"direction", std::string(d)}}, {dtype, dtype});
    } else if (row.op == Op::kSelect) {
      add(row, {}, {DType::kBool, dtype, dtype});
    } else {
      add(row, {}, std::vector<DType>(row.min_inputs, dtype));
    }
  }
  return cases;
}

// Returns a condition per element of the other operands.
Tensor Conditions(int64_t n) {
  Tensor t = Tensor::Zeros(DType::kBool, {n});
  for (int64_t i = 0; i < n; ++i) t.bytes[i] = i % 3 == 0 || i % 7 == 1;
  return t;
}

class KernelOps : public testing::TestWithParam<Machine> {
 protected:
  // Buffers are: the condition, a, b, then each case's result.
  static kir::Kernel Write(const std::vector<Case>& cases, DType dtype, int lanes) {
    const Expr n = Expr::Symbol("n");
    Bounds bounds;
    bounds.Set("n", 1, 1 << 20);
    Emitter e(bounds);
    const int condition = e.Global(DType::kBool, false), a = e.Global(dtype, false),
              b = e.Global(dtype, false);
    std::vector<int> results;
    for (const Case& c : cases) results.push_back(e.Global(c.result, true));
    e.VectorFor(0, n, lanes, [&](const Expr& i, const std::optional<Expr>& count) {
      const Expr at = lanes == 1 ? i : i + Expr::Symbol(kLane);
      const Mask mask{.count = count};
      const Var vc = e.Load(condition, at, lanes, mask), va = e.Load(a, at, lanes, mask),
                vb = e.Load(b, at, lanes, mask);
      for (size_t k = 0; k < cases.size(); ++k) {
        const Case& c = cases[k];
        std::vector<Var> args = {va, vb};
        if (c.op == Op::kSelect) args = {vc, va, vb};
        args.resize(c.operands.size());
        const bool left =
            c.op == Op::kShift && GetAttr<std::string>(c.attrs, "direction") == "left";
        e.Store(results[k], at, e.Compute(c.op, c.result, args, left), mask);
      }
    });
    return std::move(e).Finish("ops", 1);
  }

  static void Check(DType dtype, int lanes) {
    const std::vector<Case> cases = CasesOf(dtype);
    const Tensor a = EdgeOperand(dtype, 0), b = EdgeOperand(dtype, 1),
                 condition = Conditions(a.elements());
    std::vector<Tensor> got;
    for (const Case& c : cases) got.push_back(Tensor::Zeros(c.result, a.shape));
    absl::StatusOr<KernelError> error = RunKernel(Write(cases, dtype, lanes), GetParam(),
                                                  {&condition, &a, &b}, {a.elements()}, 1, &got);
    ASSERT_TRUE(error.ok()) << error.status();
    EXPECT_EQ(error->code, 0);
    for (size_t k = 0; k < cases.size(); ++k) {
      const Case& c = cases[k];
      std::vector<const Tensor*> operands = {&a, &b};
      if (c.op == Op::kSelect) operands = {&condition, &a, &b};
      operands.resize(c.operands.size());
      Tensor want = Tensor::Zeros(c.result, a.shape);
      ASSERT_TRUE(OpInfo(c.op).reference(operands, c.attrs, {}, &want).ok());
      if (c.op == Op::kSelect || c.op == Op::kBitcast) {
        EXPECT_TRUE(got[k].bytes == want.bytes)
            << NameOf(c) << ": not the same bits, " << lanes << " lanes";
        continue;
      }
      const double ulp = OpInfo(c.op).ulp;
      const absl::Status same =
          ulp == 0 ? CompareTensors(got[k], want, 0, 0) : CompareTensorsUlp(got[k], want, ulp);
      EXPECT_TRUE(same.ok()) << NameOf(c) << ", " << lanes << " lanes: " << same;
    }
  }
};

TEST_P(KernelOps, Vectors) {
  for (const DTypeRow& row : kDTypes) Check(row.dtype, GetParam().lanes);
}

// Short vectors share the scalar code of their target.
TEST_P(KernelOps, Scalars) {
  for (const DTypeRow& row : kDTypes) Check(row.dtype, GetParam().name == "avx512_short" ? 2 : 1);
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelOps, testing::ValuesIn(Machines()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace athanor
