// Runs kernels, as the CUDA dialect prints them, on the emulated device, and compares them with the
// reference evaluator: the same bodies and headers but athanor/device.h, in each order of threads.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/written_kernels_testing.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/kernel_abi.h"
#include "tests/emulator/kernel_testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFolder = "compiler/codegen/cuda/testdata";

template <typename T>
Tensor Of(DType dtype, const std::vector<T>& values) {
  return Tensor::Of<T>(dtype, {static_cast<int64_t>(values.size())}, values);
}

const kir::Kernel& KernelOf(const std::string& name) {
  static const auto& kernels = *[] {
    auto* all = new std::map<std::string, kir::Kernel>(WrittenKernels({1}));
    all->merge(KernelsIn({kFolder}));
    return all;
  }();
  return kernels.at(name);
}

// Its parameter is the order in which teams run, and threads of a team.
class PrintedKernels : public KernelTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    setenv("ATHANOR_EMULATOR_ORDER", GetParam(), 1);
  }

  // Enqueues a kernel on memory of the device: its arguments as a launch builds them without
  // knowing the kernel.
  void Enqueue(const std::string& name, const std::vector<BufferArgument>& buffers,
               const std::vector<int64_t>& sizes, int64_t items, int64_t teams, CudaPointer error) {
    const kir::Kernel& kernel = KernelOf(name);
    CudaFunction& function = functions_[name];
    if (function == nullptr) {
      static auto& codes = *new std::map<std::string, std::string>;
      std::string& code = codes[name];
      if (code.empty()) code = Code(CudaSourceOf(PrintCudaKernel(kernel, {}), "sm_80"));
      function = LoadCode(code);
    }
    std::vector<uint64_t> words;
    for (const BufferArgument& b : buffers) words.insert(words.end(), {b.data, uint64_t(b.bytes)});
    words.insert(words.end(), sizes.begin(), sizes.end());
    const int64_t stride = CudaWorkspaceBytes(kernel);
    if (stride > 0) memory_.push_back(Allocate(teams * stride).data);
    words.insert(words.end(),
                 {uint64_t(items), stride > 0 ? memory_.back() : 0, uint64_t(stride), error});
    ASSERT_EQ(Launch(function, std::move(words), teams, kernel.team), kCudaSuccess) << name;
  }

  // Memory of the device that goes with FreeAll().
  BufferArgument Copied(const Tensor& t) {
    BufferArgument to = Allocate(t.bytes.size() + 1);  // nothing is no block
    memory_.push_back(to.data);
    to.bytes = t.bytes.size();
    EXPECT_EQ(cuda_->CopyToDevice(to.data, t.bytes.data(), to.bytes, stream_), kCudaSuccess);
    return to;
  }
  void CopyBack(const BufferArgument& from, Tensor* t) {
    EXPECT_EQ(cuda_->CopyToHost(t->bytes.data(), from.data, from.bytes, stream_), kCudaSuccess);
  }
  CudaPointer NewSlot() {
    const ErrorSlot clear;
    memory_.push_back(Allocate(sizeof(clear)).data);
    EXPECT_EQ(cuda_->CopyToDevice(memory_.back(), &clear, sizeof(clear), stream_), kCudaSuccess);
    EXPECT_TRUE(Wait().ok());
    return memory_.back();
  }
  void FreeAll() {
    for (const CudaPointer pointer : memory_) EXPECT_EQ(cuda_->MemFree(pointer), kCudaSuccess);
    memory_.clear();
  }

  // Runs a kernel on tensors, which receive what it writes.
  ErrorSlot Run(const std::string& name, const std::vector<Tensor*>& tensors,
                const std::vector<int64_t>& sizes, int64_t items, int64_t teams) {
    std::vector<BufferArgument> buffers;
    for (const Tensor* t : tensors) buffers.push_back(Copied(*t));
    const CudaPointer slot = NewSlot();
    Enqueue(name, buffers, sizes, items, teams, slot);
    for (size_t i = 0; i < tensors.size(); ++i) CopyBack(buffers[i], tensors[i]);
    ErrorSlot error;
    EXPECT_EQ(cuda_->CopyToHost(&error, slot, sizeof(error), stream_), kCudaSuccess);
    const absl::Status status = Wait();
    EXPECT_TRUE(status.ok()) << name << ": " << status;
    FreeAll();
    return error;
  }

  void CheckOps(DType dtype);
  void CheckTeamRow(const std::string& name, int64_t team);
  template <typename Key, typename Place>
  void ExpectSorted(const std::string& key, const std::string& place);

  std::map<std::string, CudaFunction> functions_;  // of the device that is open
  std::vector<CudaPointer> memory_;
};
INSTANTIATE_TEST_SUITE_P(Orders, PrintedKernels,
                         ::testing::Values("ascending", "descending", "20261127"));

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
void PrintedKernels::CheckOps(DType dtype) {
  SCOPED_TRACE(std::string(DTypeName(dtype)));
  const WrittenOps written = WriteOps(dtype, 1);
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
  // All operands lie on the device at once, those of an element in a row.
  constexpr int kRow = 201;
  Tensor operands = Tensor::Zeros(dtype, {n * kRow});
  for (int64_t i = 0; i < n; ++i) {
    for (int k = 0; k < 3; ++k) {
      operands.bytes.replace((i * kRow + 100 * k) * bytes, bytes, x[k].bytes, i * bytes, bytes);
    }
  }
  const BufferArgument rows = Copied(operands), conditions = Copied(condition);
  std::vector<BufferArgument> results;
  for (const Tensor& t : got) results.push_back(Copied(t));
  const CudaPointer slot = NewSlot();
  for (int64_t i = 0; i < n; ++i) {
    std::vector<BufferArgument> buffers = {{conditions.data + i, 1},
                                           {rows.data + i * kRow * bytes, int64_t(kRow * bytes)}};
    for (size_t k = 0; k < got.size(); ++k) {
      const int64_t element = DTypeBytes(got[k].dtype);
      buffers.push_back({results[k].data + i * element, element});
    }
    Enqueue(Cat("ops_", DTypeName(dtype), "x1"), buffers, {}, 1, 1, slot);
  }
  for (size_t k = 0; k < got.size(); ++k) CopyBack(results[k], &got[k]);
  const absl::Status status = Wait();
  ASSERT_TRUE(status.ok()) << status;
  FreeAll();
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

TEST_P(PrintedKernels, OpsEqualTheReference) {
  for (const DTypeRow& row : kDTypes) CheckOps(row.dtype);
}

// A masked access of one lane is there or not; elsewhere the output keeps its bytes.
TEST_P(PrintedKernels, MovesEqualThoseOfOneLane) {
  for (const DTypeRow& row : kDTypes) {
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
        Run(Cat("memory_", row.name, "x1"), {&in, &out, &places, &bools}, {n}, 1, 1);
        EXPECT_EQ(out.bytes, want.bytes);
      }
    }
  }
}

// Compares index expressions with Expr::Evaluate, by negative values and by divisors of 0 too.
TEST_P(PrintedKernels, IndicesEqualTheirExpressions) {
  // The latter in i32 too, where every value on the way fits.
  for (const std::string name : {"indices", "narrow"}) {
    const kir::Kernel kernel = kir::ParseKernel(ReadFile(kFolder + "/" + name + ".kir")).value();
    std::vector<Expr> expressions;
    for (const kir::Stmt& s : kernel.body) {
      if (s.opcode == kir::Opcode::kIndex) expressions.push_back(s.index);
    }
    ASSERT_EQ(expressions.size(), 10);
    Tensor at =
        Of<int64_t>(DType::kI64, {0, 1, -1, 2, 3, -3, 7, -8, 8, 9, -25, 1 << 20, -(1 << 20)});
    for (const int64_t size : {1, 2, 7, 1000}) {
      Tensor got = Tensor::Zeros(DType::kI64, {at.elements() * 10});
      Run(name + "_0", {&at, &got}, {at.elements(), size}, at.elements(), 3);
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

TEST_P(PrintedKernels, RandomBitsEqualTheReference) {
  const CudaFunction function =
      Load(Program("store<u32>(a.b1, g, philox(g, load<u64>(a.b0, 0)));"));
  for (const uint64_t seed : {uint64_t{0}, uint64_t{0x123456789abcdef0}, ~uint64_t{0}}) {
    Tensor s = Of<uint64_t>(DType::kU64, {seed}), want = Tensor::Zeros(DType::kU32, {101});
    const Attrs attrs = {{"shape", Shape{101}}};
    ASSERT_TRUE(
        OpInfo(Op::kRandomBits).reference(std::vector<const Tensor*>{&s}, attrs, {}, &want).ok());
    const BufferArgument out = Allocate(4 * 101);
    ASSERT_EQ(Launch(function, {.b0 = Upload(std::vector<uint64_t>{seed}), .b1 = out, .items = 101},
                     2, 7),
              kCudaSuccess);
    const std::vector<uint32_t> got = Download<uint32_t>(out);
    for (int64_t i = 0; i < 101; ++i) {
      EXPECT_EQ(got[i], want.data<uint32_t>()[i]) << i << ", seed " << seed;
    }
  }
}

// Whatever the number of teams, all items run; the last team, which fails first, gives way to the
// lowest item. What is not active is not checked.
TEST_P(PrintedKernels, TheLowestFailedItemIsRecorded) {
  for (const int64_t teams : {1, 3, 8, 200}) {
    Tensor places = Of<int64_t>(DType::kI64, {4, -1, 0, 5, 1, INT64_MIN, INT64_MAX, 2}),
           on = Of<uint8_t>(DType::kBool, {1, 0, 1, 1, 1, 1, 1, 1}),
           data = Of<uint16_t>(DType::kF16, {10, 11, 12, 13, 14}),
           got = Of<uint16_t>(DType::kF16, std::vector<uint16_t>(8, 99));
    const auto [error, lock] = Run("gather_0", {&places, &on, &data, &got}, {8, 5}, 8, teams);
    EXPECT_EQ(got, Of<uint16_t>(DType::kF16, {14, 0, 10, 0, 11, 0, 0, 12}));
    EXPECT_EQ(error.code, 1);
    EXPECT_EQ(error.item, 3);
    EXPECT_EQ(error.index, 5);
    EXPECT_EQ(error.extent, 5);
    EXPECT_EQ(lock, 0);
  }
}

TEST_P(PrintedKernels, NoFailureLeavesTheSlotAsItWas) {
  Tensor places = Of<int64_t>(DType::kI64, {4}), on = Of<uint8_t>(DType::kBool, {1}),
         data = Of<uint16_t>(DType::kF16, {10, 11, 12, 13, 14}),
         got = Of<uint16_t>(DType::kF16, {0});
  const auto [error, lock] = Run("gather_0", {&places, &on, &data, &got}, {1, 5}, 1, 2);
  EXPECT_EQ(error.code | error.item | error.index | error.extent | lock, 0);
}

TEST_P(PrintedKernels, LoopsRunOverEveryElement) {
  for (const int64_t n : {0, 1, 3, 4, 5, 1021}) {
    Tensor x = Tensor::Zeros(DType::kF32, {n}), got = x, want = x;
    for (int64_t i = 0; i < n; ++i) {
      const float v = i == 2 ? std::nanf("") : static_cast<float>(i % 7 - 3) / 4;
      x.data<float>()[i] = v;
      want.data<float>()[i] = v > 0 ? std::exp(v) : std::isnan(v) ? v : 0;
    }
    Run("relu_0", {&x, &got}, {n}, (n + 3) / 4, 7);
    const absl::Status same = CompareTensors(got, want, 0, 0);
    EXPECT_TRUE(same.ok()) << n << ": " << same;
  }
}

// The scratch of a team is its own: many teams and few give the same.
TEST_P(PrintedKernels, TeamsHaveTheirOwnScratch) {
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
      Run("row_0", {&x, &got, &any}, {kRows, n}, kRows, teams);
      const absl::Status same = CompareTensors(got, want, 0, 0);
      EXPECT_TRUE(same.ok()) << teams << " teams, " << n << ": " << same;
      EXPECT_EQ(any.bytes, std::string(kRows, n > 0));
    }
  }
}

TEST_P(PrintedKernels, AccumulatorsAndUnrolledLoops) {
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
      Run("tile_0", {&left, &right, &got}, {rows, sums}, (rows + 1) / 2, 2);
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

TEST_P(PrintedKernels, SortsStably) {
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
    Run("sort_0", {&x, &keys, &places}, {n, kRows}, kRows, 2);
    EXPECT_EQ(keys, want) << n;
    EXPECT_EQ(places, order) << n;
  }
}

template <typename Key, typename Place>
void PrintedKernels::ExpectSorted(const std::string& key, const std::string& place) {
  // Keys begin at the second; the other rows are scratch.
  const CudaFunction function = Load(Program(
      Cat("sort<", key, ", ", place, ">(Row{a.b0, 1}, Row{a.b1, 0}, Row{scratch(a, 0, 1024), 0}, ",
          "Row{scratch(a, 1024, 1024), 0}, a.s0);")));
  const BufferArgument workspace = Allocate(2048);
  for (const int64_t n : {0, 1, 2, 5, 64, 127}) {
    std::mt19937_64 random(n + sizeof(Key));
    std::vector<Key> keys(n + 1);
    for (Key& k : keys) k = static_cast<Key>(random() % 3 == 0 ? ~Key{0} - random() % 4 : random());
    std::vector<Place> places(n + 1), order;  // one more: nothing is no block
    std::iota(places.begin(), places.end(), 0);
    order = places;
    SortBy(keys.data() + 1, order.data(), n);
    std::vector<Key> want = keys;
    for (int64_t i = 0; i < n; ++i) want[i + 1] = keys[order[i] + 1];
    BufferArgument of_keys = Upload(keys), of_places = Upload(places);
    of_places.bytes -= sizeof(Place);
    ASSERT_EQ(Launch(function, {.b0 = of_keys,
                                .b1 = of_places,
                                .s0 = n,
                                .items = 1,
                                .workspace = workspace.data,
                                .stride = 2048}),
              kCudaSuccess);
    EXPECT_EQ(Download<Key>(of_keys), want) << n;
    order.resize(n);
    EXPECT_EQ(Download<Place>(of_places), order) << n;
  }
}

TEST_P(PrintedKernels, SortsEveryKeyAndPlace) {
  ExpectSorted<uint8_t, int32_t>("u8", "i32");
  ExpectSorted<uint16_t, int64_t>("u16", "i64");
  ExpectSorted<uint32_t, int64_t>("u32", "i64");
  ExpectSorted<uint64_t, int32_t>("u64", "i32");
}

// Softmax by a team of `team` threads, whatever the number of teams.
void PrintedKernels::CheckTeamRow(const std::string& name, int64_t team) {
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
      Run(name, {&x, &got, &any}, {kRows, n}, kRows, teams);
      const absl::Status same = CompareTensors(got, want, 1e-6, 1e-5);
      EXPECT_TRUE(same.ok()) << team << " threads, " << teams << " teams, " << n << ": " << same;
      EXPECT_EQ(any.bytes, std::string(kRows, n > 0));
    }
  }
}

TEST_P(PrintedKernels, TeamsReduceRows) {
  CheckTeamRow("team_row_0", 32);
  CheckTeamRow("team_block_0", 128);
}

TEST_P(PrintedKernels, TeamsMaskLanes) {
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
    Run("team_map_0", {&a, &b, &got, &at, &least}, {n, kStride}, (n + 31) / 32, 2);
    EXPECT_EQ(got, want) << n;
  }
}

// Of the lowest failed item the lowest index is recorded, whichever thread is the first; elements
// of failed checks are zero.
TEST_P(PrintedKernels, TeamsCheckIndices) {
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
    const auto [error, lock] = Run("team_gather_0", {&rows, &places, &data, &got, &inside},
                                   {kRows, kColumns, kExtent}, kRows, teams);
    EXPECT_EQ(got, want);
    EXPECT_EQ(inside, Of<uint8_t>(DType::kBool, {1, 1, 0, 1}));
    EXPECT_EQ(error.code, 1);
    EXPECT_EQ(error.item, 1);
    EXPECT_EQ(error.index, 9);
    EXPECT_EQ(error.extent, kExtent);
    EXPECT_EQ(lock, 0);
  }
}

// Scratch that is too large for shared memory lies in the team's workspace; a barrier is between
// those who write it and those who read it.
TEST_P(PrintedKernels, TeamsReadWhatOthersWrote) {
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
  Run("team_large_0", {&x, &got, &sum, &any, &most}, {kRows}, kRows, 1);
  EXPECT_EQ(got, want);
  EXPECT_EQ(LoadScalar(sum, 0).f, 24);
  EXPECT_EQ(LoadScalar(sum, 1).f, -16);
  EXPECT_EQ(any, Of<uint8_t>(DType::kBool, {0, 1}));
  EXPECT_EQ(most, Of<int64_t>(DType::kI64, {3, 0}));
}

// Whatever barrier a kernel lacks of those that the pass placed, the device tells.
TEST_P(PrintedKernels, TeamsNeedEachOfTheirBarriers) {
  const std::string name = "team_large_0", barrier = "barrier<4>();";
  const std::string text = PrintCudaKernel(KernelOf(name), {});
  int barriers = 0;
  for (size_t at = text.find(barrier); at != text.npos; at = text.find(barrier, at + 1)) {
    ++barriers;
    Open();
    functions_[name] = Load(CudaSourceOf(std::string(text).erase(at, barrier.size()), "sm_80"));
    std::vector<BufferArgument> buffers;
    for (const int64_t bytes : {2 * 2 * 4096, 2 * 2 * 4096, 2 * 2, 2, 2 * 8}) {
      buffers.push_back(Copied(Tensor::Zeros(DType::kBool, {bytes})));
    }
    Enqueue(name, buffers, {2}, /*items=*/2, /*teams=*/1, NewSlot());
    EXPECT_THAT(std::string(Wait().message()),
                HasSubstr("of the team's workspace, from byte 0 on, which "))
        << at;
    memory_.clear();
  }
  EXPECT_EQ(barriers, 2);
}

// Records failures one after another in one slot; expects after each that of that number.
struct Failure {
  int64_t item, index, extent;
};
class Records : public KernelTest {
 protected:
  void Expect(absl::string_view record, const std::vector<Failure>& failures,
              const std::vector<int>& kept) {
    const CudaFunction function =
        Load(Program(absl::StrCat(record,
                                  "(a.error, load<i64>(a.b0, 0), load<i64>(a.b0, 1), "
                                  "load<i64>(a.b0, 2));")));
    const BufferArgument slot = Upload(std::vector<ErrorSlot>(1));
    for (size_t i = 0; i < failures.size(); ++i) {
      const BufferArgument in = Upload(std::vector<Failure>{failures[i]});
      ASSERT_EQ(Launch(function, {.b0 = in, .items = 1, .error = slot.data}), kCudaSuccess);
      const auto [error, lock] = Download<ErrorSlot>(slot)[0];
      const Failure& want = failures[kept[i]];
      EXPECT_EQ(error.code, 1) << i;
      EXPECT_EQ(error.item, want.item) << i;
      EXPECT_EQ(error.index, want.index) << i;
      EXPECT_EQ(error.extent, want.extent) << i;
      EXPECT_EQ(lock, 0) << i;
    }
  }
};

// Of one item the first failure stays, of two the lower item's, in any order of writing.
TEST_F(Records, KeepTheLowestItemsFirstFailure) {
  Expect("record", {{5, 50, 51}, {5, 60, 61}, {9, 90, 91}, {0, 7, 8}, {0, 8, 9}}, {0, 0, 0, 3, 3});
}
TEST_F(Records, OfATeamKeepTheLowestItemsLowestIndex) {
  Expect("record<32>", {{5, 50, 51}, {5, 60, 51}, {5, -1, 51}, {5, -1, 7}, {6, -9, 7}, {4, 99, 8}},
         {0, 0, 2, 3, 3, 5});
}

// Returns the functions, macros and types that a text of the header "athanor/device.h" defines.
std::set<std::string> NamesOf(const std::string& path, const std::set<std::string>& without) {
  const std::string text = ReadFile(path);
  const std::regex definition(R"(FN \w+ (\w+)\(|FUNCTION\(([a-z]\w*)\)\n|#define ([A-Z_]+)|)"
                              R"(\n(?:struct|using) (?:\w+\(\d+\) )?(\w+))");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it) {
    for (size_t i = 1; i < it->size(); ++i) {
      if (!(*it)[i].matched) continue;
      const std::string name = (*it)[i];
      if (name == "FUNCTION" || without.contains(name)) continue;
      if (i == 2) names.insert({name + "_f32", name + "_f64"});
      if (i != 2) names.insert(name);
    }
  }
  return names;
}

// Whoever replaces the header defines what kernels and the other headers call.
TEST(DeviceHeader, HasTheGpusNames) {
  const std::string folder = "compiler/codegen/cuda/";
  const std::set<std::string> names =
      NamesOf(folder + "device.h.txt", {"ATHANOR_DEVICE_H", "part_mask"});
  EXPECT_EQ(NamesOf("tests/emulator/athanor/device.h",
                    {"ATHANOR_DEVICE_H", "ATHANOR_SITE", "Begin", "CheckTeam", "Meet", "Site",
                     "Step", "Touch", "fma_odd"}),
            names);
  EXPECT_THAT(names, AllOf(Contains("load"), Contains("KERNEL"), Contains("TEAM_KERNEL"),
                           Contains("from_first"), Contains("tanh_f64"), Contains("ErrorSlot"),
                           Contains("u16"), Not(Contains("check"))));
  // The README lists functions of f32 and f64 once, as `exp_`.
  const std::string readme = ReadFile(folder + "README.md");
  for (const std::string& name : names) {
    const bool both = name.ends_with("_f32") || name.ends_with("_f64");
    EXPECT_THAT(readme, HasSubstr("`" + (both ? name.substr(0, name.size() - 3) : name)));
  }
}

}  // namespace
}  // namespace athanor
