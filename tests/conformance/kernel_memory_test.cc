// Runs everything of KIR that is no elementwise op, as each dialect prints it: loads and stores
// with every pattern of lanes and mask for every dtype, reductions, checked indices, random bits,
// index arithmetic.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compiler/codegen/kir/emitter.h"
#include "compiler/ir/graph/op.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"
#include "tests/conformance/kernel_runner.h"

namespace athanor {
namespace {

using kir::Emitter;
using kir::kLane;
using kir::kNoVar;
using kir::Mask;
using kir::Var;

class KernelMemory : public testing::TestWithParam<Machine> {};

// Returns what an element's index has beside that of its vector.
Expr LaneOf(int lanes) { return lanes > 1 ? Expr::Symbol(kLane) : Expr(0); }

Scalar Signed(int64_t v) { return Scalar::Signed(DType::kI64, v); }

// The expected element of a pattern's output at `i`: an element of x, zero, or the old value.
constexpr int64_t kZero = -1, kKept = -2;
struct Pattern {
  const char* name;
  int64_t stretch;  // the output has `stretch` times n elements
  std::function<int64_t(int64_t i)> source;
};

// x has 5n elements; `order` is a permutation of [0, n); `on` selects elements.
TEST_P(KernelMemory, PatternsAndMasks) {
  const int lanes = GetParam().lanes;
  for (int64_t n : {int64_t{3 * lanes + lanes / 2 + 1}, int64_t{2 * lanes}, int64_t{1}}) {
    for (const DTypeRow& row : kDTypes) {
      SCOPED_TRACE(Cat(row.name, ", n = ", n));
      std::mt19937_64 random(n);
      Tensor x = Tensor::Zeros(row.dtype, {5 * n}), on = Tensor::Zeros(DType::kBool, {n}),
             order = Tensor::Zeros(DType::kI64, {n});
      for (char& c : x.bytes) c = row.dtype == DType::kBool ? random() & 1 : random();
      std::iota(order.data<int64_t>(), order.data<int64_t>() + n, 0);
      std::shuffle(order.data<int64_t>(), order.data<int64_t>() + n, random);
      for (int64_t i = 0; i < n; ++i) on.bytes[i] = random() % 3 != 0;
      std::vector<int64_t> place(n);  // inverse of `order`
      for (int64_t i = 0; i < n; ++i) place[order.data<int64_t>()[i]] = i;
      auto is_on = [&](int64_t i) { return on.bytes[i] != 0; };
      auto first = [&](int64_t i) { return i / lanes * lanes; };

      Bounds bounds;
      bounds.Set("n", 1, 1 << 20);
      Emitter e(bounds);
      const int bx = e.Global(row.dtype, false), bon = e.Global(DType::kBool, false),
                border = e.Global(DType::kI64, false);
      std::vector<Pattern> patterns = {
          {"whole", 1, [&](int64_t i) { return i; }},
          {"load where on", 1, [&](int64_t i) { return is_on(i) ? i : kZero; }},
          {"store where on", 1, [&](int64_t i) { return is_on(i) ? i : kKept; }},
          {"one element, where on", 1, [&](int64_t i) { return is_on(i) ? first(i) : kZero; }},
          {"gather", 1, [&](int64_t i) { return order.data<int64_t>()[i]; }},
          {"gather where on, wild elsewhere", 1,
           [&](int64_t i) { return is_on(i) ? order.data<int64_t>()[i] : kZero; }},
          {"strided store", 3, [&](int64_t i) { return i % 3 == 0 ? i / 3 : kKept; }},
          {"scatter", 1, [&](int64_t i) { return place[i]; }},
          {"scatter where on", 1, [&](int64_t i) { return is_on(place[i]) ? place[i] : kKept; }},
          {"load if the first is on", 1, [&](int64_t i) { return is_on(first(i)) ? i : kZero; }},
          {"store if the first is on", 1, [&](int64_t i) { return is_on(first(i)) ? i : kKept; }},
      };
      // Chosen so that the last element read is the last element of x.
      const size_t strided = patterns.size();
      constexpr int kSteps[] = {2, 3, 4, 5};
      for (const int step : kSteps) {
        const int64_t start = 5 * n - 1 - step * (n - 1);
        patterns.push_back(
            {"strided load", 1, [step, start](int64_t i) { return start + step * i; }});
        patterns.push_back({"strided load where on", 1, [step, start, &is_on](int64_t i) {
                              return is_on(i) ? start + step * i : kZero;
                            }});
      }
      std::vector<int> out;
      for (size_t p = 0; p < patterns.size(); ++p) out.push_back(e.Global(row.dtype, true));
      e.VectorFor(0, Expr::Symbol("n"), lanes,
                  [&](const Expr& i, const std::optional<Expr>& count) {
                    const Expr at = i + LaneOf(lanes);
                    const Mask all{.count = count};
                    const Var von = e.Load(bon, at, lanes, all), one_on = e.Load(bon, i, 1, {});
                    const Var vorder = e.Load(border, at, lanes, all);
                    const Mask where{count, von}, scalar{count, one_on};
                    const Var wild = e.Compute(Op::kSelect, DType::kI64,
                                               {von, vorder, e.Const(Signed(int64_t{1} << 40))});
                    auto load = [&](const Expr& index, const Mask& mask) {
                      return e.Broadcast(e.Load(bx, index, lanes, mask), lanes);
                    };
                    const Var value = load(at, all);
                    e.Store(out[0], at, value, all);
                    e.Store(out[1], at, load(at, where), all);
                    e.Store(out[2], at, value, where);
                    e.Store(out[3], at, load(i, where), all);
                    e.Store(out[4], at, load(e.Symbol(vorder), all), all);
                    e.Store(out[5], at, load(e.Symbol(wild), where), all);
                    e.Store(out[6], 3 * at, value, all);
                    e.Store(out[7], e.Symbol(vorder), value, all);
                    e.Store(out[8], e.Symbol(wild), value, where);
                    e.Store(out[9], at, load(at, scalar), all);
                    e.Store(out[10], at, value, scalar);
                    for (size_t s = 0; s < std::size(kSteps); ++s) {
                      const Expr n_expr = Expr::Symbol("n");
                      const Expr from = 5 * n_expr - 1 - kSteps[s] * (n_expr - 1);
                      const Expr index = from + kSteps[s] * at;
                      e.Store(out[strided + 2 * s], at, load(index, all), all);
                      e.Store(out[strided + 2 * s + 1], at, load(index, where), all);
                    }
                  });
      std::vector<Tensor> got;
      for (const Pattern& p : patterns) got.push_back(Tensor::Zeros(row.dtype, {p.stretch * n}));
      absl::StatusOr<KernelError> error = RunKernel(std::move(e).Finish("patterns", 1), GetParam(),
                                                    {&x, &on, &order}, {n}, 1, &got);
      ASSERT_TRUE(error.ok()) << error.status();
      const size_t bytes = DTypeBytes(row.dtype);
      for (size_t p = 0; p < patterns.size(); ++p) {
        std::string want(got[p].bytes.size(), 0x5a);
        for (int64_t i = 0; i < patterns[p].stretch * n; ++i) {
          const int64_t source = patterns[p].source(i);
          if (source == kZero) std::memset(want.data() + i * bytes, 0, bytes);
          if (source >= 0)
            std::memcpy(want.data() + i * bytes, x.bytes.data() + source * bytes, bytes);
        }
        EXPECT_TRUE(got[p].bytes == want) << patterns[p].name;
      }
    }
  }
}

// Covers every reduction of every dtype: one vector in, one element out, per row.
TEST_P(KernelMemory, Reductions) {
  const int lanes = GetParam().lanes;
  constexpr int64_t kRows = 40;
  for (const DTypeRow& row : kDTypes) {
    if (!row.computes) continue;
    SCOPED_TRACE(std::string(row.name));
    Tensor x = Tensor::Zeros(row.dtype, {kRows, lanes});
    std::mt19937 random(1);
    // Small integers make sums and products exact in any order.
    for (int64_t i = 0; i < x.elements(); ++i) {
      const int v = static_cast<int>(random() % 5) - (IsUnsigned(row.dtype) ? 0 : 2);
      StoreScalar(x, i,
                  IsFloat(row.dtype)          ? Scalar::Float(row.dtype, v)
                  : row.dtype == DType::kBool ? Scalar::Unsigned(row.dtype, v > 0)
                                              : Scalar::Signed(row.dtype, v));
    }
    if (IsFloat(row.dtype)) StoreScalar(x, lanes + 1, Scalar::Float(row.dtype, std::nan("")));
    std::vector<Op> ops;
    for (Op op : {Op::kAdd, Op::kMul, Op::kMin, Op::kMax, Op::kAnd, Op::kOr}) {
      const TensorType t{row.dtype, {}};
      if (OpInfo(op).infer({t, t}, {}, Bounds()).ok()) ops.push_back(op);
    }
    Emitter e{Bounds()};
    const int in = e.Global(row.dtype, false);
    std::vector<Tensor> got;
    for (size_t k = 0; k < ops.size(); ++k) {
      e.Global(row.dtype, true);
      got.push_back(Tensor::Zeros(row.dtype, {kRows}));
    }
    const Expr g = Expr::Symbol(kir::kGrid);
    const Var v = e.Load(in, lanes * g + LaneOf(lanes), lanes, {});
    for (size_t k = 0; k < ops.size(); ++k)
      e.Store(1 + static_cast<int>(k), g, e.Reduce(ops[k], v), {});
    absl::StatusOr<KernelError> error =
        RunKernel(std::move(e).Finish("reduce", kRows), GetParam(), {&x}, {}, kRows, &got);
    ASSERT_TRUE(error.ok()) << error.status();
    for (size_t k = 0; k < ops.size(); ++k) {
      Tensor want = Tensor::Zeros(row.dtype, {kRows});
      for (int64_t r = 0; r < kRows; ++r) {
        Tensor sum = Tensor::Zeros(row.dtype, {}), next = sum, result = sum;
        StoreScalar(sum, 0, LoadScalar(x, r * lanes));
        for (int l = 1; l < lanes; ++l) {
          StoreScalar(next, 0, LoadScalar(x, r * lanes + l));
          ASSERT_TRUE(OpInfo(ops[k])
                          .reference(std::vector<const Tensor*>{&sum, &next}, {}, {}, &result)
                          .ok());
          sum = result;
        }
        StoreScalar(want, r, LoadScalar(sum, 0));
      }
      const absl::Status same = CompareTensors(got[k], want, 0, 0);
      EXPECT_TRUE(same.ok()) << OpName(ops[k]) << ": " << same;
    }
  }
}

// Expects a * b + c, rounded once. Products and sums of f16 and bf16 are exact in long double.
TEST_P(KernelMemory, FusedMultiplyAdd) {
  for (const DTypeRow& row : kDTypes) {
    if (!row.computes || row.dtype == DType::kBool) continue;
    for (int lanes : {1, GetParam().lanes}) {
      SCOPED_TRACE(Cat(row.name, "x", lanes));
      constexpr int64_t kRows = 2000;
      std::mt19937_64 random(7);
      std::vector<Tensor> in(3, Tensor::Zeros(row.dtype, {kRows * lanes}));
      for (Tensor& t : in) {
        for (int64_t i = 0; i < t.elements(); ++i) {
          const double v = std::ldexp(static_cast<double>(random() % 4096) - 2048,
                                      static_cast<int>(random() % 24) - 18);
          StoreScalar(t, i,
                      IsFloat(row.dtype) ? Scalar::Float(row.dtype, v)
                                         : Scalar::Unsigned(row.dtype, random()));
        }
      }
      Emitter e{Bounds()};
      std::vector<Var> args;
      const Expr at = lanes * Expr::Symbol(kir::kGrid) + LaneOf(lanes);
      for (int k = 0; k < 3; ++k) args.push_back(e.Load(e.Global(row.dtype, false), at, lanes, {}));
      e.Store(e.Global(row.dtype, true), at, e.Fma(args[0], args[1], args[2]), {});
      std::vector<Tensor> got = {in[0]};
      absl::StatusOr<KernelError> error = RunKernel(std::move(e).Finish("fma", kRows), GetParam(),
                                                    {&in[0], &in[1], &in[2]}, {}, kRows, &got);
      ASSERT_TRUE(error.ok()) << error.status();
      Tensor want = in[0];
      for (int64_t i = 0; i < want.elements(); ++i) {
        const Scalar a = LoadScalar(in[0], i), b = LoadScalar(in[1], i), c = LoadScalar(in[2], i);
        Scalar r = Scalar::Unsigned(row.dtype, a.u * b.u + c.u);
        if (row.dtype == DType::kF64) {
          r.f = std::fma(a.f, b.f, c.f);
        } else if (row.dtype == DType::kF32) {
          r.f =
              std::fmaf(static_cast<float>(a.f), static_cast<float>(b.f), static_cast<float>(c.f));
        } else if (IsFloat(row.dtype)) {
          r.f = a.f * b.f + c.f;  // exact: the terms are at most 50 bits apart
        }
        StoreScalar(want, i, r);
      }
      const absl::Status same = CompareTensors(got[0], want, 0, 0);
      EXPECT_TRUE(same.ok()) << same;
    }
  }
}

// The kernel records the first failing lane of the first failing item and computes the rest of the
// row.
TEST_P(KernelMemory, CheckedIndices) {
  for (int lanes : {1, GetParam().lanes}) {
    constexpr int64_t kRows = 6;
    Tensor index = Tensor::Zeros(DType::kI64, {kRows, lanes}),
           data = Tensor::Zeros(DType::kF32, {10});
    for (int64_t i = 0; i < 10; ++i) data.data<float>()[i] = static_cast<float>(i + 1);
    for (int64_t i = 0; i < kRows * lanes; ++i) index.data<int64_t>()[i] = i % 10;
    index.data<int64_t>()[lanes] = -5;  // in a lane that is not active
    index.data<int64_t>()[2 * lanes + lanes - 1] = 10;
    index.data<int64_t>()[4 * lanes] = INT64_MIN;
    Emitter e{Bounds()};
    const int in = e.Global(DType::kI64, false), values = e.Global(DType::kF32, false),
              out = e.Global(DType::kF32, true);
    const Expr g = Expr::Symbol(kir::kGrid);
    const Expr at = lanes * g + LaneOf(lanes);
    const Var i = e.Load(in, at, lanes, {});
    // Item 1 is masked off completely.
    const Var on = e.Compute(Op::kNot, DType::kBool,
                             {e.Compute(Op::kLessThan, DType::kBool,
                                        {e.Index((g - 1) * (g - 1), 1), e.Const(Signed(1))})});
    const Var ok = e.CheckIndex(i, 10, Mask{.predicate = on});
    e.Store(
        out, at,
        e.Load(values, e.Symbol(i), lanes, Mask{.predicate = e.And(e.Broadcast(on, lanes), ok)}),
        {});
    std::vector<Tensor> got = {Tensor::Zeros(DType::kF32, {kRows, lanes})};
    absl::StatusOr<KernelError> error = RunKernel(std::move(e).Finish("check", kRows), GetParam(),
                                                  {&index, &data}, {}, kRows, &got);
    ASSERT_TRUE(error.ok()) << error.status();
    EXPECT_EQ(error->code, 1);
    EXPECT_EQ(error->index, 10);
    EXPECT_EQ(error->extent, 10);
    EXPECT_EQ(error->item, 2);
    for (int64_t k = 0; k < kRows * lanes; ++k) {
      const int64_t j = index.data<int64_t>()[k];
      const bool valid = k / lanes != 1 && j >= 0 && j < 10;
      EXPECT_EQ(got[0].data<float>()[k], valid ? static_cast<float>(j + 1) : 0.0f) << k;
    }
  }
}

TEST_P(KernelMemory, RandomBitsEqualTheReference) {
  for (uint64_t seed : {uint64_t{0}, uint64_t{0x123456789abcdef0}, ~uint64_t{0}}) {
    for (int lanes : {1, GetParam().lanes}) {
      const int64_t n = 100;
      Tensor s = Tensor::Zeros(DType::kU64, {}), want = Tensor::Zeros(DType::kU32, {n});
      s.data<uint64_t>()[0] = seed;
      const Attrs attrs = {{"shape", Shape{n}}};
      ASSERT_TRUE(
          OpInfo(Op::kRandomBits).reference(std::vector<const Tensor*>{&s}, attrs, {}, &want).ok());
      Emitter e{Bounds()};
      const int in = e.Global(DType::kU64, false), out = e.Global(DType::kU32, true);
      e.VectorFor(0, n, lanes, [&](const Expr& i, const std::optional<Expr>& count) {
        const Expr at = i + LaneOf(lanes);
        e.Store(out, at, e.RandomBits(e.Index(at, lanes), e.Load(in, 0, 1, {})),
                Mask{.count = count});
      });
      std::vector<Tensor> got = {want};
      absl::StatusOr<KernelError> error =
          RunKernel(std::move(e).Finish("bits", 1), GetParam(), {&s}, {}, 1, &got);
      ASSERT_TRUE(error.ok()) << error.status();
      EXPECT_TRUE(got[0].bytes == want.bytes) << lanes << " lanes";
    }
  }
}

// Compares index expressions of every kind, by lane and uniform, with Expr::Evaluate.
TEST_P(KernelMemory, IndexArithmetic) {
  const int lanes = GetParam().lanes;
  constexpr int64_t kItems = 50, kSize = 7;
  std::vector<Expr> expressions;
  for (const char* text :
       {"3*g + lane", "floordiv(g + lane, 4)", "floordiv(lane - g, 4)", "floordiv(5*lane - 3*g, 7)",
        "floordiv(g*lane + 11, s0)", "floordiv(s0 - g, s0)", "min(g, 2*lane)", "max(-g, lane - 20)",
        "g - lane", "g*g*lane - 2*s0", "mod(g*lane - 30, 5)", "ceildiv(g - 3, 8)",
        "floordiv(floordiv(g, 3) + lane, s0 + 1)", "-9223372036854775808",
        "floordiv(max(lane, g), 2*s0)"}) {
    absl::StatusOr<Expr> parsed = Expr::Parse(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status();
    expressions.push_back(*parsed);
  }
  Emitter e{Bounds()};
  const Expr g = Expr::Symbol(kir::kGrid);
  std::vector<Tensor> got;
  for (const Expr& expr : expressions) {
    // The kernel names its first size "s0".
    const Expr index =
        expr.Substitute({{"s0", Expr::Symbol("n")}, {std::string(kLane), LaneOf(lanes)}});
    const Var v = e.Broadcast(e.Index(index, lanes), lanes);
    e.Store(e.Global(DType::kI64, true), lanes * g + LaneOf(lanes), v, {});
    got.push_back(Tensor::Zeros(DType::kI64, {kItems, lanes}));
  }
  absl::StatusOr<KernelError> error =
      RunKernel(std::move(e).Finish("index", kItems), GetParam(), {}, {kSize}, kItems, &got);
  ASSERT_TRUE(error.ok()) << error.status();
  for (size_t k = 0; k < expressions.size(); ++k) {
    for (int64_t i = 0; i < kItems * lanes; ++i) {
      const Expr::Env env = {{"g", i / lanes}, {"lane", i % lanes}, {"s0", kSize}};
      ASSERT_EQ(got[k].data<int64_t>()[i], expressions[k].Evaluate(env).value())
          << expressions[k].ToString() << " at g = " << i / lanes << ", lane = " << i % lanes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelMemory, testing::ValuesIn(Machines()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace athanor
