#include "runtime/cpu/blas.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Matrices of a product, in memory with `pad` elements behind each of their rows.
template <typename T>
struct Product {
  Product(int64_t rows, int64_t columns, int64_t sums, int64_t pad, bool left_transposed,
          bool right_transposed)
      : rows(rows),
        columns(columns),
        sums(sums),
        flip_left(left_transposed),
        flip_right(right_transposed),
        left_stride((flip_left ? rows : sums) + pad),
        right_stride((flip_right ? sums : columns) + pad),
        result_stride(columns + pad),
        left(left_stride * (flip_left ? sums : rows)),
        right(right_stride * (flip_right ? columns : sums)),
        // Reading former contents would show.
        result(result_stride * rows, static_cast<T>(kNan)) {
    uint32_t state = 1;
    for (std::vector<T>* values : {&left, &right}) {
      for (T& v : *values)
        v = static_cast<T>(static_cast<int>((state = state * 1664525 + 1013904223) >> 24) - 128) /
            64;
    }
  }

  T& Left(int64_t i, int64_t j) {
    return left[flip_left ? j * left_stride + i : i * left_stride + j];
  }
  T& Right(int64_t i, int64_t j) {
    return right[flip_right ? j * right_stride + i : i * right_stride + j];
  }

  void Run(const char* symbol) {
    BlasGemm(symbol)(rows, columns, sums, left.data(), left_stride, flip_left, right.data(),
                     right_stride, flip_right, result.data(), result_stride);
  }

  void ExpectRight(double bound) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double want = 0;
        for (int64_t k = 0; k < sums; ++k) want += double{Left(i, k)} * double{Right(k, j)};
        const double got = result[i * result_stride + j];
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(got)) << i << ", " << j << ": " << got;
        } else if (std::isinf(want)) {
          ASSERT_EQ(got, want) << i << ", " << j;
        } else {
          ASSERT_NEAR(got, want, bound * static_cast<double>(sums + 1)) << i << ", " << j;
        }
      }
      for (int64_t j = columns; j < result_stride; ++j) {
        ASSERT_TRUE(std::isnan(result[i * result_stride + j])) << "written past row " << i;
      }
    }
  }

  int64_t rows, columns, sums;
  bool flip_left, flip_right;
  int64_t left_stride, right_stride, result_stride;
  std::vector<T> left, right, result;
};

struct Extents {
  int64_t rows, columns, sums;
};

constexpr Extents kExtents[] = {{1, 1, 1},     {1, 7, 5},     {5, 1, 7},    {2, 3, 0},
                                {0, 4, 4},     {4, 0, 4},     {17, 31, 13}, {64, 128, 64},
                                {1, 400, 300}, {129, 67, 211}};

template <typename T>
void ExpectAllRight(const char* symbol, double bound) {
  for (const Extents& e : kExtents) {
    for (int flips = 0; flips < 4; ++flips) {
      for (int64_t pad : {0, 3}) {
        SCOPED_TRACE(testing::Message() << e.rows << " x " << e.columns << " x " << e.sums
                                        << ", flips " << flips << ", pad " << pad);
        Product<T> p(e.rows, e.columns, e.sums, pad, (flips & 1) != 0, (flips & 2) != 0);
        p.Run(symbol);
        p.ExpectRight(bound);
        // Zero times infinity or NaN is NaN.
        if (e.rows * e.columns * e.sums == 0) continue;
        p.Left(0, 0) = 0;
        p.Right(0, 0) = static_cast<T>(kInfinity);
        p.Left(e.rows - 1, e.sums - 1) = static_cast<T>(kNan);
        p.Right(e.sums - 1, e.columns - 1) = 0;
        p.Run(symbol);
        p.ExpectRight(bound);
      }
    }
  }
}

TEST(BlasTest, SaysItsVersion) {
  EXPECT_TRUE(absl::StartsWith(BlasVersion(), "OpenBLAS ")) << BlasVersion();
  EXPECT_EQ(BlasVersion().find(' ', 9), std::string::npos) << BlasVersion();
}

TEST(BlasTest, SinglePrecision) { ExpectAllRight<float>(kCpuSgemmSymbol, 4e-6); }
TEST(BlasTest, DoublePrecision) { ExpectAllRight<double>(kCpuDgemmSymbol, 1e-14); }

TEST(BlasTest, OffersNothingElse) {
  for (const char* name : {"", "cblas_sgemm", "system", "athanor_kernel", "athanor_hgemm"}) {
    EXPECT_EQ(BlasGemm(name), nullptr) << name;
  }
}

// The stride of an operand with one row does not matter.
TEST(BlasTest, StridesOfSingleRows) {
  const float left[] = {2}, right[] = {3, 4};
  float result[] = {0, 0};
  BlasGemm(kCpuSgemmSymbol)(1, 2, 1, left, 0, 0, right, 0, 0, result, 0);
  EXPECT_EQ(result[0], 6);
  EXPECT_EQ(result[1], 8);
}

size_t Threads() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    (void)task;
    ++count;
  }
  return count;
}

TEST(BlasTest, MakesNoThreads) {
  const size_t before = Threads();
  Product<float> p(512, 512, 512, 0, false, false);
  p.Run(kCpuSgemmSymbol);
  EXPECT_EQ(Threads(), before);
  p.ExpectRight(4e-6);
}

TEST(BlasTest, LeavesTheEnvironmentAsItWas) {
  BlasVersion();
  EXPECT_EQ(std::getenv("OPENBLAS_NUM_THREADS"), nullptr);
}

TEST(BlasTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 20; ++i) {
        Product<float> p(65, 67, 64 + i, 0, false, i % 2 == 1);
        p.Run(kCpuSgemmSymbol);
        p.ExpectRight(4e-6);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace athanor
