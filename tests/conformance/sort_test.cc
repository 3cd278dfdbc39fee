// Runs the kernel of Sort and TopK through pipeline, Clang and executor: against the reference
// evaluator for every dtype and edge value, and against the standard library's sort for long rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/codegen/kir/emitter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/kernel_runner.h"

namespace athanor {
namespace {

constexpr DType kDTypes[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
                             DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                             DType::kBF16, DType::kF32, DType::kF64};

// Parses a graph; T stands for the dtype.
Graph GraphOf(std::string body, DType dtype, const std::string& dims = "") {
  absl::StrReplaceAll({{"T[", absl::StrCat(std::string(DTypeName(dtype)), "[")}}, &body);
  const std::string text = absl::StrCat("graph \"g\" {\n", dims, body, "}");
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << text;
  return graph.ok() ? *graph : Graph();
}

// Makes random bits with repeated values, and the dtype's edge values: NaN of both signs with any
// payload, infinities, both zeros, the ends of the integers.
Tensor AnyBits(DType dtype, std::vector<int64_t> shape, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (char& byte : t.bytes) byte = static_cast<char>(rng());
  const double floats[] = {0.0, -0.0, NAN, -NAN, INFINITY, -INFINITY, 1.5, -1.5};
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (dtype == DType::kBool) t.bytes[i] &= 1;
    if (dtype == DType::kBool || rng() % 3 == 0) continue;
    const uint64_t edge = rng() % 8;
    if (IsFloat(dtype)) {
      StoreScalar(t, i, Scalar::Float(dtype, floats[edge]));
      continue;
    }
    const uint64_t all = ~uint64_t{0} >> (64 - 8 * DTypeBytes(dtype));
    const uint64_t bits[] = {0, 1, all, all - 1, all >> 1, (all >> 1) + 1, 7, 0};
    if (IsSigned(dtype)) {
      StoreScalar(t, i, Scalar::Signed(dtype, static_cast<int64_t>(bits[edge])));
    } else {
      StoreScalar(t, i, Scalar::Unsigned(dtype, bits[edge]));
    }
  }
  return t;
}

// Lengths around those at which the algorithm changes: few elements, whole vectors, the size of the
// buffer.
TEST(SortTest, EveryDTypeAtEveryLength) {
  std::mt19937 rng(1);
  for (DType t : kDTypes) {
    const Graph graph = GraphOf(R"(
        %0 = Input "x" : T[b, n] %1 = Sort(%0) {axis=1} %2 = Sort(%0) {axis=1, descending=true}
        output "up" = %1 output "down" = %2)",
                                t, "dim b in [0, 4] dim n in [0, 3000] ");
    for (int64_t n : {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 257, 1000}) {
      ExpectMatchesReference(graph, {AnyBits(t, {n % 2 + 1, n}, rng)});
    }
    ExpectMatchesReference(graph, {AnyBits(t, {0, 5}, rng)});
  }
}

TEST(SortTest, TheFirstOfEveryDType) {
  std::mt19937 rng(2);
  for (DType t : kDTypes) {
    // The algorithm depends on the key's width.
    const bool each = t == DType::kU8 || t == DType::kF32 || t == DType::kI64;
    for (int64_t n : each ? std::vector<int64_t>{1, 17, 530, 1999} : std::vector<int64_t>{1999}) {
      std::string body = absl::StrCat("%0 = Input \"x\" : T[b, ", n, "] "), outputs;
      int next = 0;
      for (int64_t k : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{10}, n / 2, n}) {
        if (k > n) continue;
        for (const char* largest : {"true", "false"}) {
          absl::StrAppend(&body, "%", ++next, " = TopK(%0) {axis=1, k=shape[", k,
                          "], largest=", largest, "} ");
          absl::StrAppend(&outputs, "output \"y", next, "\" = %", next, " ");
        }
      }
      const Graph graph = GraphOf(body + outputs, t, "dim b in [0, 4] ");
      for (int64_t b : {0, 3}) ExpectMatchesReference(graph, {AnyBits(t, {b, n}, rng)});
    }
  }
}

// Both k and the number of elements are only known at run time.
TEST(SortTest, KIsADim) {
  std::mt19937 rng(3);
  for (DType t : {DType::kF32, DType::kI64, DType::kU8}) {
    const Graph graph = GraphOf(R"(
        %0 = Input "x" : T[k + m, 3] %1 = Input "like" : T[k]
        %2 = TopK(%0) {axis=0, k=shape[k]} %3 = TopK(%0) {axis=0, k=shape[k], largest=false}
        output "y" = %2 output "z" = %3 output "w" = %1)",
                                t, "dim k in [0, 5000] dim m in [0, 5000] ");
    for (int64_t k : {0, 1, 7, 300}) {
      for (int64_t m : {0, 1, 512, 519, 2000}) {
        ExpectMatchesReference(graph, {AnyBits(t, {k + m, 3}, rng), AnyBits(t, {k}, rng)});
      }
    }
  }
}

TEST(SortTest, AnyAxisThroughViews) {
  std::mt19937 rng(4);
  for (DType t : {DType::kF32, DType::kF16, DType::kF64, DType::kI8}) {
    for (int axis : {0, 1, 2}) {
      const Graph graph = GraphOf(
          absl::StrCat(R"(%0 = Input "x" : T[b, 1200, 5]
            %1 = IndexMap(%0) {map=map[1200, b, 5]($1, 1199 - $0, $2)} %2 = Sort(%1) {axis=)",
                       axis, R"(, descending=true} output "y" = %2 )",
                       axis == 0 ? "%3 = TopK(%1) {axis=0, k=shape[20]} output \"z\" = %3" : ""),
          t, "dim b in [1, 40] ");
      for (int64_t b : {1, 3}) ExpectMatchesReference(graph, {AnyBits(t, {b, 1200, 5}, rng)});
    }
  }
}

TEST(SortTest, SeveralOrdersOfOneTensor) {
  std::mt19937 rng(15);
  const char* const kBodies[] = {
      R"(%0 = Input "a" : T[4, b + 4, 19] %1 = Sort(%0) {axis=0} %2 = TopK(%0) {axis=0, k=shape[3]}
         %3 = TopK(%0) {axis=0, k=shape[2], largest=false} output "s" = %1 output "t" = %2
         output "u" = %3)",
      R"(%0 = Input "a" : T[4, b + 4, 19] %1 = Sort(%0) {axis=1, descending=true}
         %2 = TopK(%0) {axis=1, k=shape[4]} output "s" = %1 output "t" = %2)",
      R"(%0 = Input "a" : T[4, b + 4, 19] %1 = Sort(%0) {axis=2}
         %2 = TopK(%0) {axis=2, k=shape[19], largest=false} output "s" = %1 output "t" = %2)"};
  for (DType t : kDTypes) {
    for (const char* body : kBodies) {
      const Graph graph = GraphOf(body, t, "dim b in [0, 16] ");
      for (int64_t b : {0, 3}) ExpectMatchesReference(graph, {AnyBits(t, {4, b + 4, 19}, rng)});
    }
  }
}

TEST(SortTest, OneRowOfAnyLength) {
  std::mt19937 rng(16);
  const Graph graph = GraphOf(R"(%0 = Input "a" : T[s] %1 = Sort(%0) {axis=0} %2 = Input "c" : T[b]
      %3 = Sort(%2) {axis=0, descending=true} output "y" = %1 output "z" = %3)",
                              DType::kF32, "dim b in [0, 16] dim s in [1, 1000] ");
  for (int64_t n : {0, 1, 2, 13}) {
    ExpectMatchesReference(
        graph, {AnyBits(DType::kF32, {n * n * 5 + 1}, rng), AnyBits(DType::kF32, {n}, rng)});
  }
}

TEST(SortTest, NothingAndOneElement) {
  std::mt19937 rng(9);
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{0}, {1}, {3, 0}, {0, 3}, {3, 1}, {1, 3}, {2, 0, 3}}) {
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      for (int64_t k = 0; k <= shape[axis]; ++k) {
        const Graph graph =
            GraphOf(absl::StrCat("%0 = Input \"x\" : T[", absl::StrJoin(shape, ", "),
                                 "] %1 = Sort(%0) {axis=", axis, "} %2 = TopK(%0) {axis=", axis,
                                 ", k=shape[", k, "]} output \"y\" = %1 output \"z\" = %2 "),
                    DType::kF16);
        ExpectMatchesReference(graph, {AnyBits(DType::kF16, shape, rng)});
      }
    }
  }
}

// Kernels that compute the operand, and that use the positions.
TEST(SortTest, BesideOtherKernels) {
  std::mt19937 rng(5);
  const Graph graph = GraphOf(R"(
      %0 = Input "x" : T[b, 64] %1 = Input "w" : T[64, 700]
      %2 = Contract(%0, %1) {spec="mk,kn->mn"} %3 = Softmax(%2) {axis=1}
      %4 = TopK(%3) {axis=1, k=shape[4]} %5 = Cast(%4) {dtype=f32} %6 = Add(%5, %5)
      output "y" = %6 output "p" = %4)",
                              DType::kF32, "dim b in [0, 9] ");
  for (int64_t b : {0, 1, 5}) {
    ExpectMatchesReference(graph, {RandomTensor(DType::kF32, {b, 64}, rng),
                                   RandomTensor(DType::kF32, {64, 700}, rng)});
  }
}

// Sorts a weight and a literal, which are known before any call.
TEST(SortTest, OfWhatIsKnownAhead) {
  std::mt19937 rng(6);
  const Graph graph = GraphOf(R"(
      %0 = Parameter "w" : T[3, 900] %1 = Sort(%0) {axis=1} %2 = TopK(%0) {axis=1, k=shape[3]}
      %3 = Input "x" : i64[3, 3] %4 = Add(%2, %3) output "y" = %1 output "z" = %4)",
                              DType::kF32);
  ExpectMatchesReference(graph, {RandomTensor(DType::kI64, {3, 3}, rng)},
                         {RandomTensor(DType::kF32, {3, 900}, rng)});
}

// Runs the kernel by itself on every kind of machine, with all its memory guarded.
TEST(SortTest, TheStatementStaysInItsMemory) {
  std::mt19937 rng(8);
  for (const Machine& machine : Machines()) {
    for (DType t : {DType::kU8, DType::kU16, DType::kU32, DType::kU64}) {
      for (DType place : {DType::kI32, DType::kI64}) {
        kir::Emitter e{Bounds()};
        const Expr n = Expr::Symbol("n");
        const int x = e.Global(t, false), keys = e.Global(t, true), places = e.Global(place, true);
        const int other_keys = e.Global(t, true), other_places = e.Global(place, true);
        e.For(0, n, 1, [&](const Expr& i) {
          e.Store(keys, i, e.Load(x, i, 1, {}), {});
          e.Store(places, i, e.Cast(e.Index(i, 1), place), {});
        });
        e.Sort(keys, places, other_keys, other_places, n);
        const kir::Kernel kernel = std::move(e).Finish("sort", 1);
        for (int64_t size : {0, 1, 2, 31, 32, 33, 64, 65, 700}) {
          const Tensor given = AnyBits(t, {size}, rng);
          const Tensor none = Tensor::Zeros(t, {size}), nowhere = Tensor::Zeros(place, {size});
          std::vector<Tensor> got = {none, nowhere, none, nowhere};
          const absl::StatusOr<KernelError> error =
              RunKernel(kernel, machine, {&given}, {size}, 1, &got);
          ASSERT_TRUE(error.ok()) << error.status();
          std::vector<int64_t> order(size);
          std::iota(order.begin(), order.end(), 0);
          std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            const uint64_t first = LoadScalar(given, a).u, second = LoadScalar(given, b).u;
            return first == second ? a < b : first < second;
          });
          for (int64_t i = 0; i < size; ++i) {
            EXPECT_EQ(LoadScalar(got[0], i).u, LoadScalar(given, order[i]).u) << machine << i;
            EXPECT_EQ(LoadScalar(got[1], i).i, order[i]) << machine << DTypeName(t) << i;
          }
        }
      }
    }
  }
}

template <typename T>
std::vector<int64_t> StableOrder(const T* x, int64_t n, bool descending) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return x[a] == x[b] ? a < b : descending ? x[b] < x[a] : x[a] < x[b];
  });
  return order;
}

// Rows that maximise or minimise what can be skipped, with two threads.
template <typename T>
void ExpectLongRows(DType dtype, const v1::Target& target) {
  constexpr int64_t kRows = 5, kLength = 60'001, kK = 300;
  const Graph graph = GraphOf(
      R"(%0 = Input "x" : T[5, n] %1 = TopK(%0) {axis=1, k=shape[300]}
         %2 = TopK(%0) {axis=1, k=shape[300], largest=false} %3 = Sort(%0) {axis=1}
         %4 = TopK(%0) {axis=1, k=shape[5]}
         output "largest" = %1 output "smallest" = %2 output "order" = %3 output "five" = %4)",
      dtype, "dim n in [300, 100000] ");
  std::mt19937 rng(7);
  Tensor x = Tensor::Zeros(dtype, {kRows, kLength});
  T* const at = x.data<T>();
  for (int64_t i = 0; i < kLength; ++i) {
    at[i] = static_cast<T>(static_cast<double>(rng()) - 2e9);
    at[kLength + i] = static_cast<T>(i);
    at[2 * kLength + i] = static_cast<T>(-i);
    at[3 * kLength + i] = static_cast<T>(3);
    at[4 * kLength + i] = static_cast<T>(rng() % 5);
  }
  absl::StatusOr<Compiled> model = Compile(graph, {}, target);
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::StatusOr<std::vector<Tensor>> y = model->Run({x});
  ASSERT_TRUE(y.ok()) << y.status();
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<int64_t> up = StableOrder(at + row * kLength, kLength, false);
    const std::vector<int64_t> down = StableOrder(at + row * kLength, kLength, true);
    const int64_t* const largest = (*y)[0].data<int64_t>() + row * kK;
    const int64_t* const smallest = (*y)[1].data<int64_t>() + row * kK;
    EXPECT_TRUE(std::equal(largest, largest + kK, down.begin())) << row;
    EXPECT_TRUE(std::equal(smallest, smallest + kK, up.begin())) << row;
    const int64_t* const five = (*y)[3].data<int64_t>() + row * 5;
    EXPECT_TRUE(std::equal(five, five + 5, down.begin())) << row;
    EXPECT_TRUE(std::equal(up.begin(), up.end(), (*y)[2].data<int64_t>() + row * kLength)) << row;
  }
}

TEST(SortTest, LongRows) {
  for (const v1::Target& target : TestTargets({0, 16, 1})) {
    ExpectLongRows<float>(DType::kF32, target);
    ExpectLongRows<int64_t>(DType::kI64, target);
  }
  ExpectLongRows<double>(DType::kF64, TestTargets({0})[0]);
  ExpectLongRows<int32_t>(DType::kI32, TestTargets({0})[0]);
}

TEST(SortTest, AnAxisWithoutBoundIsRefusedByName) {
  const Graph graph = GraphOf(R"(%0 = Input "x" : T[n] %1 = Sort "order"(%0) {axis=0}
      output "y" = %1)",
                              DType::kF32, "dim n in [0, 100000000000] ");
  const absl::StatusOr<Compiled> model = Compile(graph);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(model.status().message()),
              testing::AllOf(testing::HasSubstr("(Sort)"), testing::HasSubstr("axis 0"),
                             testing::HasSubstr("lower a dim's max")));
}

}  // namespace
}  // namespace athanor
