#include "server/tuner/check/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"
#include "server/tuner/run/inputs.h"

namespace athanor {
namespace {

struct Row {
  const char* name;
  const char* text;  // in f32
  double useful;     // upper limit on bounds, as a part of the largest value
};

const Row kRows[] = {
    {"sum", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n, 50]
       %1 = SumReduce(%0) {axes=[1]} output "y" = %1 })",
     1e-4},
    {"product", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n, 9] %1 = Exp(%0)
       %2 = MulReduce(%0) {axes=[1]} %3 = Tanh(%1) %4 = MulReduce(%3) {axes=[1]}
       output "y" = %2 output "z" = %4 })",
     1e-3},
    {"contract", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n, 64]
       %1 = Parameter "w" : f32[64, 24] %2 = Contract(%0, %1) {spec="mk,kn->mn"}
       output "y" = %2 })",
     1e-4},
    {"contract of computed", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n, 64]
       %1 = Parameter "w" : f32[64, 24] %3 = Tanh(%0) %4 = Sin(%1)
       %2 = Contract(%3, %4) {spec="mk,kn->mn"} %5 = Gelu(%2) output "y" = %5 })",
     1e-3},
    {"gelu", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n] %1 = Gelu(%0)
       %2 = Gelu(%0) {approximate="tanh"} %3 = Silu(%0) %4 = Sigmoid(%0)
       output "a" = %1 output "b" = %2 output "c" = %3 output "d" = %4 })",
     1e-4},
    {"softmax", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n, 40]
       %1 = Softmax(%0) {axis=1} output "y" = %1 })",
     1e-3},
    {"norms", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n, 48]
       %1 = Parameter "s" : f32[48] %2 = Parameter "b" : f32[48]
       %3 = LayerNorm(%0, %1, %2) {epsilon=1e-5} %4 = RmsNorm(%0, %1) {epsilon=1e-5}
       output "l" = %3 output "r" = %4 })",
     1e-2},
    {"attention", R"(graph "g" { dim n in [1, 99] %0 = Input "q" : f32[2, n, 16]
       %1 = Input "k" : f32[2, n, 16] %2 = Input "v" : f32[2, n, 16]
       %3 = Attention(%0, %1, %2) {causal=true} output "y" = %3 })",
     1e-2},
    {"masked attention", R"(graph "g" { dim n in [1, 99] %0 = Input "q" : f32[2, n, 16]
       %1 = Input "k" : f32[2, n, 16] %2 = Input "v" : f32[2, n, 16]
       %3 = Input "m" : f32[n, n]
       %4 = Attention(%0, %1, %2, %3) output "y" = %4 })",
     1e-2},
    {"bags", R"(graph "g" { dim n in [1, 99] %0 = Parameter "t" : f32[30, 8]
       %1 = Input "i" : i64[3*n] %2 = Input "o" : i32[n]
       %3 = EmbeddingBag(%0, %1, %2) {mode="sum"} %4 = EmbeddingBag(%0, %1, %2) {mode="mean"}
       %5 = EmbeddingBag(%0, %1, %2) {mode="max"}
       output "s" = %3 output "m" = %4 output "x" = %5 })",
     1e-4},
    {"scatter", R"(graph "g" { dim n in [1, 99] %0 = Input "d" : f32[20, 4]
       %1 = Input "i" : i32[n] %2 = Input "u" : f32[n, 4] %3 = Tanh(%2)
       %4 = Scatter(%0, %1, %3) {axis=0, mode="add"} %5 = Scatter(%0, %1, %3) {axis=0, mode="min"}
       %6 = Scatter(%0, %1, %3) {axis=0, mode="mul"}
       output "a" = %4 output "m" = %5 output "p" = %6 })",
     1e-4},
    {"scan", R"(graph "g" { dim n in [1, 99] %0 = Input "h" : f32[4] %1 = Input "x" : f32[n, 4]
       %2 = Scan(%0, %1) {body=graph "b" {%0 = Input "i" : i64[] %1 = Input "h" : f32[4]
         %2 = Input "x" : f32[4] %3 = Add(%1, %2) : f32[4] %4 = Sigmoid(%3) : f32[4]
         output "h" = %4 output "y" = %3}, length=shape[n], result=0, scanned=1, states=1}
       %3 = Scan(%0, %1) {body=graph "b" {%0 = Input "i" : i64[] %1 = Input "h" : f32[4]
         %2 = Input "x" : f32[4] %3 = Add(%1, %2) : f32[4] %4 = Tanh(%3) : f32[4]
         output "h" = %4 output "y" = %3}, length=shape[n], result=1, reverse=true, scanned=1,
       states=1} output "h" = %2 output "y" = %3 })",
     1e-2},
    {"arithmetic", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n] %1 = Input "z" : f32[n]
       %2 = Mul(%0, %0) %3 = Exp(%0) %4 = Add(%2, %3) %5 = Div(%1, %4) %6 = Sqrt(%4)
       %7 = Log(%4) %8 = Pow(%6, %5) %9 = Max(%5, %7) %10 = Recip(%3)
       output "a" = %5 output "b" = %8 output "c" = %9 output "d" = %10 })",
     1e-2},
    {"trigonometry", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n] %1 = Exp(%0)
       %2 = Cos(%1) %3 = Atan(%1) %4 = Asinh(%1) %5 = Log1p(%1) %6 = Sinh(%3) %7 = Cosh(%3)
       %8 = Expm1(%2) %9 = Tan(%2) %10 = Acosh(%7) %11 = Asin(%2) %12 = Acos(%2) %13 = Atanh(%2)
       output "a" = %4 output "b" = %5 output "c" = %6 output "d" = %8 output "e" = %9
       output "f" = %7 })",
     1e-3},
    {"moved", R"(graph "g" { dim n in [1, 99] %0 = Input "x" : f32[n, 4] %1 = Exp(%0)
       %2 = IndexMap(%1) {map=map[4, n + 2]($1 - 1, $0), fill=f32[] {-7.0}}
       %3 = MaxReduce(%2) {axes=[1]} output "a" = %2 output "b" = %3 })",
     1e-4},
};

Expr::Env Sizes(int64_t n) { return {{"n", n}}; }

std::vector<Tensor> Widened(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> wide;
  for (const Tensor& t : inputs) {
    if (t.dtype != DType::kF32) {
      wide.push_back(t);
      continue;
    }
    Tensor w = Tensor::Zeros(DType::kF64, t.shape);
    for (int64_t i = 0; i < t.elements(); ++i) w.data<double>()[i] = t.data<float>()[i];
    wide.push_back(std::move(w));
  }
  return wide;
}

// The reference evaluator in f32 rounds after every node, so it acts like any kernel; the same
// graph in f64 is nearly exact.
TEST(ErrorBounds, HoldForF32AgainstF64AndAreUseful) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const absl::StatusOr<Graph> graph = ParseGraph(row.text);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const absl::StatusOr<Graph> exact = ParseGraph(absl::StrReplaceAll(row.text, {{"f32", "f64"}}));
    ASSERT_TRUE(exact.ok()) << exact.status();
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const auto inputs = RandomInputs(*graph, Sizes(1 + 3 * seed), seed, IndexChoice::kAny);
      ASSERT_TRUE(inputs.ok()) << inputs.status();
      const auto right = EvaluateWithBounds(*graph, *inputs);
      ASSERT_TRUE(right.ok()) << right.status();
      const auto values = Evaluate(*graph, *inputs);
      const auto wanted = Evaluate(*exact, Widened(*inputs));
      ASSERT_TRUE(values.ok() && wanted.ok()) << values.status() << wanted.status();
      for (size_t o = 0; o < values->size(); ++o) {
        EXPECT_EQ(right->values[o].bytes, (*values)[o].bytes) << "seed " << seed;
      }
      for (size_t o = 0; o < values->size(); ++o) {
        double largest = 0, loosest = 0;
        int64_t unknown = 0;
        for (int64_t i = 0; i < (*values)[o].elements(); ++i) {
          const double got = (*values)[o].data<float>()[i], want = (*wanted)[o].data<double>()[i];
          if (!std::isfinite(want)) continue;
          const double bound = right->errors[o][i];
          EXPECT_LE(std::fabs(got - want), bound) << "seed " << seed << " output " << o << " " << i;
          if (std::isinf(bound)) {
            ++unknown;
            continue;
          }
          largest = std::max(largest, std::fabs(want));
          loosest = std::max(loosest, bound);
        }
        EXPECT_LE(loosest, row.useful * largest + 1e-40) << "seed " << seed << " output " << o;
        // Powers of possibly negative numbers.
        EXPECT_LE(unknown, (*values)[o].elements() / 4) << "seed " << seed << " output " << o;
      }
    }
  }
}

std::vector<std::vector<double>> BoundsOf(const char* text, std::vector<Tensor> inputs) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  auto right = EvaluateWithBounds(*graph, inputs);
  EXPECT_TRUE(right.ok()) << right.status();
  return std::move(right->errors);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ErrorBounds, ExactThingsAreExact) {
  const Tensor i = Tensor::Of<int32_t>(DType::kI32, {3}, {1, -2, 3});
  const auto bounds = BoundsOf(
      R"(graph "g" { %0 = Input "x" : i32[3] %1 = Mul(%0, %0) %2 = LessThan(%0, %1)
         %3 = Cast(%1) {dtype=f32} %4 = Max(%3, %3) %5 = Floor(%3)
         output "a" = %1 output "b" = %2 output "c" = %3 output "d" = %4 output "e" = %5 })",
      {i});
  for (const auto& b : bounds) EXPECT_EQ(b, std::vector<double>(3, 0.0));
}

TEST(ErrorBounds, SumsFollowTheFormula) {
  const Tensor x = Tensor::Of<float>(DType::kF32, {4}, {1, -2, 3, 0.5});
  const auto bounds = BoundsOf(
      R"(graph "g" { %0 = Input "x" : f32[4] %1 = SumReduce(%0) {axes=[0]} output "a" = %1 })",
      {x});
  const double u = std::ldexp(1.0, -24), gamma = 12 * u / (1 - 12 * u);
  // ulp(2.5) is 2u * 2.
  EXPECT_NEAR(bounds[0][0], gamma * 6.5 + 4 * u, 1e-4 * u);
}

TEST(ErrorBounds, ComparisonsThatErrorCouldTurnAreUnknown) {
  const Tensor x = Tensor::Of<float>(DType::kF32, {2}, {1.0f, 5.0f});
  const float e = std::exp(1.0f);
  const Tensor y = Tensor::Of<float>(DType::kF32, {2}, {e, 5.0f});
  const auto bounds = BoundsOf(
      R"(graph "g" { %0 = Input "x" : f32[2] %1 = Input "y" : f32[2] %2 = Exp(%0)
         %3 = LessThan(%1, %2) %4 = Select(%3, %0, %1) output "c" = %3 output "s" = %4 })",
      {x, y});
  EXPECT_EQ(bounds[0][0], kInfinity);
  EXPECT_EQ(bounds[0][1], 0);
  // The choice is unknown, so the bound reaches from one value to the other.
  EXPECT_NEAR(bounds[1][0], e - 1, 1e-6);
  EXPECT_EQ(bounds[1][1], 0);
}

// What a state holds is exact; what is written into it keeps its own error.
TEST(ErrorBounds, WrittenStatesCarryTheErrorsOfUpdates) {
  const Tensor index = Tensor::Of<int32_t>(DType::kI32, {2}, {3, 1});
  const Tensor update = Tensor::Of<float>(DType::kF32, {2, 2}, {1, -2, 3, 0.5});
  const Tensor state = Tensor::Zeros(DType::kF32, {4, 2});
  const auto bounds = BoundsOf(
      R"(graph "g" { %0 = Input "i" : i32[2] %1 = Input "u" : f32[2, 2]
         %2 = StateRead "s" : f32[4, 2] %3 = Exp(%1) %4 = StateWrite(%2, %0, %3)
         output "u" = %3 output "s" = %4 update %4 })",
      {index, update, state});
  const std::vector<double>& u = bounds[0];
  const double want[] = {0, 0, u[2], u[3], 0, 0, u[0], u[1]};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(want[i] > 0, i / 2 % 2 == 1);
    EXPECT_GE(bounds[1][i], want[i]);
    EXPECT_LE(bounds[1][i], want[i] * 1.00001);
  }
}

// An inexact element may be sorted anywhere, and so may all elements it is compared with.
TEST(ErrorBounds, OrderOfWhatIsOffIsUnknown) {
  const Tensor x = Tensor::Of<float>(DType::kF32, {3}, {1.0f, 5.0f, 2.0f});
  const auto bounds = BoundsOf(
      R"(graph "g" { %0 = Input "x" : f32[3] %1 = Exp(%0) %2 = Sort(%1) {axis=0}
         %3 = TopK(%1) {axis=0, k=shape[2]} %4 = Sort(%0) {axis=0}
         output "a" = %2 output "b" = %3 output "c" = %4 })",
      {x});
  EXPECT_EQ(bounds[0], std::vector<double>(3, kInfinity));
  EXPECT_EQ(bounds[1], std::vector<double>(2, kInfinity));
  EXPECT_EQ(bounds[2], std::vector<double>(3, 0));
}

TEST(RandomInputs, AreValidUnevenAndRepeatable) {
  const absl::StatusOr<Graph> graph = ParseGraph(
      R"(graph "g" { dim n in [1, 99] %0 = Parameter "t" : f32[7, 3] %1 = Input "i" : i64[n]
         %2 = IndexMap(%1) {map=map[n]($0)} %3 = Cast(%2) {dtype=i32}
         %4 = Gather(%0, %3) {axis=0} %5 = Input "free" : i8[n] output "y" = %4 output "f" = %5 })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto a = RandomInputs(*graph, Sizes(50), 3, IndexChoice::kAny);
  const auto b = RandomInputs(*graph, Sizes(50), 3, IndexChoice::kAny);
  const auto c = RandomInputs(*graph, Sizes(50), 4, IndexChoice::kAny);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, *c);
  std::vector<bool> seen(7, false);
  for (int64_t i = 0; i < 50; ++i) {
    const int64_t index = (*a)[0].data<int64_t>()[i];
    ASSERT_GE(index, 0);
    ASSERT_LT(index, 7);
    seen[index] = true;
  }
  EXPECT_TRUE(seen[0] && seen[6]);
  for (const Tensor& t : *a) EXPECT_NE(t.bytes, Tensor::Zeros(t.dtype, t.shape).bytes);
}

TEST(RandomInputs, TooLargeForACheckIsRefused) {
  const absl::StatusOr<Graph> graph = ParseGraph(
      R"(graph "g" { dim n in [1, 100000] %0 = Input "x" : f32[n, n] output "y" = %0 })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto inputs = RandomInputs(*graph, Sizes(100000), 3, IndexChoice::kAny);
  EXPECT_EQ(inputs.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace athanor
