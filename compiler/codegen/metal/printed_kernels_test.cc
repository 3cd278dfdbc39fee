// Runs kernels, as the Metal dialect prints them, on the host, and compares them with the reference
// evaluator: the same bodies and headers but metal_stdlib.
#include <algorithm>
#include <barrier>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compiler/codegen/written_kernels_testing.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace on_host {

struct Printed {
  const char* name;
  int team;
  long scratch_bytes, argument_bytes;
  void (*run)(const void* arguments);
};

#include "athanor/device.h"
#include "athanor/printed_kernels.inc"

}  // namespace on_host

namespace {

using on_host::Buffer;
using on_host::ErrorSlot;
using on_host::host;

const std::string kFolder = "compiler/codegen/cuda/testdata/";

Buffer All(Tensor& t) {
  return {reinterpret_cast<unsigned char*>(t.bytes.data()), static_cast<long>(t.bytes.size())};
}
Buffer Element(Tensor& t, int64_t i) {
  const int bytes = DTypeBytes(t.dtype);
  return {All(t).data + i * bytes, bytes};
}

template <typename T>
Tensor Of(DType dtype, const std::vector<T>& values) {
  return Tensor::Of<T>(dtype, {static_cast<int64_t>(values.size())}, values);
}

// The meeting of the threads of the team that runs.
std::unique_ptr<std::barrier<>> meeting;

// A launch of a printed kernel: its arguments as a launch builds them without knowing the kernel,
// and its teams one after another, the last one first.
class Launch {
 public:
  explicit Launch(const std::string& name) {
    for (const on_host::Printed& p : on_host::kPrinted) {
      if (p.name == name) printed_ = &p;
    }
    EXPECT_NE(printed_, nullptr) << name;
  }

  ErrorSlot Run(const std::vector<Buffer>& buffers, const std::vector<int64_t>& sizes,
                int64_t items, int64_t teams) {
    std::vector<int64_t> words;
    const auto add = [&](const void* p) { words.push_back(reinterpret_cast<int64_t>(p)); };
    for (const Buffer& b : buffers) {
      add(b.data);
      words.push_back(b.bytes);
    }
    words.insert(words.end(), sizes.begin(), sizes.end());
    words.push_back(items);
    // Each team finds what the one before left behind.
    const std::unique_ptr<char[]> workspace(new char[teams * printed_->scratch_bytes + 1]);
    std::memset(workspace.get(), 0x5a, teams * printed_->scratch_bytes);
    add(workspace.get());
    words.push_back(printed_->scratch_bytes);
    ErrorSlot error = {};
    add(&error);
    EXPECT_EQ(8 * words.size(), printed_->argument_bytes);
    host = {.teams = teams, .meet = [] { meeting->arrive_and_wait(); }};
    for (host.team = teams - 1; host.team >= 0; --host.team) RunTeam(words.data());
    return error;
  }

 private:
  void RunTeam(const void* arguments) const {
    if (printed_->team == 1) return printed_->run(arguments);
    meeting = std::make_unique<std::barrier<>>(printed_->team);
    std::vector<std::thread> threads;
    for (int lane = 0; lane < printed_->team; ++lane) {
      threads.emplace_back([&, lane] {
        on_host::host_lane = lane;
        printed_->run(arguments);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const on_host::Printed* printed_ = nullptr;
};

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

// Runs all ops of a dtype at every element of two operands, and a third.
void CheckOps(DType dtype) {
  SCOPED_TRACE(std::string(DTypeName(dtype)));
  const WrittenOps written = WriteOps(dtype, 1, /*f64=*/false);
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
  Launch launch(Cat("ops_", DTypeName(dtype), "x1"));
  Tensor operands = Tensor::Zeros(dtype, {201});
  for (int64_t i = 0; i < n; ++i) {
    for (int k = 0; k < 3; ++k)
      operands.bytes.replace(100 * k * bytes, bytes, x[k].bytes, i * bytes, bytes);
    std::vector<Buffer> buffers = {Element(condition, i), All(operands)};
    for (Tensor& t : got) buffers.push_back(Element(t, i));
    launch.Run(buffers, {}, 1, 1);
  }
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
    if (IsFloat(dtype)) r.f = OddFma(a.f, b.f, c.f);
    StoreScalar(want, i, r);
  }
  const absl::Status same = CompareTensors(got[written.fma - 2], want, 0, 0);
  EXPECT_TRUE(same.ok()) << "fma: " << same;
}

TEST(PrintedKernels, OpsEqualTheReference) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype != DType::kF64) CheckOps(row.dtype);
  }
}

// A masked access of one lane is there or not; elsewhere the output keeps its bytes.
TEST(PrintedKernels, MovesEqualThoseOfOneLane) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == DType::kF64) continue;
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
        Launch(Cat("memory_", row.name, "x1"))
            .Run({All(in), All(out), All(places), All(bools)}, {n}, 1, 1);
        EXPECT_EQ(out.bytes, want.bytes);
      }
    }
  }
}

// Compares index expressions with Expr::Evaluate, by negative values and by divisors of 0 too.
void ExpectIndices(const std::string& name) {
  const kir::Kernel kernel = kir::ParseKernel(ReadFile(kFolder + name + ".kir")).value();
  std::vector<Expr> expressions;
  for (const kir::Stmt& s : kernel.body) {
    if (s.opcode == kir::Opcode::kIndex) expressions.push_back(s.index);
  }
  ASSERT_EQ(expressions.size(), 10);
  Tensor at = Of<int64_t>(DType::kI64, {0, 1, -1, 2, 3, -3, 7, -8, 8, 9, -25, 1 << 20, -(1 << 20)});
  for (const int64_t size : {1, 2, 7, 1000}) {
    Tensor got = Tensor::Zeros(DType::kI64, {at.elements() * 10});
    Launch(name + "_0").Run({All(at), All(got)}, {at.elements(), size}, at.elements(), 3);
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

TEST(PrintedKernels, IndicesEqualTheirExpressions) { ExpectIndices("indices"); }

// In i32 too, where every value on the way fits.
TEST(PrintedKernels, NarrowIndicesEqualTheirExpressions) { ExpectIndices("narrow"); }

TEST(PrintedKernels, RandomBitsEqualTheReference) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{0x123456789abcdef0}, ~uint64_t{0}}) {
    Tensor s = Of<uint64_t>(DType::kU64, {seed}), want = Tensor::Zeros(DType::kU32, {101});
    const Attrs attrs = {{"shape", Shape{101}}};
    ASSERT_TRUE(
        OpInfo(Op::kRandomBits).reference(std::vector<const Tensor*>{&s}, attrs, {}, &want).ok());
    for (int64_t i = 0; i < 101; ++i) {
      EXPECT_EQ(on_host::philox(i, seed), want.data<uint32_t>()[i]) << i << ", seed " << seed;
    }
  }
}

// Whatever the number of teams, all items run; the last team, which fails first, gives way to the
// lowest item. What is not active is not checked.
TEST(PrintedKernels, TheLowestFailedItemIsRecorded) {
  for (const int64_t teams : {1, 3, 8, 200}) {
    Tensor places = Of<int64_t>(DType::kI64, {4, -1, 0, 5, 1, INT64_MIN, INT64_MAX, 2}),
           on = Of<uint8_t>(DType::kBool, {1, 0, 1, 1, 1, 1, 1, 1}),
           data = Of<uint16_t>(DType::kF16, {10, 11, 12, 13, 14}),
           got = Of<uint16_t>(DType::kF16, std::vector<uint16_t>(8, 99));
    const ErrorSlot error =
        Launch("gather_0").Run({All(places), All(on), All(data), All(got)}, {8, 5}, 8, teams);
    EXPECT_EQ(got, Of<uint16_t>(DType::kF16, {14, 0, 10, 0, 11, 0, 0, 12}));
    EXPECT_EQ(error.code, 1);
    EXPECT_EQ(error.item, 3);
    EXPECT_EQ(error.index, 5);
    EXPECT_EQ(error.extent, 5);
    EXPECT_EQ(error.lock, 0);
  }
}

TEST(PrintedKernels, NoFailureLeavesTheSlotAsItWas) {
  Tensor places = Of<int64_t>(DType::kI64, {4}), on = Of<uint8_t>(DType::kBool, {1}),
         data = Of<uint16_t>(DType::kF16, {10, 11, 12, 13, 14}),
         got = Of<uint16_t>(DType::kF16, {0});
  const ErrorSlot error =
      Launch("gather_0").Run({All(places), All(on), All(data), All(got)}, {1, 5}, 1, 2);
  EXPECT_EQ(error.code | error.item | error.index | error.extent | error.lock, 0);
}

// Of one item the first failure stays, of two the lower item's, in any order of writing.
TEST(Record, KeepsTheLowestItemsFirstFailure) {
  ErrorSlot slot = {};
  const auto expect = [&](long item, long index) {
    EXPECT_EQ(slot.code, 1);
    EXPECT_EQ(slot.item, item);
    EXPECT_EQ(slot.index, index);
    EXPECT_EQ(slot.extent, index + 1);
    EXPECT_EQ(slot.lock, 0);
  };
  on_host::record(&slot, 5, 50, 51);
  expect(5, 50);
  on_host::record(&slot, 5, 60, 61);
  expect(5, 50);
  on_host::record(&slot, 9, 90, 91);
  expect(5, 50);
  on_host::record(&slot, 0, 7, 8);
  expect(0, 7);
  on_host::record(&slot, 0, 8, 9);
  expect(0, 7);
}

// Teams that fail at the same time neither lose the lowest item nor mix two records: each gives way
// to the others in the middle of writing.
TEST(Record, IsWholeAmongThreads) {
  constexpr int kThreads = 4, kRounds = 500;
  host = {.pause = [] { std::this_thread::yield(); }};
  ErrorSlot slot = {};
  int wrong = 0;
  std::barrier round(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const long item = (t + i) % kThreads;
        round.arrive_and_wait();
        on_host::record(&slot, item, item + 10, item + 20);
        round.arrive_and_wait();
        if (t > 0) continue;
        wrong += slot.code != 1 || slot.item != 0 || slot.index != 10 || slot.extent != 20;
        slot = {};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(PrintedKernels, LoopsRunOverEveryElement) {
  for (const int64_t n : {0, 1, 3, 4, 5, 1021}) {
    Tensor x = Tensor::Zeros(DType::kF32, {n}), got = x, want = x;
    for (int64_t i = 0; i < n; ++i) {
      const float v = i == 2 ? std::nanf("") : static_cast<float>(i % 7 - 3) / 4;
      x.data<float>()[i] = v;
      want.data<float>()[i] = v > 0 ? std::exp(v) : std::isnan(v) ? v : 0;
    }
    Launch("relu_0").Run({All(x), All(got)}, {n}, (n + 3) / 4, 7);
    const absl::Status same = CompareTensors(got, want, 0, 0);
    EXPECT_TRUE(same.ok()) << n << ": " << same;
  }
}

// The scratch of a team is its own: many teams and few give the same.
TEST(PrintedKernels, TeamsHaveTheirOwnScratch) {
  constexpr int64_t kRows = 9;
  for (const int64_t teams : {1, 4, 64}) {
    for (const int64_t n : {0, 1, 50}) {
      Tensor x = Tensor::Zeros(DType::kF32, {kRows, n}), got = x, want = x;
      Tensor any = Tensor::Zeros(DType::kBool, {kRows});
      for (int64_t g = 0; g < kRows; ++g) {
        float* const row = x.data<float>() + g * n;
        for (int64_t i = 0; i < n; ++i) row[i] = static_cast<float>((g * 31 + i * 17) % 23) / 3;
        const float most = n == 0 ? 0 : *std::max_element(row, row + n);
        float sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += std::exp(row[i] + most * -1.0f);
        for (int64_t i = 0; i < n; ++i) {
          want.data<float>()[g * n + i] = std::exp(row[i] + most * -1.0f) / sum;
        }
      }
      Launch("row_0").Run({All(x), All(got), All(any)}, {kRows, n}, kRows, teams);
      const absl::Status same = CompareTensors(got, want, 0, 0);
      EXPECT_TRUE(same.ok()) << teams << " teams, " << n << ": " << same;
      EXPECT_EQ(any.bytes, std::string(kRows, n > 0));
    }
  }
}

TEST(PrintedKernels, AccumulatorsAndUnrolledLoops) {
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
      Launch("tile_0").Run({All(left), All(right), All(got)}, {rows, sums}, (rows + 1) / 2, 2);
      EXPECT_EQ(got, want) << rows << " rows, " << sums << " sums";
    }
  }
}

// Sorts places by their keys; of equal keys the lower place is first.
template <typename Key, typename Place>
void SortBy(const Key* keys, Place* places, int64_t n) {
  std::sort(places, places + n,
            [&](Place a, Place b) { return keys[a] < keys[b] || (keys[a] == keys[b] && a < b); });
}

TEST(PrintedKernels, SortsStably) {
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
    Launch("sort_0").Run({All(x), All(keys), All(places)}, {n, kRows}, kRows, 2);
    EXPECT_EQ(keys, want) << n;
    EXPECT_EQ(places, order) << n;
  }
}

template <typename Key, typename Place>
void ExpectSorted(int64_t n) {
  std::mt19937_64 random(n + sizeof(Key));
  std::vector<Key> keys(n + 1), other(n);
  std::vector<Place> places(n), moved(n);
  for (Key& k : keys) k = static_cast<Key>(random() % 3 == 0 ? ~Key{0} - random() % 4 : random());
  std::iota(places.begin(), places.end(), 0);
  std::vector<Place> order = places;
  SortBy(keys.data() + 1, order.data(), n);
  std::vector<Key> want = keys;
  for (int64_t i = 0; i < n; ++i) want[i + 1] = keys[order[i] + 1];
  const auto row = [](auto& v, long start) {
    return on_host::Row{
        {reinterpret_cast<unsigned char*>(v.data()), static_cast<long>(v.size() * sizeof(v[0]))},
        start};
  };
  on_host::sort<Key, Place>(row(keys, 1), row(places, 0), row(other, 0), row(moved, 0), n);
  EXPECT_EQ(keys, want);
  EXPECT_EQ(places, order);
}

TEST(Sort, TakesEveryKeyAndPlace) {
  for (const int64_t n : {0, 1, 2, 5, 64, 127}) {
    SCOPED_TRACE(n);
    ExpectSorted<uint8_t, int32_t>(n);
    ExpectSorted<uint16_t, int64_t>(n);
    ExpectSorted<uint32_t, int64_t>(n);
    ExpectSorted<uint64_t, int32_t>(n);
  }
}

// Softmax by a team of `team` threads, whatever the number of teams.
void CheckTeamRow(const std::string& name, int64_t team) {
  constexpr int64_t kRows = 5;
  for (const int64_t teams : {1, 3}) {
    for (const int64_t n : {0, 1, 31, 32, 33, 150, 200}) {
      Tensor x = Tensor::Zeros(DType::kF32, {kRows, n}), got = x, want = x;
      Tensor any = Tensor::Zeros(DType::kBool, {kRows});
      for (int64_t g = 0; g < kRows; ++g) {
        float* const row = x.data<float>() + g * n;
        for (int64_t i = 0; i < n; ++i) row[i] = static_cast<float>((g * 31 + i * 17) % 23) / 3;
        const float most = n == 0 ? 0 : *std::max_element(row, row + n);
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += std::exp(row[i] - most);
        for (int64_t i = 0; i < n; ++i) {
          want.data<float>()[g * n + i] = static_cast<float>(std::exp(row[i] - most) / sum);
        }
      }
      Launch(name).Run({All(x), All(got), All(any)}, {kRows, n}, kRows, teams);
      const absl::Status same = CompareTensors(got, want, 1e-6, 1e-5);
      EXPECT_TRUE(same.ok()) << team << " threads, " << teams << " teams, " << n << ": " << same;
      EXPECT_EQ(any.bytes, std::string(kRows, n > 0));
    }
  }
}

TEST(PrintedTeams, ReduceRows) {
  CheckTeamRow("team_row_0", 32);
  CheckTeamRow("team_block_0", 128);
}

// Of the lowest failed item the lowest index is recorded, whichever thread is the first; elements
// of failed checks are zero.
TEST(PrintedTeams, CheckIndices) {
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
    const ErrorSlot error = Launch("team_gather_0")
                                .Run({All(rows), All(places), All(data), All(got), All(inside)},
                                     {kRows, kColumns, kExtent}, kRows, teams);
    EXPECT_EQ(got, want);
    EXPECT_EQ(inside, Of<uint8_t>(DType::kBool, {1, 1, 0, 1}));
    EXPECT_EQ(error.code, 1);
    EXPECT_EQ(error.item, 1);
    EXPECT_EQ(error.index, 9);
    EXPECT_EQ(error.extent, kExtent);
    EXPECT_EQ(error.lock, 0);
  }
}

TEST(Record, OfATeamKeepsTheLowestItemsLowestIndex) {
  ErrorSlot slot = {};
  const auto expect = [&](long item, long index, long extent) {
    EXPECT_EQ(slot.item, item);
    EXPECT_EQ(slot.index, index);
    EXPECT_EQ(slot.extent, extent);
    EXPECT_EQ(slot.lock, 0);
  };
  on_host::record<32>(&slot, 5, 50, 51);
  expect(5, 50, 51);
  on_host::record<32>(&slot, 5, 60, 51);
  expect(5, 50, 51);
  on_host::record<32>(&slot, 5, -1, 51);
  expect(5, -1, 51);
  on_host::record<32>(&slot, 5, -1, 7);
  expect(5, -1, 7);
  on_host::record<32>(&slot, 6, -9, 7);
  expect(5, -1, 7);
  on_host::record<32>(&slot, 4, 99, 8);
  expect(4, 99, 8);
}

}  // namespace
}  // namespace athanor
