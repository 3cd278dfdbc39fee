// Runs kernels, as the CUDA dialect prints them, on the emulated device, and compares them with the
// reference evaluator: the same bodies and headers but athanor/device.h, in each order of threads.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/kir/written_kernels_testing.h"
#include "compiler/codegen/print/printed_kernels_testing.h"
#include "compiler/ir/value/message.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/kernel_abi.h"
#include "tests/emulator/kernel_testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const kir::Kernel& KernelOf(const std::string& name) {
  static const auto& kernels = *[] {
    auto* all = new std::map<std::string, kir::Kernel>(WrittenKernels({1}));
    all->merge(KernelsIn({"compiler/codegen/cuda/testdata"}));
    return all;
  }();
  return kernels.at(name);
}

// Its parameter is the order in which teams run, and threads of a team.
class PrintedKernels : public KernelTest,
                       public PrintedLauncher,
                       public ::testing::WithParamInterface<const char*> {
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

  RecordedFailure Run(const std::string& name, const std::vector<Tensor*>& tensors,
                      const std::vector<int64_t>& sizes, int64_t items, int64_t teams) override {
    std::vector<BufferArgument> buffers;
    for (const Tensor* t : tensors) buffers.push_back(Copied(*t));
    const CudaPointer slot = NewSlot();
    Enqueue(name, buffers, sizes, items, teams, slot);
    for (size_t i = 0; i < tensors.size(); ++i) CopyBack(buffers[i], tensors[i]);
    ErrorSlot recorded;
    EXPECT_EQ(cuda_->CopyToHost(&recorded, slot, sizeof(recorded), stream_), kCudaSuccess);
    const absl::Status status = Wait();
    EXPECT_TRUE(status.ok()) << name << ": " << status;
    FreeAll();
    EXPECT_EQ(recorded.lock, 0);
    const KernelError& error = recorded.error;
    return {error.code, error.item, error.index, error.extent};
  }

  // Runs a kernel once for each element; all lie on the device at once.
  void RunElements(const std::string& name, Tensor& condition, Tensor& operands,
                   std::vector<Tensor>& results) {
    const BufferArgument rows = Copied(operands), conditions = Copied(condition);
    std::vector<BufferArgument> copies;
    for (const Tensor& t : results) copies.push_back(Copied(t));
    const CudaPointer slot = NewSlot();
    const int64_t row = kOperandRow * DTypeBytes(operands.dtype);
    for (int64_t i = 0; i < condition.elements(); ++i) {
      std::vector<BufferArgument> buffers = {{conditions.data + i, 1}, {rows.data + i * row, row}};
      for (size_t k = 0; k < results.size(); ++k) {
        const int64_t element = DTypeBytes(results[k].dtype);
        buffers.push_back({copies[k].data + i * element, element});
      }
      Enqueue(name, buffers, {}, 1, 1, slot);
    }
    for (size_t k = 0; k < results.size(); ++k) CopyBack(copies[k], &results[k]);
    const absl::Status status = Wait();
    ASSERT_TRUE(status.ok()) << status;
    FreeAll();
  }

  template <typename Key, typename Place>
  void ExpectSorted(const std::string& key, const std::string& place);

  std::map<std::string, CudaFunction> functions_;  // of the device that is open
  std::vector<CudaPointer> memory_;
};
INSTANTIATE_TEST_SUITE_P(Orders, PrintedKernels,
                         ::testing::Values("ascending", "descending", "20261127"));

TEST_P(PrintedKernels, EqualTheReference) {
  for (const PrintedCheck& check : PrintedChecks()) {
    SCOPED_TRACE(std::string(check.name));
    check.run(*this);
  }
}

TEST_P(PrintedKernels, OpsEqualTheReference) {
  for (const DTypeRow& row : kDTypes) {
    ExpectPrintedOps(row.dtype, /*f64=*/true,
                     [&](auto& name, Tensor& condition, Tensor& operands, auto& results) {
                       RunElements(name, condition, operands, results);
                     });
  }
}

TEST_P(PrintedKernels, MovesEqualThoseOfOneLane) { ExpectPrintedMoves(*this); }

TEST_P(PrintedKernels, RandomBitsEqualTheReference) {
  const CudaFunction function =
      Load(Program("store<u32>(a.b1, g, philox(g, load<u64>(a.b0, 0)));"));
  for (const uint64_t seed : {uint64_t{0}, uint64_t{0x123456789abcdef0}, ~uint64_t{0}}) {
    const Tensor want = ExpectedRandomBits(seed, 101);
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

// Keeps the first failure of an item, and of two items the lower one's, in any order of writing.
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
  const std::regex definition(
      R"(FN \w+ (\w+)\(|FUNCTION\(([a-z]\w*)\)\n|\nMULTIPLY\((\w+)|#define ([A-Z_]+)|)"
      R"(\n(?:struct|using) (?:\w+\(\d+\) )?(\w+))");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it) {
    for (size_t i = 1; i < it->size(); ++i) {
      if (!(*it)[i].matched) continue;
      const std::string name = (*it)[i];
      if (name == "FUNCTION" || name == "MULTIPLY" || without.contains(name)) continue;
      if (i == 2) names.insert({name + "_f32", name + "_f64"});
      if (i != 2) names.insert(i == 3 ? "multiply_" + name : name);
    }
  }
  return names;
}

// Whoever replaces the header defines what kernels and the other headers call.
TEST(DeviceHeader, HasTheGpusNames) {
  const std::string folder = "compiler/codegen/cuda/";
  const std::set<std::string> names =
      NamesOf(folder + "device.h.txt", {"ATHANOR_DEVICE_H", "part_mask", "shared_address"});
  EXPECT_EQ(NamesOf("tests/emulator/athanor/device.h",
                    {"ATHANOR_DEVICE_H", "ATHANOR_SITE", "Begin", "CheckShared", "CheckTeam",
                     "Load", "Meet", "Site", "Step", "Touch", "fma_odd"}),
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
