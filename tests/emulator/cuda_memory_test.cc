// The CUDA device's memory on the emulated driver: reserved, committed granule by granule, and
// plans that run in it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/dialect.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cuda/device.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/memory/prepared_pool.h"
#include "tests/emulator/testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGranule = int64_t{2} << 20;

// Sets a variable of the emulator until it dies.
class Setting {
 public:
  Setting(const char* name, int64_t value) : name_(name) {
    setenv(name, std::to_string(value).c_str(), 1);
  }
  ~Setting() { unsetenv(name_); }

 private:
  const char* const name_;
};

// A device of its own with so many bytes, whose driver a test may change.
struct Gpu {
  explicit Gpu(int64_t bytes = int64_t{64} << 20) {
    const Setting setting("ATHANOR_EMULATOR_BYTES", bytes);
    driver = *emulator::NewDevice().value();
    device = CudaDevice::Create(driver, {.workspace_bytes = 1 << 20}).value();
    queue = device->NewQueue(0).value();
  }

  std::unique_ptr<DeviceMemory> Arena(int64_t bytes) {
    return device->Allocate(MemoryKind::kArena, bytes).value();
  }
  int64_t Free() const { return device->FreeBytes().value(); }
  // Returns what lies there; the queue's error if it cannot be read.
  absl::StatusOr<std::string> Read(const DeviceMemory& memory, int64_t offset, int64_t bytes) {
    std::string got(bytes, '?');
    RETURN_IF_ERROR(queue->Copy(got.data(), static_cast<char*>(memory.data()) + offset, bytes,
                                CopyKind::kToHost));
    RETURN_IF_ERROR(queue->Wait());
    return got;
  }
  void Fill(const DeviceMemory& memory, int64_t offset, int64_t bytes) {
    ASSERT_TRUE(queue->Fill(static_cast<char*>(memory.data()) + offset, 'x', bytes).ok());
    ASSERT_TRUE(queue->Wait().ok());
  }

  CudaDriver driver;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<DeviceQueue> queue;
};

TEST(CudaMemoryTest, WhatIsLargeAndGrowsIsCommittedByGranules) {
  Gpu gpu;
  const auto granularity = [&](MemoryKind kind, int64_t bytes) {
    return gpu.device->Allocate(kind, bytes).value()->granularity();
  };
  EXPECT_EQ(gpu.device->properties().granule, kGranule);
  for (const MemoryKind kind : {MemoryKind::kArena, MemoryKind::kPrepared, MemoryKind::kWeights}) {
    EXPECT_EQ(granularity(kind, 0), 0);
    EXPECT_EQ(granularity(kind, 1), 0);
    EXPECT_EQ(granularity(kind, kGranule), 0);
    EXPECT_EQ(granularity(kind, kGranule + 1), kGranule);
    EXPECT_EQ(granularity(kind, int64_t{1} << 40), kGranule);
  }
  EXPECT_EQ(granularity(MemoryKind::kScratch, 5 * kGranule), 0);
}

TEST(CudaMemoryTest, WithoutVirtualMemoryAllIsThereAtOnce) {
  const Setting setting("ATHANOR_EMULATOR_VIRTUAL", 0);
  Gpu gpu;
  EXPECT_EQ(gpu.device->properties().granule, 0);
  const int64_t before = gpu.Free();
  auto memory = gpu.Arena(3 * kGranule);
  EXPECT_EQ(memory->granularity(), 0);
  EXPECT_EQ(gpu.Free(), before - 3 * kGranule);
  EXPECT_TRUE(memory->Commit(0, 3 * kGranule).ok());
  gpu.Fill(*memory, 0, 3 * kGranule);
  memory->Decommit();
  memory->Decommit(0, kGranule);
  EXPECT_EQ(gpu.Free(), before - 3 * kGranule);
  EXPECT_EQ(gpu.Read(*memory, kGranule, 3).value(), "xxx");
  const absl::Status refused = gpu.device->Allocate(MemoryKind::kArena, int64_t{64} << 20).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("cuda:0"), HasSubstr("are free")));
  memory.reset();
  EXPECT_EQ(gpu.Free(), before);
}

TEST(CudaMemoryTest, OnlyWhatIsCommittedTakesMemory) {
  Gpu gpu;
  const int64_t before = gpu.Free();
  // The last granule has one byte.
  auto memory = gpu.Arena(5 * kGranule + 1);
  EXPECT_EQ(gpu.Free(), before);
  EXPECT_EQ(reinterpret_cast<uint64_t>(memory->data()) % 64, 0u);
  EXPECT_FALSE(gpu.Read(*memory, 0, 1).ok());
  const auto commit = [&](int64_t offset, int64_t bytes, int64_t granules) {
    const absl::Status status = memory->Commit(offset, bytes);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(gpu.Free(), before - granules * kGranule) << offset << " " << bytes;
  };
  commit(0, 0, 0);
  commit(kGranule, 1, 1);
  commit(kGranule, kGranule, 1);
  EXPECT_EQ(gpu.Read(*memory, kGranule, kGranule).value(), std::string(kGranule, '\0'));
  EXPECT_FALSE(gpu.Read(*memory, kGranule - 1, 2).ok());
  EXPECT_FALSE(gpu.Read(*memory, 2 * kGranule - 1, 2).ok());
  gpu.Fill(*memory, kGranule, kGranule);
  // Those before and behind come new, what was there stays.
  commit(kGranule - 1, kGranule + 2, 3);
  EXPECT_EQ(gpu.Read(*memory, kGranule - 2, 4).value(), std::string("\0\0xx", 4));
  EXPECT_EQ(gpu.Read(*memory, 2 * kGranule - 2, 4).value(), std::string("xx\0\0", 4));
  commit(5 * kGranule, 1, 4);
  EXPECT_EQ(gpu.Read(*memory, 5 * kGranule, 1).value(), std::string(1, '\0'));
  commit(0, 5 * kGranule + 1, 6);
  EXPECT_EQ(gpu.Read(*memory, kGranule, 3).value(), "xxx");
  memory.reset();
  EXPECT_EQ(gpu.Free(), before);
}

TEST(CudaMemoryTest, WholeGranulesAreGivenBack) {
  Gpu gpu;
  const int64_t before = gpu.Free();
  auto memory = gpu.Arena(3 * kGranule + 5);
  ASSERT_TRUE(memory->Commit(0, 3 * kGranule + 5).ok());
  gpu.Fill(*memory, 0, 3 * kGranule + 5);
  const auto decommit = [&](int64_t offset, int64_t bytes, int64_t left) {
    memory->Decommit(offset, bytes);
    EXPECT_EQ(gpu.Free(), before - left * kGranule) << offset << " " << bytes;
  };
  decommit(0, 0, 4);
  decommit(1, kGranule, 4);
  decommit(kGranule - 1, kGranule + 1, 3);
  decommit(kGranule, kGranule, 3);
  EXPECT_FALSE(gpu.Read(*memory, kGranule, 1).ok());
  EXPECT_EQ(gpu.Read(*memory, kGranule - 1, 1).value(), "x");
  decommit(3 * kGranule, 4, 3);
  decommit(3 * kGranule, 5, 2);  // the memory's end
  EXPECT_EQ(gpu.Read(*memory, 2 * kGranule, 1).value(), "x");
  memory->Decommit();
  EXPECT_EQ(gpu.Free(), before);
  memory->Decommit();
  // What comes again is zero.
  ASSERT_TRUE(memory->Commit(kGranule - 1, 2).ok());
  EXPECT_EQ(gpu.Read(*memory, kGranule - 1, 2).value(), std::string(2, '\0'));
  EXPECT_EQ(gpu.Free(), before - 2 * kGranule);
}

TEST(CudaMemoryTest, ARefusedCommitLeavesEverythingAsItWas) {
  Gpu gpu(8 * kGranule);
  const int64_t before = gpu.Free();
  auto memory = gpu.Arena(100 * kGranule), other = gpu.Arena(2 * kGranule);
  ASSERT_TRUE(memory->Commit(kGranule, 1).ok());
  gpu.Fill(*memory, kGranule, 10);
  const absl::Status status = memory->Commit(0, 100 * kGranule);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("device cuda:0: 207618048 bytes: cuMemCreate"),
                    HasSubstr(absl::StrCat("; ", before - kGranule, " of 16777216 are free"))));
  EXPECT_EQ(gpu.Free(), before - kGranule);
  EXPECT_FALSE(gpu.Read(*memory, 0, 1).ok());
  EXPECT_EQ(gpu.Read(*memory, kGranule, 2).value(), "xx");
  // Smaller ones work, and others' memory.
  EXPECT_TRUE(other->Commit(0, 2 * kGranule).ok());
  EXPECT_TRUE(memory->Commit(0, 3 * kGranule).ok());
  EXPECT_TRUE(gpu.device->loss().ok());
  const absl::Status reserved = gpu.device->Allocate(MemoryKind::kArena, INT64_MAX).status();
  EXPECT_EQ(reserved.code(), absl::StatusCode::kResourceExhausted) << reserved;
  EXPECT_THAT(std::string(reserved.message()), HasSubstr("cuda:0"));
}

// Fails the call of this number of a function, counted from 0.
template <int kFunction, typename... Arguments>
CudaResult (*FailingAt(CudaResult (*real)(Arguments...), int number))(Arguments...) {
  static CudaResult (*function)(Arguments...);
  static int left;
  function = real;
  left = number;
  return [](Arguments... arguments) -> CudaResult {
    return left-- == 0 ? kCudaOutOfMemory : function(arguments...);
  };
}

TEST(CudaMemoryTest, EveryCallOfTheDriverMayFail) {
  Gpu gpu;
  const int64_t before = gpu.Free();
  auto memory = gpu.Arena(6 * kGranule);
  // Two runs of two granules are new.
  ASSERT_TRUE(memory->Commit(2 * kGranule, 1).ok());
  gpu.Fill(*memory, 2 * kGranule, 1);
  const CudaDriver real = gpu.driver;
  int refused = 0;
  const auto expect_refused = [&] {
    const absl::Status status = memory->Commit(0, 5 * kGranule);
    gpu.driver = real;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(gpu.Free(), before - kGranule);
    EXPECT_FALSE(gpu.Read(*memory, 0, 1).ok());
    EXPECT_FALSE(gpu.Read(*memory, 3 * kGranule, 1).ok());
    EXPECT_EQ(gpu.Read(*memory, 2 * kGranule, 1).value(), "x");
    ++refused;
  };
  for (int number = 0; number < 4; ++number) {
    gpu.driver.MemCreate = FailingAt<0>(real.MemCreate, number);
    expect_refused();
    gpu.driver.MemMap = FailingAt<1>(real.MemMap, number);
    expect_refused();
    if (number >= 2) continue;
    gpu.driver.MemSetAccess = FailingAt<2>(real.MemSetAccess, number);
    expect_refused();
    gpu.driver.FillBytes = FailingAt<3>(real.FillBytes, number);
    expect_refused();
  }
  EXPECT_EQ(refused, 12);
  ASSERT_TRUE(memory->Commit(0, 5 * kGranule).ok());
  EXPECT_EQ(gpu.Read(*memory, 0, 1).value(), std::string(1, '\0'));
  // Keeps, tells, and later frees what could not be unmapped.
  gpu.Fill(*memory, 0, 5 * kGranule);
  const auto keep_one = [&] {
    gpu.driver.MemUnmap = FailingAt<4>(real.MemUnmap, 1);
    EXPECT_EQ(memory->Decommit(), kGranule);
    gpu.driver = real;
    EXPECT_EQ(gpu.Free(), before - kGranule);
    EXPECT_TRUE(gpu.Read(*memory, kGranule, 1).ok());
  };
  keep_one();
  EXPECT_EQ(memory->Decommit(kGranule, kGranule), 0);
  EXPECT_EQ(gpu.Free(), before);
  // Committed again, it is as empty as what comes anew.
  ASSERT_TRUE(memory->Commit(0, 5 * kGranule).ok());
  gpu.Fill(*memory, 0, 5 * kGranule);
  keep_one();
  ASSERT_TRUE(memory->Commit(0, 3 * kGranule).ok());
  EXPECT_EQ(gpu.Free(), before - 3 * kGranule);
  EXPECT_EQ(gpu.Read(*memory, kGranule - 1, 3).value(), std::string(3, '\0'));
  EXPECT_EQ(memory->Decommit(), 0);
  memory.reset();
  EXPECT_EQ(gpu.Free(), before);
}

TEST(CudaMemoryTest, AddressesAreFreed) {
  Gpu gpu;
  static CudaResult (*free)(CudaPointer, size_t);
  static int freed;
  free = gpu.driver.AddressFree;
  freed = 0;
  gpu.driver.AddressFree = [](CudaPointer pointer, size_t bytes) {
    const CudaResult result = free(pointer, bytes);
    freed += result == kCudaSuccess ? 1 : 1000;
    return result;
  };
  gpu.Arena(2 * kGranule).reset();
  auto memory = gpu.Arena(2 * kGranule);
  ASSERT_TRUE(memory->Commit(0, 2 * kGranule).ok());
  memory.reset();
  EXPECT_EQ(freed, 2);
}

TEST(CudaMemoryTest, ALostDeviceCommitsNothing) {
  Gpu gpu;
  auto memory = gpu.Arena(2 * kGranule);
  ASSERT_TRUE(memory->Commit(0, 1).ok());
  gpu.device->Check(kCudaIllegalAddress, "a test").IgnoreError();
  const absl::Status status = memory->Commit(0, 2 * kGranule);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(gpu.device->Allocate(MemoryKind::kArena, 2 * kGranule).status(), status);
  memory->Decommit();
}

TEST(CudaMemoryTest, PinnedMemoryIsGivenBackAfterALossToo) {
  static CudaResult (*free_host)(void*);
  static std::vector<void*> freed;
  Gpu gpu;
  free_host = gpu.driver.MemFreeHost;
  freed.clear();
  gpu.driver.MemFreeHost = [](void* pointer) {
    freed.push_back(pointer);
    return free_host(pointer);
  };
  std::vector<void*> taken;
  for (const bool lost : {false, true}) {
    auto memory = gpu.device->Allocate(MemoryKind::kStaging, 100).value();
    taken.push_back(memory->data());
    if (lost) gpu.device->Check(kCudaIllegalAddress, "a test").IgnoreError();
    memory.reset();
    EXPECT_EQ(freed, taken);
  }
}

TEST(CudaMemoryTest, ManyThreadsHaveMemoriesOfTheirOwn) {
  Gpu gpu;
  const int64_t before = gpu.Free();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto queue = gpu.device->NewQueue(0).value();
      auto memory = gpu.Arena(4 * kGranule);
      for (int round = 0; round < 20; ++round) {
        const int64_t offset = (t + round) % 3 * kGranule;
        ASSERT_TRUE(memory->Commit(offset, kGranule).ok());
        char* const data = static_cast<char*>(memory->data()) + offset;
        char got = '?';
        ASSERT_TRUE(queue->Copy(&got, data, 1, CopyKind::kToHost).ok());
        ASSERT_TRUE(queue->Fill(data, 'a' + t, kGranule).ok());
        ASSERT_TRUE(queue->Wait().ok());
        ASSERT_EQ(got, round % 3 == 0 || offset == 0 ? got : '\0');
        if (round % 3 == 2) memory->Decommit();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gpu.Free(), before);
}

TEST(CudaMemoryTest, ASlabGivesBackWhatNobodyHolds) {
  Gpu gpu;
  const int64_t before = gpu.Free();
  PreparedPool pool(gpu.device.get(), nullptr);
  auto blocks = pool.Allocate({3 * kGranule, 64, 3 * kGranule}, MemoryKind::kWeights).value();
  EXPECT_EQ(gpu.Free(), before - 7 * kGranule);
  blocks[0] = {};
  EXPECT_EQ(gpu.Free(), before - 4 * kGranule);
  blocks[1] = {};  // the granule that it lies in has bytes of the last, too
  EXPECT_EQ(gpu.Free(), before - 4 * kGranule);
  blocks.clear();
  EXPECT_EQ(gpu.Free(), before);
}

// Plans.

// Returns the cubin of a kernel of a row plan that does `body` for each item `g`.
std::string CubinOf(int buffers, int sizes, absl::string_view body) {
  std::string text = "#include \"athanor/device.h\"\nstruct Arguments {\n";
  for (int i = 0; i < buffers; ++i) absl::StrAppend(&text, "  Buffer b", i, ";\n");
  for (int i = 0; i < sizes; ++i) absl::StrAppend(&text, "  i64 s", i, ";\n");
  absl::StrAppend(&text,
                  "  i64 items;\n  u8* workspace;\n  i64 stride;\n  ErrorSlot* error;\n};\n"
                  "KERNEL(athanor_kernel) {\n"
                  "  for (i64 g = first(a); g < a.items; g += teams(a)) {\n",
                  body, "  }\n}\n");
  return emulator::Compiler().value()->Compile(CudaSourceOf(text, "sm_80")).value().code;
}

const std::vector<std::string>& RowCubins() {
  static const auto& cubins = *new std::vector<std::string>{
      CubinOf(2, 0, "store<f32>(a.b1, g, 2 * load<f32>(a.b0, g));"),
      CubinOf(3, 1,
              "for (i64 i = g * a.s0; i < (g + 1) * a.s0; ++i)\n"
              "  store<f32>(a.b2, i, load<f32>(a.b0, i) + load<f32>(a.b1, i - g * a.s0));"),
      CubinOf(3, 1,
              "for (i64 i = g * a.s0; i < (g + 1) * a.s0; ++i)\n"
              "  store<f32>(a.b2, i, load<f32>(a.b0, i) * load<f32>(a.b1, i - g * a.s0));"),
      CubinOf(3, 1, "store<f32>(a.b2, g, load<f32>(a.b0, g * a.s0 + load<i64>(a.b1, g)));")};
  return cubins;
}

// Of up to 2^18 rows: t, x and y take 8 MiB each, the indices 2 and what is gathered 1.
constexpr int64_t kMostRows = int64_t{1} << 18;
// Each of the five begins in a granule of its own.
constexpr int64_t kFew = 5 * kGranule, kAll = 14 * kGranule;

class CudaPlanTest : public ::testing::Test {
 protected:
  class Ledger : public MemoryLedger {
   public:
    absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
      if (kind == MemoryKind::kArena && arenas + bytes > most_arenas) {
        return absl::ResourceExhaustedError("full");
      }
      if (kind == MemoryKind::kArena) arenas += bytes;
      return absl::OkStatus();
    }
    void Release(MemoryKind kind, int64_t bytes) override {
      if (kind == MemoryKind::kArena) arenas -= bytes;
    }
    std::atomic<int64_t> arenas = 0;
    int64_t most_arenas = INT64_MAX;
  };

  void Load(int64_t bytes_of_gpu) {
    gpu_ = std::make_unique<Gpu>(bytes_of_gpu);
    v1::Plan plan = RowPlan();
    plan.mutable_dims(0)->set_max(kMostRows);
    plan.set_arena_bytes(64 + kMostRows * 32);
    std::vector<absl::string_view> objects(RowCubins().begin(), RowCubins().end());
    const ParameterView parameters[] = {RowParameter(1.0f)};
    auto loaded = Executable::Load(plan, objects, parameters, gpu_->device.get(),
                                   {.ledger = &ledger_, .poison = true});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    executable_ = *std::move(loaded);
  }
  void ExpectRight(Executable::Context& context, int64_t rows) const {
    RowCall call(rows);
    const absl::Status status = call.Run(*executable_, &context);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(call.Right(1.0f)) << rows;
  }
  // Expects that nothing changes.
  void ExpectRefused(Executable::Context& context, int64_t rows) const {
    const int64_t free = gpu_->Free(), arenas = ledger_.arenas;
    RowCall call(rows);
    const absl::Status status = call.Run(*executable_, &context);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cuda:0"), HasSubstr("are free")));
    EXPECT_EQ(gpu_->Free(), free);
    EXPECT_EQ(ledger_.arenas, arenas);
  }

  Ledger ledger_;
  std::unique_ptr<Gpu> gpu_;
  std::shared_ptr<const Executable> executable_;
};

TEST_F(CudaPlanTest, ASmallCallOfALargeBucketTakesLittle) {
  Load(int64_t{64} << 20);
  auto context = executable_->NewContext().value();
  const int64_t before = gpu_->Free();
  EXPECT_EQ(ledger_.arenas, 0);
  const auto expect = [&](int64_t rows, int64_t bytes) {
    ExpectRight(*context, rows);
    EXPECT_EQ(context->charged_bytes(), bytes) << rows;
    EXPECT_EQ(ledger_.arenas, bytes) << rows;
    EXPECT_EQ(gpu_->Free(), before - bytes) << rows;
  };
  expect(0, 0);
  expect(1, kFew);
  expect(1009, kFew);
  expect(kMostRows, kAll);
  expect(3, kAll);
  context->Trim();
  EXPECT_EQ(ledger_.arenas, 0);
  EXPECT_EQ(gpu_->Free(), before);
  expect(3, kFew);
  expect(kMostRows, kAll);
  context.reset();
  EXPECT_EQ(ledger_.arenas, 0);
}

TEST_F(CudaPlanTest, ACallThatFindsNoMemoryIsRefusedAndSmallerOnesWork) {
  Load(16 * kGranule);
  auto first = executable_->NewContext().value(), second = executable_->NewContext().value();
  ExpectRight(*first, 1);
  ExpectRefused(*second, kMostRows);
  ExpectRight(*second, 5);
  ExpectRefused(*first, kMostRows);
  ExpectRight(*first, 7);
  second->Trim();
  ExpectRight(*first, kMostRows);
  ExpectRefused(*second, 5);
  EXPECT_TRUE(gpu_->device->loss().ok());
  first->Trim();
  ExpectRight(*second, kMostRows);
}

TEST_F(CudaPlanTest, ContextsOfManyThreadsGrowAndShrink) {
  Load(int64_t{128} << 20);
  const int64_t before = gpu_->Free();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto context = executable_->NewContext().value();
      for (int round = 0; round < 8; ++round) {
        ExpectRight(*context, round % 4 == t ? kMostRows / 8 : 17 * t + round);
        if (round % 3 == t % 3) context->Trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gpu_->Free(), before);
  EXPECT_EQ(ledger_.arenas, 0);
}

// What only `prepare` reads lies beside what runs read: of parameters, and of prepared weights.
TEST_F(CudaPlanTest, WhatOnlyPrepareReadsTakesNoMemoryAfterIt) {
  v1::Plan plan = RowPlan();
  constexpr int kWeight = 1, kConstant = 2, kPrepared = 3;
  const int other = plan.buffers_size(), last = other + 1;
  *plan.add_buffers() = plan.buffers(kWeight);
  plan.mutable_buffers(other)->set_name("v");
  *plan.add_buffers() = plan.buffers(kPrepared);
  v1::Step* step = plan.add_prepare();
  *step = plan.prepare(0);
  step->set_buffers(0, kPrepared);
  step->set_buffers(1, last);
  plan.mutable_run(0)->set_buffers(1, last);   // 4 * w
  plan.mutable_run(1)->set_buffers(1, other);  // in place of the constant, which has its values
  std::vector<absl::string_view> objects(RowCubins().begin(), RowCubins().end());
  const ParameterView parameters[] = {RowParameter(1.0f),
                                      {"v", plan.buffers(kConstant).literal(), nullptr}};
  for (const int64_t virtual_memory : {0, 1}) {
    const Setting setting("ATHANOR_EMULATOR_VIRTUAL", virtual_memory);
    gpu_ = std::make_unique<Gpu>();
    const int64_t before = gpu_->Free();
    executable_ =
        Executable::Load(plan, objects, parameters, gpu_->device.get(), {.poison = true}).value();
    EXPECT_EQ(executable_->fixed_bytes(), 2 * 64);
    EXPECT_EQ(gpu_->Free(), before - executable_->fixed_bytes());
    auto context = executable_->NewContext().value();
    RowCall call(7);
    ASSERT_TRUE(call.Run(*executable_, context.get()).ok());
    EXPECT_TRUE(call.Right(2.0f));
    context.reset();
    executable_.reset();
    EXPECT_EQ(gpu_->Free(), before);
  }
}

TEST_F(CudaPlanTest, WithoutVirtualMemoryAContextHoldsAllOfItsArena) {
  const Setting setting("ATHANOR_EMULATOR_VIRTUAL", 0);
  Load(int64_t{64} << 20);
  auto context = executable_->NewContext().value();
  const int64_t held = ledger_.arenas;
  EXPECT_EQ(held, 64 + kMostRows * (32 + 32 + 32 + 8 + 4));
  for (const int64_t rows : {int64_t{3}, kMostRows}) {
    ExpectRight(*context, rows);
    EXPECT_EQ(ledger_.arenas, held);
    context->Trim();
    EXPECT_EQ(ledger_.arenas, held);
  }
}

TEST_F(CudaPlanTest, WhatTheLedgerRefusesIsNotAllocated) {
  const Setting setting("ATHANOR_EMULATOR_VIRTUAL", 0);
  Load(int64_t{64} << 20);
  static CudaResult (*allocate)(CudaPointer*, size_t);
  static size_t largest;
  allocate = gpu_->driver.MemAlloc;
  largest = 0;
  gpu_->driver.MemAlloc = [](CudaPointer* pointer, size_t bytes) {
    largest = std::max(largest, bytes);
    return allocate(pointer, bytes);
  };
  const int64_t all = 64 + kMostRows * (32 + 32 + 32 + 8 + 4);
  ledger_.most_arenas = all - 1;
  EXPECT_EQ(executable_->NewContext().status().message(), "full");
  EXPECT_LT(largest, size_t(all));
  EXPECT_EQ(ledger_.arenas, 0);
  ledger_.most_arenas = all;
  EXPECT_TRUE(executable_->NewContext().ok());
  EXPECT_EQ(largest, size_t(all));
  EXPECT_EQ(ledger_.arenas, 0);
}

}  // namespace
}  // namespace athanor
