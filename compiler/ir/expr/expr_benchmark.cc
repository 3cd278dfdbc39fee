// Cost of expressions on the compile path.
#include "benchmark/benchmark.h"
#include "compiler/ir/expr/expr.h"

namespace athanor {
namespace {

const Expr& B() {
  static const Expr e = Expr::Symbol("b");
  return e;
}
const Expr& S() {
  static const Expr e = Expr::Symbol("s");
  return e;
}
const Expr& F() {
  static const Expr e = Expr::Symbol("f");
  return e;
}

// An address: five terms over dims and loop variables.
Expr Address() {
  return Expr::Symbol("i") * S() * 384 + Expr::Symbol("j") * 384 + Expr::Symbol("h") * 32 +
         Expr::Symbol("k") + 7;
}

Bounds AddressBounds() {
  Bounds bounds;
  bounds.Set("b", 1, 512);
  bounds.Set("s", 1, 512);
  bounds.SetExtent("i", B());
  bounds.SetExtent("j", S());
  bounds.SetExtent("h", 12);
  bounds.SetExtent("k", 32);
  bounds.SetExtent("f", B() * S() * 384);
  return bounds;
}

// [b, s, 12, 32] -> [b, 12, s, 32] on a flat loop, and the address it comes from.
Expr Transpose(const Expr& f) {
  const Expr k = Mod(f, 32), j = Mod(FloorDiv(f, 32), S()), h = Mod(FloorDiv(f, 32 * S()), 12);
  const Expr i = FloorDiv(f, 384 * S());
  return ((i * S() + j) * 12 + h) * 32 + k;
}

Expr TransposeBack(const Expr& f) {
  const Expr k = Mod(f, 32), h = Mod(FloorDiv(f, 32), 12), j = Mod(FloorDiv(f, 384), S());
  const Expr i = FloorDiv(f, 384 * S());
  return ((i * 12 + h) * S() + j) * 32 + k;
}

void BM_Add(benchmark::State& state) {
  const Expr a = Address(), b = Address() + B();
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(BM_Add);

void BM_MultiplyByDim(benchmark::State& state) {
  const Expr a = Address();
  for (auto _ : state) benchmark::DoNotOptimize(a * S());
}
BENCHMARK(BM_MultiplyByDim);

void BM_MultiplyTwoByFive(benchmark::State& state) {
  const Expr a = Address(), b = S() + 4;
  for (auto _ : state) benchmark::DoNotOptimize(a * b);
}
BENCHMARK(BM_MultiplyTwoByFive);

void BM_MultiplyFiveByFive(benchmark::State& state) {
  const Expr a = Address();
  for (auto _ : state) benchmark::DoNotOptimize(a * a);
}
BENCHMARK(BM_MultiplyFiveByFive);

void BM_Substitute(benchmark::State& state) {
  const Expr a = Address();
  const std::map<std::string, Expr, std::less<>> values = {{"k", 4 * Expr::Symbol("v")},
                                                           {"h", Expr(3)}};
  for (auto _ : state) benchmark::DoNotOptimize(a.Substitute(values));
}
BENCHMARK(BM_Substitute);

void BM_Evaluate(benchmark::State& state) {
  const Expr a = Address();
  const Expr::Env env = {{"s", 128}, {"i", 3}, {"j", 5}, {"h", 7}, {"k", 9}};
  for (auto _ : state) benchmark::DoNotOptimize(a.Evaluate(env));
}
BENCHMARK(BM_Evaluate);

void BM_Equal(benchmark::State& state) {
  const Expr a = Address(), b = Address();
  for (auto _ : state) benchmark::DoNotOptimize(a == b);
}
BENCHMARK(BM_Equal);

void BM_FloorDivByConstant(benchmark::State& state) {
  const Expr a = Address();
  for (auto _ : state) benchmark::DoNotOptimize(FloorDiv(a, 384));
}
BENCHMARK(BM_FloorDivByConstant);

void BM_ModBySymbolic(benchmark::State& state) {
  const Expr a = Address(), d = S() * 384;
  for (auto _ : state) benchmark::DoNotOptimize(Mod(a, d));
}
BENCHMARK(BM_ModBySymbolic);

void BM_ToString(benchmark::State& state) {
  const Expr a = Address();
  for (auto _ : state) benchmark::DoNotOptimize(a.ToString());
}
BENCHMARK(BM_ToString);

void BM_Parse(benchmark::State& state) {
  const std::string text = Address().ToString();
  for (auto _ : state) benchmark::DoNotOptimize(Expr::Parse(text));
}
BENCHMARK(BM_Parse);

void BM_AddressInBounds(benchmark::State& state) {
  const Bounds bounds = AddressBounds();
  const Expr a = Address() - 7, size = B() * S() * 384;
  for (auto _ : state) benchmark::DoNotOptimize(bounds.Less(a, size));
}
BENCHMARK(BM_AddressInBounds);

void BM_SimplifyLoops(benchmark::State& state) {
  const Bounds bounds = AddressBounds();
  const Expr e = Mod(FloorDiv(Address() - 7, 32), 12);
  for (auto _ : state) benchmark::DoNotOptimize(bounds.Simplify(e));
}
BENCHMARK(BM_SimplifyLoops);

void BM_SimplifyTransposeThereAndBack(benchmark::State& state) {
  const Bounds bounds = AddressBounds();
  const Expr e = TransposeBack(Transpose(F()));
  if (bounds.Simplify(e) != F()) state.SkipWithError("did not cancel");
  for (auto _ : state) benchmark::DoNotOptimize(bounds.Simplify(e));
}
BENCHMARK(BM_SimplifyTransposeThereAndBack);

void BM_SimplifyInVain(benchmark::State& state) {
  const Bounds bounds = AddressBounds();
  const Expr e = FloorDiv(Transpose(F()), 7);
  for (auto _ : state) benchmark::DoNotOptimize(bounds.Simplify(e));
}
BENCHMARK(BM_SimplifyInVain);

}  // namespace
}  // namespace athanor
