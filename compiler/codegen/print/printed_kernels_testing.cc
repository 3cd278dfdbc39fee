#include "compiler/codegen/print/printed_kernels_testing.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "compiler/codegen/kir/written_kernels_testing.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

const char kFolder[] = "compiler/codegen/cuda/testdata/";

template <typename T>
Tensor Of(DType dtype, const std::vector<T>& values) {
  return Tensor::Of<T>(dtype, {static_cast<int64_t>(values.size())}, values);
}

// Compares index expressions with Expr::Evaluate, by negative values and by divisors of 0 too.
void IndicesEqualTheirExpressions(PrintedLauncher& launcher) {
  // The latter in i32 too, where every value on the way fits.
  for (const std::string name : {"indices", "narrow"}) {
    const kir::Kernel kernel =
        kir::ParseKernel(ReadFile(std::string(kFolder) + name + ".kir")).value();
    std::vector<Expr> expressions;
    for (const kir::Stmt& s : kernel.body) {
      if (s.opcode == kir::Opcode::kIndex) expressions.push_back(s.index);
    }
    ASSERT_EQ(expressions.size(), 10);
    Tensor at =
        Of<int64_t>(DType::kI64, {0, 1, -1, 2, 3, -3, 7, -8, 8, 9, -25, 1 << 20, -(1 << 20)});
    for (const int64_t size : {1, 2, 7, 1000}) {
      Tensor got = Tensor::Zeros(DType::kI64, {at.elements() * 10});
      launcher.Run(name + "_0", {&at, &got}, {at.elements(), size}, at.elements(), 3);
      for (int64_t g = 0; g < at.elements(); ++g) {
        const Expr::Env env = {
            {"g", g}, {"s0", at.elements()}, {"s1", size}, {"v0", at.data<int64_t>()[g]}};
        for (int k = 0; k < 10; ++k) {
          EXPECT_EQ(got.data<int64_t>()[10 * g + k], expressions[k].Evaluate(env).value())
              << name << ": " << expressions[k].ToString() << " at g = " << g << ", s1 = " << size;
        }
      }
    }
  }
}

// Runs all items, by any number of teams; the last team, which fails first, gives way to the lowest
// item. Does not check what is not active.
void TheLowestFailedItemIsRecorded(PrintedLauncher& launcher) {
  for (const int64_t teams : {1, 3, 8, 200}) {
    Tensor places = Of<int64_t>(DType::kI64, {4, -1, 0, 5, 1, INT64_MIN, INT64_MAX, 2}),
           on = Of<uint8_t>(DType::kBool, {1, 0, 1, 1, 1, 1, 1, 1}),
           data = Of<uint16_t>(DType::kF16, {10, 11, 12, 13, 14}),
           got = Of<uint16_t>(DType::kF16, std::vector<uint16_t>(8, 99));
    const RecordedFailure error =
        launcher.Run("gather_0", {&places, &on, &data, &got}, {8, 5}, 8, teams);
    EXPECT_EQ(got, Of<uint16_t>(DType::kF16, {14, 0, 10, 0, 11, 0, 0, 12}));
    EXPECT_EQ(error.code, 1);
    EXPECT_EQ(error.item, 3);
    EXPECT_EQ(error.index, 5);
    EXPECT_EQ(error.extent, 5);
  }
}

void NoFailureLeavesTheSlotAsItWas(PrintedLauncher& launcher) {
  Tensor places = Of<int64_t>(DType::kI64, {4}), on = Of<uint8_t>(DType::kBool, {1}),
         data = Of<uint16_t>(DType::kF16, {10, 11, 12, 13, 14}),
         got = Of<uint16_t>(DType::kF16, {0});
  const RecordedFailure error = launcher.Run("gather_0", {&places, &on, &data, &got}, {1, 5}, 1, 2);
  EXPECT_EQ(error.code | error.item | error.index | error.extent, 0);
}

void LoopsRunOverEveryElement(PrintedLauncher& launcher) {
  for (const int64_t n : {0, 1, 3, 4, 5, 1021}) {
    Tensor x = Tensor::Zeros(DType::kF32, {n}), got = x, want = x;
    for (int64_t i = 0; i < n; ++i) {
      const float v = i == 2 ? std::nanf("") : static_cast<float>(i % 7 - 3) / 4;
      x.data<float>()[i] = v;
      want.data<float>()[i] = v > 0 ? std::exp(v) : std::isnan(v) ? v : 0;
    }
    launcher.Run("relu_0", {&x, &got}, {n}, (n + 3) / 4, 7);
    const absl::Status same = CompareTensors(got, want, 0, 0);
    EXPECT_TRUE(same.ok()) << n << ": " << same;
  }
}

// Fills a row, number g, and returns its largest element.
float FillRow(int64_t g, float* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] = static_cast<float>((g * 31 + i * 17) % 23) / 3;
  return n == 0 ? 0 : *std::max_element(row, row + n);
}

// The scratch of a team is its own: many teams and few give the same.
void TeamsHaveTheirOwnScratch(PrintedLauncher& launcher) {
  constexpr int64_t kRows = 9;
  for (const int64_t teams : {1, 4, 64}) {
    for (const int64_t n : {0, 1, 50}) {
      Tensor x = Tensor::Zeros(DType::kF32, {kRows, n}), got = x, want = x;
      Tensor any = Tensor::Zeros(DType::kBool, {kRows});
      for (int64_t g = 0; g < kRows; ++g) {
        float* const row = x.data<float>() + g * n;
        const float most = FillRow(g, row, n);
        float sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += std::exp(row[i] + most * -1.0f);
        for (int64_t i = 0; i < n; ++i) {
          want.data<float>()[g * n + i] = std::exp(row[i] + most * -1.0f) / sum;
        }
      }
      launcher.Run("row_0", {&x, &got, &any}, {kRows, n}, kRows, teams);
      const absl::Status same = CompareTensors(got, want, 0, 0);
      EXPECT_TRUE(same.ok()) << teams << " teams, " << n << ": " << same;
      EXPECT_EQ(any.bytes, std::string(kRows, n > 0));
    }
  }
}

void AccumulatorsAndUnrolledLoops(PrintedLauncher& launcher) {
  for (const int64_t rows : {1, 2, 5}) {
    for (const int64_t sums : {0, 1, 13}) {
      Tensor left = Tensor::Zeros(DType::kBF16, {rows, sums}),
             right = Tensor::Zeros(DType::kF32, {sums}), got = Tensor::Zeros(DType::kF32, {rows}),
             want = got;
      for (int64_t i = 0; i < rows * sums; ++i) {
        StoreScalar(left, i, Scalar::Float(DType::kBF16, static_cast<double>(i % 11) - 4));
      }
      for (int64_t i = 0; i < sums; ++i) right.data<float>()[i] = static_cast<float>(i) / 8;
      for (int64_t g = 0; g < rows; ++g) {
        float sum = 0;
        for (int64_t i = 0; i < sums; ++i) {
          sum = std::fmaf(static_cast<float>(LoadScalar(left, g * sums + i).f),
                          right.data<float>()[i], sum);
        }
        want.data<float>()[g] = sum + 1;
      }
      launcher.Run("tile_0", {&left, &right, &got}, {rows, sums}, (rows + 1) / 2, 2);
      EXPECT_EQ(got, want) << rows << " rows, " << sums << " sums";
    }
  }
}

void SortsStably(PrintedLauncher& launcher) {
  for (const int64_t n : {0, 1, 2, 3, 7, 97, 1000}) {
    constexpr int64_t kRows = 3;
    Tensor x = Tensor::Zeros(DType::kU32, {kRows * n}), keys = x, want = x;
    Tensor places = Tensor::Zeros(DType::kI32, {kRows * n}), order = places;
    std::mt19937 random(n);
    for (int64_t g = 0; g < kRows; ++g) {
      uint32_t* const row = x.data<uint32_t>() + g * n;
      int32_t* const at = order.data<int32_t>() + g * n;
      for (int64_t i = 0; i < n; ++i)
        row[i] = g == 0 ? ~uint32_t{0} - i : random() % (g == 1 ? 5 : ~0u);
      std::iota(at, at + n, 0);
      SortBy(row, at, n);
      for (int64_t i = 0; i < n; ++i) want.data<uint32_t>()[g * n + i] = row[at[i]];
    }
    launcher.Run("sort_0", {&x, &keys, &places}, {n, kRows}, kRows, 2);
    EXPECT_EQ(keys, want) << n;
    EXPECT_EQ(places, order) << n;
  }
}

// Softmax by a team of `team` threads, whatever the number of teams.
void ExpectSoftmax(PrintedLauncher& launcher, const std::string& name, int64_t team) {
  constexpr int64_t kRows = 5;
  for (const int64_t teams : {1, 3}) {
    for (const int64_t n : {0, 1, 31, 32, 33, 150, 200}) {
      Tensor x = Tensor::Zeros(DType::kF32, {kRows, n}), got = x, want = x;
      Tensor any = Tensor::Zeros(DType::kBool, {kRows});
      for (int64_t g = 0; g < kRows; ++g) {
        float* const row = x.data<float>() + g * n;
        const float most = FillRow(g, row, n);
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += std::exp(row[i] - most);
        for (int64_t i = 0; i < n; ++i) {
          want.data<float>()[g * n + i] = static_cast<float>(std::exp(row[i] - most) / sum);
        }
      }
      launcher.Run(name, {&x, &got, &any}, {kRows, n}, kRows, teams);
      const absl::Status same = CompareTensors(got, want, 1e-6, 1e-5);
      EXPECT_TRUE(same.ok()) << team << " threads, " << teams << " teams, " << n << ": " << same;
      EXPECT_EQ(any.bytes, std::string(kRows, n > 0));
    }
  }
}

void TeamsReduceRows(PrintedLauncher& launcher) {
  ExpectSoftmax(launcher, "team_row_0", 32);
  ExpectSoftmax(launcher, "team_block_0", 128);
}

void TeamsMaskLanes(PrintedLauncher& launcher) {
  for (const int64_t n : {1, 7, 8, 9, 32, 45, 64}) {
    constexpr int64_t kStride = 3;
    Tensor a = Tensor::Zeros(DType::kF32, {n}), b = Tensor::Zeros(DType::kF32, {kStride * n}),
           least = Tensor::Zeros(DType::kF32, {(n + 31) / 32}),
           at = Tensor::Zeros(DType::kI64, {n}), got = Tensor::Zeros(DType::kBool, {n}), want = got;
    for (int64_t i = 0; i < n; ++i) {
      a.data<float>()[i] = static_cast<float>(i * 7 % 5) - 2;
      at.data<int64_t>()[i] = i * 11 % (4 * n) - n / 2;
    }
    for (int64_t i = 0; i < kStride * n; ++i) b.data<float>()[i] = static_cast<float>(i % 4) / 2;
    for (int64_t i = 0; i < least.elements(); ++i) least.data<float>()[i] = i == 0 ? -1 : 0.5;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t place = std::max<int64_t>(
          0, std::min<int64_t>(
                 static_cast<int64_t>(std::floor(static_cast<double>(at.data<int64_t>()[i]) / 3)),
                 n - 1));
      const float value =
          std::fma(a.data<float>()[i], b.data<float>()[kStride * i], a.data<float>()[place]);
      want.bytes[i] = std::max(value, least.data<float>()[i / 32]) < 1;
    }
    launcher.Run("team_map_0", {&a, &b, &got, &at, &least}, {n, kStride}, (n + 31) / 32, 2);
    EXPECT_EQ(got, want) << n;
  }
}

// Records the lowest index of the lowest failed item, whichever thread is the first; elements of
// failed checks are zero.
void TeamsCheckIndices(PrintedLauncher& launcher) {
  constexpr int64_t kRows = 4, kColumns = 70, kExtent = 9;
  Tensor rows = Of<int64_t>(DType::kI64, {0, 8, 9, 3}),
         places = Tensor::Zeros(DType::kI32, {kRows * kColumns}),
         data = Tensor::Zeros(DType::kF16, {kExtent * kExtent}),
         got = Tensor::Zeros(DType::kF16, {kRows * kColumns}), want = got,
         inside = Tensor::Zeros(DType::kBool, {kRows});
  for (int64_t i = 0; i < data.elements(); ++i) {
    data.data<uint16_t>()[i] = static_cast<uint16_t>(i + 1);
  }
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    places.data<int32_t>()[i] = static_cast<int32_t>(i % kExtent);
  }
  int32_t* const second = places.data<int32_t>() + kColumns;
  second[3] = 1000;
  second[40] = 77;
  second[41] = 9;
  second[69] = 12;
  for (int64_t g = 0; g < kRows; ++g) {
    const int64_t checked = rows.data<int64_t>()[g], row = checked < kExtent ? checked : 0;
    for (int64_t i = 0; i < kColumns; ++i) {
      const int64_t place = places.data<int32_t>()[g * kColumns + i];
      if (place >= kExtent) continue;
      want.data<uint16_t>()[g * kColumns + i] = data.data<uint16_t>()[row * kExtent + place];
    }
  }
  for (const int64_t teams : {1, 4}) {
    const RecordedFailure error =
        launcher.Run("team_gather_0", {&rows, &places, &data, &got, &inside},
                     {kRows, kColumns, kExtent}, kRows, teams);
    EXPECT_EQ(got, want);
    EXPECT_EQ(inside, Of<uint8_t>(DType::kBool, {1, 1, 0, 1}));
    EXPECT_EQ(error.code, 1);
    EXPECT_EQ(error.item, 1);
    EXPECT_EQ(error.index, 9);
    EXPECT_EQ(error.extent, kExtent);
  }
}

// Scratch that is too large for shared memory lies in the team's workspace; a barrier is between
// those who write it and those who read it.
void TeamsReadWhatOthersWrote(PrintedLauncher& launcher) {
  constexpr int64_t kRows = 2, kColumns = 4096;
  Tensor x = Tensor::Zeros(DType::kF16, {kRows * kColumns}), got = x, want = x,
         sum = Tensor::Zeros(DType::kF16, {kRows}), any = Tensor::Zeros(DType::kBool, {kRows}),
         most = Tensor::Zeros(DType::kI64, {kRows});
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const bool one = i % 512 == 3 * (i / kColumns);
    StoreScalar(x, i, Scalar::Float(DType::kF16, one ? (i < kColumns ? 3 : -2) : 0));
  }
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const int64_t row = i / kColumns * kColumns;
    want.data<uint16_t>()[i] = x.data<uint16_t>()[row + kColumns - 1 - (i - row)];
  }
  launcher.Run("team_large_0", {&x, &got, &sum, &any, &most}, {kRows}, kRows, 1);
  EXPECT_EQ(got, want);
  EXPECT_EQ(LoadScalar(sum, 0).f, 24);
  EXPECT_EQ(LoadScalar(sum, 1).f, -16);
  EXPECT_EQ(any, Of<uint8_t>(DType::kBool, {0, 1}));
  EXPECT_EQ(most, Of<int64_t>(DType::kI64, {3, 0}));
}

// Returns a * b + c rounded to odd if inexact: rounded once more, to a narrower float, it is the
// nearest to the exact sum.
double OddFma(double a, double b, double c) {
  std::fesetround(FE_TOWARDZERO);
  std::feclearexcept(FE_ALL_EXCEPT);
  volatile const double sum = std::fma(a, b, c);
  const uint64_t odd = std::fetestexcept(FE_INEXACT) != 0;
  std::fesetround(FE_TONEAREST);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(static_cast<double>(sum)) | odd);
}

// Small integers, whose sums are exact in f32.
Tensor SmallIntegers(DType dtype, std::vector<int64_t> shape, int seed) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) {
    const int64_t value = (i * 37 + i / 11 * 5 + seed) % 7 - 3;
    StoreScalar(t, i,
                IsFloat(dtype) ? Scalar::Float(dtype, static_cast<double>(value))
                               : Scalar::Signed(dtype, value));
  }
  return t;
}

// tensor_bf16_ahead.kir: rows of x by rows of w, copied two steps ahead.
void TilesOfCopiedFloats(PrintedLauncher& launcher) {
  constexpr int64_t kSums = 520, kColumns = 768, kTile = 32, kTilesBeside = kColumns / 64;
  for (const int64_t rows : {1, 37, 64}) {
    Tensor x = SmallIntegers(DType::kBF16, {rows, kSums}, 1),
           w = SmallIntegers(DType::kBF16, {kColumns, kSums}, 4),
           got = Tensor::Zeros(DType::kBF16, {rows, kColumns}), want = got;
    std::vector<int> a(x.elements()), b(w.elements());
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int>(LoadScalar(x, i).f);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int>(LoadScalar(w, i).f);
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < kColumns; ++n) {
        const int sum = std::inner_product(&a[m * kSums], &a[m * kSums] + kSums, &b[n * kSums], 0);
        StoreScalar(want, m * kColumns + n, Scalar::Float(DType::kBF16, sum));
      }
    }
    launcher.Run("tensor_bf16_ahead_0", {&got, &x, &w}, {rows},
                 kTilesBeside * ((rows + kTile - 1) / kTile), 7);
    EXPECT_EQ(got, want) << rows;
  }
}

// tensor_f16.kir: columns of x by columns of w, which loads transpose.
void TilesOfTransposedFloats(PrintedLauncher& launcher) {
  constexpr int64_t kSums = 64, kRows = 72, kColumns = 136, kItems = 2 * 3;
  Tensor x = SmallIntegers(DType::kF16, {kSums, kRows}, 3),
         w = SmallIntegers(DType::kF16, {kSums, kColumns}, 1),
         got = Tensor::Zeros(DType::kF16, {kRows, kColumns}), want = got;
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t n = 0; n < kColumns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < kSums; ++k) {
        sum += LoadScalar(x, k * kRows + m).f * LoadScalar(w, k * kColumns + n).f;
      }
      StoreScalar(want, m * kColumns + n, Scalar::Float(DType::kF16, sum));
    }
  }
  launcher.Run("tensor_f16_0", {&got, &x, &w}, {}, kItems, 4);
  EXPECT_EQ(got, want);
}

// tensor_i8_epilogue.kir: rows of x by columns of w, which no copy takes, and an offset by column.
void TilesOfBytes(PrintedLauncher& launcher) {
  constexpr int64_t kSums = 64;
  for (const auto& [rows, columns] : {std::pair(1, 1), std::pair(45, 70), std::pair(32, 64)}) {
    Tensor x = SmallIntegers(DType::kI8, {rows, kSums}, 2),
           w = SmallIntegers(DType::kI8, {kSums, columns}, 3),
           offset = SmallIntegers(DType::kI32, {columns}, 5),
           got = Tensor::Zeros(DType::kI32, {rows, columns}), want = got;
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < columns; ++n) {
        int32_t sum = offset.data<int32_t>()[n];
        for (int64_t k = 0; k < kSums; ++k) {
          sum += x.data<int8_t>()[m * kSums + k] * w.data<int8_t>()[k * columns + n];
        }
        want.data<int32_t>()[m * columns + n] = sum;
      }
    }
    launcher.Run("tensor_i8_epilogue_0", {&got, &x, &w, &offset}, {columns, rows},
                 (rows + 31) / 32 * ((columns + 63) / 64), 3);
    EXPECT_EQ(got, want) << rows << " x " << columns;
  }
}

// ticket.kir: four teams add up two rows each, and the last of them what all four have. Two
// launches follow each other on one set of counters.
void TeamsShareSums(PrintedLauncher& launcher) {
  constexpr int64_t kTeams = 4, kLanes = 128, kMost = 128;
  for (const int64_t tiles : {int64_t{1}, int64_t{3}, kMost}) {
    Tensor counters = Tensor::Zeros(DType::kU32, {kMost});
    for (const int seed : {2, 5}) {
      Tensor x = SmallIntegers(DType::kF32, {tiles * kTeams * 2, kLanes}, seed),
             sums = Tensor::Zeros(DType::kF32, {tiles, kLanes}),
             most = Tensor::Zeros(DType::kF32, {tiles}), want_sums = sums, want_most = most,
             parts = Tensor::Zeros(DType::kF32, {kMost * kTeams, kLanes}),
             part_most = Tensor::Zeros(DType::kF32, {kMost * kTeams});
      std::fill(parts.bytes.begin(), parts.bytes.end(), 0xff);
      for (int64_t t = 0; t < tiles; ++t) {
        float all = 0, largest = 0;
        for (int64_t row = t * kTeams; row < (t + 1) * kTeams; ++row) {
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            const float part = x.data<float>()[2 * row * kLanes + lane] +
                               x.data<float>()[(2 * row + 1) * kLanes + lane];
            want_sums.data<float>()[t * kLanes + kLanes - 1 - lane] += part;
            all += part;
            largest = std::max(largest, part);
          }
        }
        want_most.data<float>()[t] = all + largest;
      }
      launcher.Run("ticket_0", {&x, &sums, &most, &parts, &part_most, &counters}, {tiles},
                   tiles * kTeams, 7);
      EXPECT_EQ(sums, want_sums) << tiles;
      EXPECT_EQ(most, want_most) << tiles;
      EXPECT_EQ(counters, Tensor::Zeros(DType::kU32, {kMost})) << tiles;
    }
  }
}

constexpr PrintedCheck kChecks[] = {
    {"IndicesEqualTheirExpressions", IndicesEqualTheirExpressions},
    {"TheLowestFailedItemIsRecorded", TheLowestFailedItemIsRecorded},
    {"NoFailureLeavesTheSlotAsItWas", NoFailureLeavesTheSlotAsItWas},
    {"LoopsRunOverEveryElement", LoopsRunOverEveryElement},
    {"TeamsHaveTheirOwnScratch", TeamsHaveTheirOwnScratch},
    {"AccumulatorsAndUnrolledLoops", AccumulatorsAndUnrolledLoops},
    {"SortsStably", SortsStably},
    {"TeamsReduceRows", TeamsReduceRows},
    {"TeamsMaskLanes", TeamsMaskLanes},
    {"TeamsCheckIndices", TeamsCheckIndices},
    {"TeamsReadWhatOthersWrote", TeamsReadWhatOthersWrote},
    {"TilesOfCopiedFloats", TilesOfCopiedFloats},
    {"TilesOfTransposedFloats", TilesOfTransposedFloats},
    {"TilesOfBytes", TilesOfBytes},
    {"TeamsShareSums", TeamsShareSums},
};

}  // namespace

absl::Span<const PrintedCheck> PrintedChecks() { return kChecks; }

void ExpectPrintedOps(DType dtype, bool f64, RunElements run) {
  SCOPED_TRACE(std::string(DTypeName(dtype)));
  const WrittenOps written = WriteOps(dtype, 1, f64);
  Tensor x[] = {EdgeOperand(dtype, 0), EdgeOperand(dtype, 1), EdgeOperand(dtype, 1)};
  const int64_t n = x[0].elements();
  const size_t bytes = DTypeBytes(dtype);
  std::rotate(x[2].bytes.begin(), x[2].bytes.begin() + 13 * bytes, x[2].bytes.end());
  Tensor condition = Tensor::Zeros(DType::kBool, {n}), two = Tensor::Zeros(dtype, {n});
  for (int64_t i = 0; i < n; ++i) {
    condition.bytes[i] = i % 3 == 0 || i % 7 == 1;
    if (Computes(dtype)) {
      StoreScalar(two, i, IsFloat(dtype) ? Scalar::Float(dtype, 2) : Scalar::Unsigned(dtype, 2));
    }
  }
  std::vector<Tensor> got;
  for (size_t b = 2; b < written.kernel.buffers.size(); ++b) {
    got.push_back(Tensor::Zeros(written.kernel.buffers[b].dtype, {n}));
  }
  Tensor operands = Tensor::Zeros(dtype, {n, kOperandRow});
  for (int64_t i = 0; i < n; ++i) {
    for (int k = 0; k < 3; ++k) {
      operands.bytes.replace((i * kOperandRow + 100 * k) * bytes, bytes, x[k].bytes, i * bytes,
                             bytes);
    }
  }
  run(Cat("ops_", DTypeName(dtype), "x1"), condition, operands, got);
  for (const WrittenOps::Result& r : written.results) {
    std::vector<const Tensor*> inputs;
    for (int k : r.operands) {
      inputs.push_back(k == WrittenOps::kCondition ? &condition
                       : k == WrittenOps::kTwo     ? &two
                                                   : &x[k]);
    }
    const Tensor& result = got[r.buffer - 2];
    Tensor want = Tensor::Zeros(r.dtype, {n});
    ASSERT_TRUE(OpInfo(r.op).reference(inputs, r.attrs, {}, &want).ok());
    SCOPED_TRACE(Cat(OpName(r.op), " -> ", DTypeName(r.dtype)));
    if (r.op == Op::kSelect || r.op == Op::kBitcast) {
      EXPECT_EQ(result.bytes, want.bytes) << "not the same bits";
      continue;
    }
    const double ulp = OpInfo(r.op).ulp;
    const absl::Status same =
        ulp == 0 ? CompareTensors(result, want, 0, 0) : CompareTensorsUlp(result, want, ulp);
    EXPECT_TRUE(same.ok()) << same;
  }
  if (written.fma < 0) return;
  Tensor want = Tensor::Zeros(dtype, {n});
  for (int64_t i = 0; i < n; ++i) {
    const Scalar a = LoadScalar(x[0], i), b = LoadScalar(x[1], i), c = LoadScalar(x[2], i);
    Scalar r = Scalar::Unsigned(dtype, a.u * b.u + c.u);
    if (IsFloat(dtype)) {
      r.f = dtype == DType::kF64 ? std::fma(a.f, b.f, c.f) : OddFma(a.f, b.f, c.f);
    }
    StoreScalar(want, i, r);
  }
  const absl::Status same = CompareTensors(got[written.fma - 2], want, 0, 0);
  EXPECT_TRUE(same.ok()) << "fma: " << same;
}

// A masked access of one lane is there or not; elsewhere the output keeps its bytes.
void ExpectPrintedMoves(PrintedLauncher& launcher, bool f64) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == DType::kF64 && !f64) continue;
    for (const int64_t n : {0, 2}) {
      for (const bool on : {false, true}) {
        SCOPED_TRACE(Cat(row.name, ", n = ", n, on ? ", on" : ", off"));
        constexpr int64_t kPlace = 3;
        Tensor in = Tensor::Zeros(row.dtype, {std::max(3 * n, kPlace) + 1}), out = in;
        std::mt19937 random(7);
        for (char& c : in.bytes) c = row.dtype == DType::kBool ? 1 : static_cast<char>(random());
        std::fill(out.bytes.begin(), out.bytes.end(), 0x5a);
        Tensor want = out, places = Of<int64_t>(DType::kI64, {kPlace}),
               bools = Tensor::Zeros(DType::kBool, {1});
        bools.bytes[0] = on;
        const bool active[] = {true, n > 0, on, on, n > 0 && on, n > 0 && on};
        const size_t bytes = DTypeBytes(row.dtype);
        for (const Expr& place : WrittenPlaces(n, 0, kPlace)) {
          const int64_t at = place.constant().value();
          if (std::any_of(std::begin(active), std::end(active), [](bool b) { return b; })) {
            want.bytes.replace(at * bytes, bytes, in.bytes, at * bytes, bytes);
          }
        }
        launcher.Run(Cat("memory_", row.name, "x1"), {&in, &out, &places, &bools}, {n}, 1, 1);
        EXPECT_EQ(out.bytes, want.bytes);
      }
    }
  }
}

Tensor ExpectedRandomBits(uint64_t seed, int64_t items) {
  const Tensor of = Of<uint64_t>(DType::kU64, {seed});
  Tensor bits = Tensor::Zeros(DType::kU32, {items});
  const Attrs attrs = {{"shape", Shape{items}}};
  EXPECT_TRUE(
      OpInfo(Op::kRandomBits).reference(std::vector<const Tensor*>{&of}, attrs, {}, &bits).ok());
  return bits;
}

}  // namespace athanor
