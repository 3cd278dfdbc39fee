#include "compiler/plan/in_place.h"

#include "compiler/codegen/kir/emitter.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using kir::Emitter;
using kir::Var;

Expr Lane() { return Expr::Symbol(kir::kLane); }

struct Kernel {
  Emitter e{Bounds()};
  int out, a, b;
  explicit Kernel(DType result = DType::kF32)
      : out(e.Global(result, true)),
        a(e.Global(DType::kF32, false)),
        b(e.Global(DType::kF32, false)) {}
  kir::Kernel Done() { return std::move(e).Finish("k", 1); }
};

TEST(InPlaceTest, ElementForElement) {
  Kernel k;
  k.e.For(0, 64, 16, [&](const Expr& i) {
    Var x = k.e.Load(k.a, i + Lane(), 16, {}), y = k.e.Load(k.b, i + 1 + Lane(), 16, {});
    k.e.Store(k.out, i + Lane(), k.e.Compute(Op::kAdd, DType::kF32, {x, y}), {});
  });
  kir::Kernel kernel = k.Done();
  EXPECT_TRUE(MayWriteOver(kernel, 1));
  EXPECT_FALSE(MayWriteOver(kernel, 2));  // shifted by one
}

TEST(InPlaceTest, RemaindersWithEqualCounts) {
  Kernel k;
  k.e.VectorFor(0, 50, 16, [&](const Expr& i, const std::optional<Expr>& count) {
    k.e.Store(k.out, i + Lane(), k.e.Load(k.a, i + Lane(), 16, {count}), {count});
  });
  EXPECT_TRUE(MayWriteOver(k.Done(), 1));
}

TEST(InPlaceTest, AnotherBlockOrAnotherSize) {
  Kernel twice;  // a reduction first, then a map over the same row
  Var sum = twice.e.Mutable(twice.e.Float(DType::kF32, 0));
  twice.e.For(0, 16, 1, [&](const Expr& i) {
    twice.e.Assign(sum,
                   twice.e.Compute(Op::kAdd, DType::kF32, {sum, twice.e.Load(twice.a, i, 1, {})}));
  });
  twice.e.For(0, 16, 1, [&](const Expr& i) {
    twice.e.Store(twice.out, i,
                  twice.e.Compute(Op::kAdd, DType::kF32, {sum, twice.e.Load(twice.a, i, 1, {})}),
                  {});
  });
  EXPECT_FALSE(MayWriteOver(twice.Done(), 1));

  Kernel narrow(DType::kF16);
  narrow.e.For(0, 16, 1, [&](const Expr& i) {
    narrow.e.Store(narrow.out, i, narrow.e.Cast(narrow.e.Load(narrow.a, i, 1, {}), DType::kF16),
                   {});
  });
  EXPECT_FALSE(MayWriteOver(narrow.Done(), 1));
}

TEST(InPlaceTest, TeamsWriteOverWhatOneThreadReads) {
  const Expr g = Expr::Symbol(kir::kGrid);
  Kernel vectors, scalars;
  vectors.e.Store(vectors.out, 16 * g + Lane(), vectors.e.Load(vectors.a, 16 * g + Lane(), 16, {}),
                  {});
  scalars.e.Store(scalars.out, g, scalars.e.Load(scalars.a, g, 1, {}), {});
  kir::Kernel by_vectors = vectors.Done(), by_scalars = scalars.Done();
  for (const int threads : {1, 16}) {
    by_vectors.team = by_scalars.team = threads;
    EXPECT_TRUE(MayWriteOver(by_vectors, 1)) << threads;
    // Thread 0 may store before thread 5 has loaded.
    EXPECT_EQ(MayWriteOver(by_scalars, 1), threads == 1) << threads;
  }
}

TEST(InPlaceTest, StoresThatMayNotHappen) {
  Kernel k;
  k.e.For(0, 64, 16, [&](const Expr& i) {
    Var x = k.e.Load(k.a, i + Lane(), 16, {});
    Var some = k.e.Compute(Op::kLessThan, DType::kBool, {x, k.e.Load(k.b, i + Lane(), 16, {})});
    k.e.Store(k.out, i + Lane(), x, {std::nullopt, some});
  });
  EXPECT_FALSE(MayWriteOver(k.Done(), 1));
}

TEST(InPlaceTest, ResultsReadBack) {
  Kernel k;
  k.e.For(0, 64, 1, [&](const Expr& i) {
    Var sum =
        k.e.Compute(Op::kAdd, DType::kF32, {k.e.Load(k.a, i, 1, {}), k.e.Load(k.out, i, 1, {})});
    k.e.Store(k.out, i, sum, {});
  });
  EXPECT_FALSE(MayWriteOver(k.Done(), 1));
}

TEST(InPlaceTest, ALibrarysProductIsNoElementForElement) {
  // The other operand's element is read after the product has overwritten it.
  Kernel k;
  k.e.Gemm({k.out, 0, 4}, {k.a, 0, 4}, {k.a, 0, 4}, 4, 4, 4);
  k.e.For(0, 16, 1, [&](const Expr& i) { k.e.Store(k.out, i, k.e.Load(k.b, i, 1, {}), {}); });
  kir::Kernel kernel = k.Done();
  EXPECT_FALSE(MayWriteOver(kernel, 1));
  EXPECT_FALSE(MayWriteOver(kernel, 2));

  // If the product goes to scratch, writing over the operand is allowed.
  Kernel behind;
  const int tile = behind.e.Scratch(DType::kF32, 16);
  behind.e.Gemm({tile, 0, 4}, {behind.a, 0, 4}, {behind.a, 0, 4}, 4, 4, 4);
  behind.e.For(0, 16, 1, [&](const Expr& i) {
    behind.e.Store(behind.out, i, behind.e.Load(behind.b, i, 1, {}), {});
  });
  kernel = behind.Done();
  EXPECT_FALSE(MayWriteOver(kernel, 1));
  EXPECT_TRUE(MayWriteOver(kernel, 2));
}

}  // namespace
}  // namespace athanor
