#include "compiler/codegen/kir/emitter.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::kir {
namespace {

Expr Lane() { return Expr::Symbol(kLane); }

Bounds Dims() {
  Bounds b;
  b.Set("n", 1, 1000);
  return b;
}

TEST(EmitterTest, ConstantsAndIndicesAreOneInAScope) {
  Emitter e{Bounds()};
  int out = e.Global(DType::kF32, true), a = e.Global(DType::kF32, false);
  Var one = e.Float(DType::kF32, 1), again = e.Float(DType::kF32, 1);
  EXPECT_EQ(one, again);
  EXPECT_NE(one, e.Float(DType::kF64, 1));
  EXPECT_NE(e.Float(DType::kF32, 0.0), e.Float(DType::kF32, -0.0));
  Var x = e.Load(a, 3, 1, {});
  // memory may have changed; callers that know better use Remember
  EXPECT_NE(x, e.Load(a, 3, 1, {}));
  Var sum = e.Compute(Op::kAdd, DType::kF32, {x, one});
  EXPECT_EQ(e.Index(Expr::Symbol("g") + 4, 1), e.Index(Expr::Symbol("g") + 4, 1));
  EXPECT_EQ(e.Broadcast(sum, 8), e.Broadcast(sum, 8));
  e.Store(out, 0, sum, {});
  Kernel k = std::move(e).Finish("k", 1);
  EXPECT_TRUE(Verify(k).ok()) << Verify(k);
}

// A statement is narrow if all that it computes of indices fits into i32, whatever the sizes.
TEST(EmitterTest, IndicesThatFitAreNarrow) {
  for (const bool asked : {false, true}) {
    Bounds dims = Dims();
    dims.Set("wide", 0, int64_t{1} << 31);
    dims.Set("any", 0, Expr::Symbol("unknown"));
    Emitter e{dims};
    if (asked) e.NarrowIndices();
    const int out = e.Global(DType::kI64, true);
    const Expr n = Expr::Symbol("n"), g = Expr::Symbol(kGrid);
    e.bounds().SetExtent(kGrid, n);
    const std::vector<std::pair<Expr, bool>> cases = {
        {1000 * n * g + 1, true},
        {2149 * n * g, true},  // 2149 * 1000 * 999 is below 2^31
        {2150 * n * g, false},
        {3000 * n * g, false},
        {3000 * n * g - 3000 * n * g + 2 * g, true},
        {FloorDiv(3000 * n * g + 1, 7001), false},  // the quotient fits, not the dividend
        {Expr::Symbol("wide") - 4, false},
        {MinOf(Expr::Symbol("any"), 4) + g, false},
        {2 * g, true},
        {g, false},  // nothing is computed
        {5, false}};
    for (const auto& [index, fits] : cases) e.Store(out, index, e.Index(7, 1), {});
    const Kernel k = std::move(e).Finish("k", n);
    size_t store = 0;
    for (const Stmt& s : k.body) {
      if (s.opcode != Opcode::kStore) continue;
      EXPECT_EQ(s.narrow, asked && cases[store].second) << cases[store].first.ToString();
      ++store;
    }
    EXPECT_EQ(store, cases.size());
  }
}

// Asks, of a vector, about the part that all lanes share and about the stride.
TEST(EmitterTest, VectorsAreNarrowByTheirBase) {
  Emitter e{Dims()};
  e.NarrowIndices();
  const int out = e.Global(DType::kF32, true);
  const Expr n = Expr::Symbol("n");
  const Var value = e.Broadcast(e.Float(DType::kF32, 1), 8);
  e.For(0, n, 8, [&](const Expr& i) {
    e.Store(out, 9 * i + Lane(), value, {});
    e.Store(out, i + n * Lane(), value, {n - 2 * i});
    e.Store(out, i + Lane(), value, {});
    e.Store(out, 9 * i + FloorDiv(Lane(), 2), value, {});
    e.Store(out, 9 * i + Lane(), value, {n * n * n * n - i});
  });
  const Kernel k = std::move(e).Finish("k", 1);
  std::string narrow;
  for (const Stmt& s : k.body.back().body) narrow += s.narrow ? '1' : '0';
  EXPECT_EQ(narrow, "11000");
}

// With one lane a loop over vectors is one over scalars, which may not use the lane.
TEST(EmitterTest, ScalarsHaveNoLane) {
  EXPECT_EQ(Emitter::Lane(8), Lane());
  EXPECT_EQ(Emitter::Lane(1), Expr(0));
  for (const int lanes : {1, 8}) {
    Emitter e{Dims()};
    const int out = e.Global(DType::kF32, true), a = e.Global(DType::kF32, false);
    int bodies = 0;
    e.VectorFor(0, Expr::Symbol("n"), lanes, [&](const Expr& i, const std::optional<Expr>& count) {
      const Expr at = i + e.Lane(lanes);
      e.Store(out, at, e.Load(a, at, lanes, {count}), {count});
      EXPECT_EQ(count.has_value(), bodies++ == 1);
    });
    EXPECT_EQ(bodies, lanes == 1 ? 1 : 2);
    const Kernel k = std::move(e).Finish("k", 1);
    EXPECT_TRUE(Verify(k).ok()) << Verify(k);
  }
}

TEST(EmitterTest, ValuesOfALoopStayInIt) {
  Emitter e{Bounds()};
  int out = e.Global(DType::kF32, true), a = e.Global(DType::kF32, false);
  Var inner[2];
  for (Var& v : inner) {
    e.For(0, 4, 1, [&](const Expr& i) {
      EXPECT_FALSE(e.Recall("x").has_value());
      v = e.Load(a, 7, 1, {});
      e.Remember("x", v);
      e.If(e.Const(Scalar::Unsigned(DType::kBool, 1)), [&] { EXPECT_EQ(e.Recall("x"), v); });
      e.Store(out, i, v, {});
    });
  }
  EXPECT_NE(inner[0], inner[1]);
  EXPECT_FALSE(e.Recall("x").has_value());
  Kernel k = std::move(e).Finish("k", 1);
  EXPECT_TRUE(Verify(k).ok()) << Verify(k);
}

// A load that uses nothing of a loop moves before it, and is found again inside.
TEST(EmitterTest, HoistsOutOfLoops) {
  Emitter e{Bounds()};
  const int out = e.Global(DType::kF32, true), a = e.Global(DType::kF32, false);
  const Expr row = e.Coordinate(Expr::Symbol("g"), 8);
  EXPECT_TRUE(e.bounds().Less(row, 8));
  EXPECT_EQ(e.Coordinate(3, 8), Expr(3));
  const auto hoisted = [&](const Expr& at) {
    Var v = kNoVar;
    e.Hoist(at, [&] {
      v = e.Load(a, at, 1, {});
      e.Remember("at " + at.ToString(), v);
    });
    EXPECT_EQ(e.Recall("at " + at.ToString()), v);
    return v;
  };
  e.For(0, 4, 1, [&](const Expr& i) {
    e.For(0, 5, 1, [&](const Expr& j) {
      EXPECT_TRUE(e.IsPlace(row + i * j));
      e.If(e.Const(Scalar::Unsigned(DType::kBool, 1)), [&] {
        e.Narrow(*j.symbol(), 1, 2, [&] {
          EXPECT_TRUE(e.bounds().NonNegative(j - 1));
          for (const Expr& at : {row, row + 8 * i, row + j}) {
            e.Store(out, row + 8 * i + 40 * j, hoisted(at), {});
          }
        });
        EXPECT_FALSE(e.bounds().NonNegative(j - 1));
      });
    });
  });
  const Var data = e.Cast(e.Load(a, 0, 1, {}), DType::kI64);
  EXPECT_FALSE(e.IsPlace(e.Symbol(data)));
  const Kernel k = std::move(e).Finish("k", 8);
  EXPECT_TRUE(Verify(k).ok()) << Verify(k);
  // The row's load is before all loops, the outer loop's load in that loop, and the load that the
  // condition guards inside.
  const auto loads = [](const std::vector<Stmt>& block) {
    return std::count_if(block.begin(), block.end(),
                         [](const Stmt& s) { return s.opcode == Opcode::kLoad; });
  };
  const auto loop = [](const std::vector<Stmt>& block) {
    return std::find_if(block.begin(), block.end(), [](const Stmt& s) { return !s.body.empty(); });
  };
  const auto outer = loop(k.body), inner = loop(outer->body), inside = loop(inner->body);
  EXPECT_EQ(loads(k.body), 2);  // and the load of `data`
  EXPECT_EQ(loads(outer->body), 1);
  EXPECT_EQ(loads(inner->body), 0);
  EXPECT_EQ(loads(inside->body), 1);
}

TEST(EmitterTest, ScalarsMeetVectors) {
  Emitter e{Bounds()};
  int a = e.Global(DType::kF32, true);
  Var vector = e.Load(a, Lane(), 8, {}), scalar = e.Float(DType::kF32, 2);
  Var sum = e.Compute(Op::kAdd, DType::kF32, {vector, scalar});
  EXPECT_EQ(e.type(sum), (Type{DType::kF32, 8}));
  EXPECT_EQ(e.type(e.Reduce(Op::kAdd, sum)), (Type{DType::kF32, 1}));
  EXPECT_EQ(e.type(e.Compute(Op::kLessThan, DType::kBool, {vector, scalar})),
            (Type{DType::kBool, 8}));
  EXPECT_EQ(e.type(e.Cast(sum, DType::kF16)), (Type{DType::kF16, 8}));
  EXPECT_EQ(e.Cast(sum, DType::kF32), sum);
  EXPECT_EQ(e.And(kNoVar, vector), vector);
  EXPECT_EQ(e.type(e.Index(Expr::Symbol("g"), 8)).lanes, 1);
  EXPECT_EQ(e.type(e.Index(Lane() + 4, 8)).lanes, 8);
  EXPECT_TRUE(Verify(std::move(e).Finish("k", 1)).ok());
}

int Loops(const std::vector<Stmt>& block) {
  int count = 0;
  for (const Stmt& s : block) count += (s.opcode == Opcode::kFor) + Loops(s.body);
  return count;
}

TEST(EmitterTest, RemaindersOfVectorLoops) {
  for (auto [elements, calls] : {std::pair<Expr, int>{64, 1},
                                 {70, 2},
                                 {Expr::Symbol("n"), 2},
                                 {16 * Expr::Symbol("n"), 1}}) {
    Emitter e(Dims());
    int out = e.Global(DType::kF32, true);
    int seen = 0, masked = 0;
    e.VectorFor(0, elements, 16, [&](const Expr& i, const std::optional<Expr>& count) {
      ++seen;
      masked += count.has_value();
      e.Store(out, i + Lane(), e.Broadcast(e.Float(DType::kF32, 1), 16), {count});
    });
    EXPECT_EQ(seen, calls) << elements.ToString();
    EXPECT_EQ(masked, calls - 1) << elements.ToString();
    Kernel k = std::move(e).Finish("k", 1);
    EXPECT_TRUE(Verify(k).ok()) << Verify(k) << ToText(k);
    EXPECT_GE(Loops(k.body), 1);
  }
}

// out[h * stride + w] for all h, w: one expression uses three dims first.
Kernel Strided(const std::string& height, const std::string& width, const std::string& stride) {
  Bounds bounds;
  for (const std::string& d : {height, width, stride}) bounds.Set(d, 1, 10);
  Emitter e(bounds);
  int out = e.Global(DType::kF32, true);
  const Expr h = Expr::Symbol(height), w = Expr::Symbol(width), by = Expr::Symbol(stride);
  e.For(0, h, 1, [&](const Expr& i) {
    e.For(0, w, 1,
          [&](const Expr& j) { e.Store(out, i * by + j + w - 1, e.Float(DType::kF32, 1), {}); });
  });
  return std::move(e).Finish("k", FloorDiv(h + 2 * w + by * w, 3));
}

TEST(EmitterTest, TextIsTheSameWhateverDimsAreCalled) {
  const Kernel k = Strided("h", "w", "by");
  std::vector<std::string> names = {"d0", "d1", "d10"};
  do {
    const Kernel other = Strided(names[0], names[1], names[2]);
    EXPECT_EQ(ToText(other), ToText(k)) << names[0] << names[1] << names[2];
    EXPECT_EQ(KirHash(other), KirHash(k));
    // At launch each argument is the dim that plays the same role.
    for (size_t s = 0; s < k.sizes.size(); ++s) {
      const std::string& role = k.sizes[s];
      EXPECT_EQ(other.sizes[s], role == "h" ? names[0] : role == "w" ? names[1] : names[2]);
    }
  } while (std::next_permutation(names.begin(), names.end()));
  EXPECT_NE(ToText(Strided("h", "w", "w")), ToText(k));
}

TEST(EmitterTest, DimsBecomeArgumentsInOrderOfUse) {
  Bounds bounds = Dims();
  bounds.Set("m", 1, 10);
  Emitter e(bounds);
  int out = e.Global(DType::kF32, true);
  e.For(0, Expr::Symbol("n"), 1,
        [&](const Expr& i) { e.Store(out, i * Expr::Symbol("m"), e.Float(DType::kF32, 1), {}); });
  Kernel k = std::move(e).Finish("k", Expr::Symbol("m"));
  EXPECT_EQ(k.sizes.size(), 2u);
  EXPECT_TRUE(Verify(k).ok()) << Verify(k);
  std::string text = ToText(k);
  EXPECT_EQ(text.substr(text.find(") ")), R"() grid s0
b0: f32 out
for i0 in [0, s1) step 1 {
  v0: f32 = const 0x3f800000 (1)
  store b0[i0*s0] = v0: f32
}
)") << text;
  absl::StatusOr<Kernel> parsed = ParseKernel(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ToText(*parsed), text);
}

TEST(EmitterTest, MutableRegisters) {
  Emitter e{Bounds()};
  int out = e.Global(DType::kF32, true), a = e.Global(DType::kF32, false);
  Var sum = e.Mutable(e.Float(DType::kF32, 0));
  e.For(0, 9, 1, [&](const Expr& i) {
    e.Assign(sum, e.Compute(Op::kAdd, DType::kF32, {sum, e.Load(a, i, 1, {})}));
  });
  e.Store(out, 0, sum, {});
  Kernel k = std::move(e).Finish("k", 1);
  EXPECT_TRUE(Verify(k).ok()) << Verify(k);
}

}  // namespace
}  // namespace athanor::kir
