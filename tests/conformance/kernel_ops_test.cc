// Compares every elementwise op of the op table, for every dtype it takes, as the CPU dialect
// prints it, with the reference evaluator: whole vectors, a masked tail, and scalars, on every kind
// of target this machine can run. All ops of a dtype are one kernel, since most of the time goes
// into compiling.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compiler/codegen/emitter.h"
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

std::vector<uint64_t> EdgeBits(DType dtype) {
  std::vector<uint64_t> bits;
  if (IsFloat(dtype)) {
    const double inf = std::numeric_limits<double>::infinity();
    for (double v :
         {0.0,  1.0,   0.5,     1.5,     2.0,   2.5,   3.0,          7.0,          100.25,
          1e-3, 255.5, 65519.0, 65520.0, 88.5,  1e4,   2147483648.0, 4294967296.0, 9.3e18,
          1e38, 1e300, 1e-40,   1e-310,  464.0, 470.0, inf}) {
      bits.push_back(EncodeFloat(dtype, v));
      bits.push_back(EncodeFloat(dtype, -v));
    }
    // Adds the smallest and largest subnormal and normal values, and NaN.
    const int width = 8 * DTypeBytes(dtype);
    bits.push_back(1);
    bits.push_back(EncodeFloat(dtype, inf) - 1);
    bits.push_back(uint64_t{1} << (width - 1) | 1);
    bits.push_back(EncodeFloat(dtype, std::nan("")));
    return bits;
  }
  if (dtype == DType::kBool) return {0, 1};
  const uint64_t top = uint64_t{1} << (8 * DTypeBytes(dtype) - 1);
  for (uint64_t v : {0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100}) {
    bits.push_back(v);
    bits.push_back(0 - v);
  }
  for (uint64_t v : {top, top - 1, top + 1, top >> 1, top / 3}) bits.push_back(v);
  if (DTypeBytes(dtype) == 8) {  // values that nearly round to a tie of a float
    for (uint64_t v : {(1ull << 53) + 1, (1ull << 60) + 1, (1ull << 24) + 1, (0x180ull << 50) + 1})
      bits.push_back(v);
  }
  return bits;
}

// Returns operand number `which` of two: all pairs of edge values, then random values. The length
// is never a multiple of the vector length.
Tensor Operand(DType dtype, int which) {
  const std::vector<uint64_t> edges = EdgeBits(dtype);
  const size_t pairs = edges.size() * edges.size();
  const size_t n = (pairs + 300) / 64 * 64 + 7;
  Tensor t = Tensor::Zeros(dtype, {static_cast<int64_t>(n)});
  std::mt19937_64 random(which + 1);
  std::uniform_real_distribution<double> uniform(-20, 20);
  for (size_t i = 0; i < n; ++i) {
    uint64_t bits = random();
    if (i < pairs) {
      bits = edges[which == 0 ? i / edges.size() : i % edges.size()];
    } else if (IsFloat(dtype) && i % 2 == 0) {
      // Every second value lies in the domain of arcsine and the like.
      bits = EncodeFloat(dtype, uniform(random) / (i % 4 == 0 ? 16 : 1));
    }
    if (dtype == DType::kBool) bits &= 1;
    std::memcpy(t.bytes.data() + i * DTypeBytes(dtype), &bits, DTypeBytes(dtype));
  }
  return t;
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
    const Tensor a = Operand(dtype, 0), b = Operand(dtype, 1), condition = Conditions(a.elements());
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
