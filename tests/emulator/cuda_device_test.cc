// The CUDA device on the emulated driver: memory, kernels, queues and how each fails.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/dialect.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cuda/device.h"
#include "runtime/executor/call_block.h"
#include "runtime/executor/one_launch_testing.h"
#include "tests/emulator/testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the cubin of a kernel of two buffers and a size that does `body` for each item `g`.
std::string CubinOf(absl::string_view body, const std::string& arch = "sm_80", int team = 1,
                    int shared_bytes = 0) {
  const std::string text = absl::StrCat(
      "#include \"athanor/device.h\"\n"
      "struct Arguments {\n"
      "  Buffer b0, b1;\n"
      "  i64 s0, items;\n"
      "  u8* workspace;\n"
      "  i64 stride;\n"
      "  ErrorSlot* error;\n"
      "};\n",
      "TEAM_KERNEL(athanor_kernel, ", team, ", ", shared_bytes, ") {\n", "  for (i64 g = first<",
      team, ">(a); g < a.items; g += teams<", team, ">(a)) {\n", body, "  }\n}\n");
  absl::StatusOr<const Nvrtc*> compiler = emulator::Compiler();
  if (!compiler.ok()) {
    ADD_FAILURE() << compiler.status();
    return "";
  }
  absl::StatusOr<Cubin> cubin = (*compiler)->Compile(CudaSourceOf(text, arch));
  if (!cubin.ok()) {
    ADD_FAILURE() << cubin.status();
    return "";
  }
  return cubin->code;
}

constexpr char kNvml[] = "tests/emulator/libnvidia-ml.so.1";
constexpr char kDouble[] = "store<f32>(a.b1, g, 2 * load<f32>(a.b0, g));";
// Fails each item from a.s0 on.
constexpr char kFail[] = "check(a.error, g, g, a.s0, 1);";

std::unique_ptr<CudaDevice> MakeDevice(const CudaDeviceOptions& options = {}) {
  absl::StatusOr<const CudaDriver*> driver = emulator::NewDevice();
  if (!driver.ok()) {
    ADD_FAILURE() << driver.status();
    std::abort();
  }
  return CudaDevice::Create(**driver, options).value();
}

// Has two buffers on a device, and a launch that a queue recorded.
struct Call {
  Call(CudaDevice& device, int64_t bytes)
      : device(device),
        from(device.Allocate(MemoryKind::kArena, bytes).value()),
        to(device.Allocate(MemoryKind::kArena, bytes).value()) {}

  // May be called again with other sizes, also while the one before runs.
  absl::Status Launch(DeviceQueue& queue, const DeviceKernel& kernel, int64_t items,
                      bool one_thread = false, int team = 1) {
    if (launch == nullptr) {
      ASSIGN_OR_RETURN(launch, OneLaunch::Record(device, queue,
                                                 {.kernel = &kernel,
                                                  .buffers = 2,
                                                  .sizes = 1,
                                                  .most_items = items,
                                                  .team = team,
                                                  .one_thread = one_thread}));
    }
    launch->Set({from->data(), to->data()}, {from->bytes(), to->bytes()}, {size}, items);
    return launch->Enqueue(queue);
  }

  CudaDevice& device;
  std::unique_ptr<DeviceMemory> from, to;
  int64_t size = 0;
  std::unique_ptr<OneLaunch> launch;
};

TEST(CudaDeviceTest, TellsWhatItIs) {
  auto device = MakeDevice();
  EXPECT_EQ(device->name(), "cuda");
  EXPECT_FALSE(device->host_memory());
  EXPECT_EQ(device->properties().compute, 80);
  EXPECT_EQ(device->full_name(), "cuda:0");
  EXPECT_EQ(device->properties().bus_id, "0000:01:00.0");
  const CudaClocks clocks = ReadClocks(device->properties().bus_id, kNvml);
  EXPECT_EQ(clocks.core_mhz, 900);
  EXPECT_EQ(clocks.memory_mhz, 1'000);
  EXPECT_EQ(ReadClocks("0000:09:00.0", kNvml).core_mhz, 0);
  EXPECT_EQ(ReadClocks("0000:01:00.0", "no such file").memory_mhz, 0);
  const v1::Target target = device->target();
  EXPECT_EQ(target.device(), "cuda");
  EXPECT_EQ(target.cpu(), "sm_80");
  EXPECT_EQ(target.threads(), device->properties().threads);
  EXPECT_GT(target.l2_bytes(), 0);
}

TEST(CudaDeviceTest, DevicesThatDoNotServeAreNamed) {
  const CudaDriver* driver = emulator::NewDevice().value();
  absl::Status status = CudaDevice::Create(*driver, {.ordinal = 9}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:9"));

  CudaDriver old = *driver;
  static CudaResult (*const attribute)(int*, int, CudaDeviceHandle) = driver->DeviceGetAttribute;
  old.DeviceGetAttribute = [](int* value, int which, CudaDeviceHandle device) -> CudaResult {
    if (which == kCudaComputeMajor) return *value = 7, kCudaSuccess;
    if (which == kCudaComputeMinor) return *value = 5, kCudaSuccess;
    return attribute(value, which, device);
  };
  status = CudaDevice::Create(old, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("sm_75"), HasSubstr("sm_80")));

  CudaDriver shared = *driver;
  shared.DeviceGetAttribute = [](int* value, int which, CudaDeviceHandle device) -> CudaResult {
    if (which == kCudaComputeMode) return *value = 3, kCudaSuccess;
    return attribute(value, which, device);
  };
  status = CudaDevice::Create(shared, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("compute mode is 3"));

  CudaDriver before = *driver;
  before.DriverGetVersion = [](int* version) -> CudaResult {
    return *version = 12080, kCudaSuccess;
  };
  status = CudaDevice::Create(before, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("CUDA 12.8"), HasSubstr("580")));
}

TEST(CudaDeviceTest, ABrokenDeviceStaysLost) {
  const std::string file = absl::StrCat(std::getenv("TEST_TMPDIR"), "/broken");
  setenv("ATHANOR_EMULATOR_BREAKS", file.c_str(), 1);
  auto device = MakeDevice();
  std::vector<std::string> told;
  device->OnLoss([&](const absl::Status& loss) { told.emplace_back(loss.message()); });
  auto memory = device->Allocate(MemoryKind::kArena, 8).value();
  EXPECT_TRUE(device->loss().ok());
  std::ofstream(file).close();
  const absl::Status first = device->Allocate(MemoryKind::kArena, 8).status();
  EXPECT_EQ(first.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(first.message()), HasSubstr("ECC"));
  std::filesystem::remove(file);
  unsetenv("ATHANOR_EMULATOR_BREAKS");
  EXPECT_EQ(device->NewQueue(0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(device->FreeBytes().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(device->loss(), first);
  EXPECT_EQ(told, std::vector<std::string>{std::string(first.message())}) << "once";
}

TEST(CudaDeviceTest, MemoryIsZeroAtFirst) {
  auto device = MakeDevice();
  auto queue = device->NewQueue(0).value();
  for (int64_t bytes : {1, 255, 65537}) {
    auto memory = device->Allocate(MemoryKind::kArena, bytes).value();
    EXPECT_EQ(memory->bytes(), bytes);
    EXPECT_EQ(memory->granularity(), 0) << "all of it is there";
    EXPECT_EQ(reinterpret_cast<uint64_t>(memory->data()) % 64, 0u);
    std::string got(bytes, 'x');
    ASSERT_TRUE(queue->Copy(got.data(), memory->data(), bytes, CopyKind::kToHost).ok());
    ASSERT_TRUE(queue->Wait().ok());
    EXPECT_EQ(got, std::string(bytes, '\0'));
  }
}

TEST(CudaDeviceTest, CopiesAndFillsInOrder) {
  auto device = MakeDevice();
  auto queue = device->NewQueue(0).value();
  auto one = device->Allocate(MemoryKind::kArena, 100).value();
  auto two = device->Allocate(MemoryKind::kArena, 100).value();
  const std::string sent(60, 'a');
  std::string got(100, '?');
  ASSERT_TRUE(queue->Fill(one->data(), 'b', 100).ok());
  ASSERT_TRUE(
      queue->Copy(static_cast<char*>(one->data()) + 40, sent.data(), 60, CopyKind::kToDevice).ok());
  ASSERT_TRUE(queue->Copy(two->data(), one->data(), 100, CopyKind::kOnDevice).ok());
  ASSERT_TRUE(queue->Fill(one->data(), 'c', 100).ok());
  ASSERT_TRUE(queue->Copy(got.data(), two->data(), 100, CopyKind::kToHost).ok());
  ASSERT_TRUE(queue->Copy(nullptr, nullptr, 0, CopyKind::kToHost).ok());
  ASSERT_TRUE(queue->Fill(nullptr, 1, 0).ok());
  ASSERT_TRUE(queue->Wait().ok());
  EXPECT_EQ(got, std::string(40, 'b') + sent);
}

TEST(CudaDeviceTest, EveryItemRunsOnce) {
  auto device = MakeDevice();
  auto kernel =
      device->LoadKernel(CubinOf("store<i64>(a.b1, g, load<i64>(a.b1, g) + g + 1);")).value();
  auto queue = device->NewQueue(0).value();
  // Around a wave, a block and all threads of the device.
  const int64_t all = device->properties().threads;
  for (int64_t items : {int64_t{1}, int64_t{31}, int64_t{33}, int64_t{128}, int64_t{1021}, all - 1,
                        all + 1, 3 * all}) {
    for (bool one_thread : {false, true}) {
      Call call(*device, items * 8);
      ASSERT_TRUE(call.Launch(*queue, *kernel, items, one_thread).ok());
      std::vector<int64_t> got(items);
      ASSERT_TRUE(queue->Copy(got.data(), call.to->data(), items * 8, CopyKind::kToHost).ok());
      ASSERT_TRUE(queue->Wait().ok());
      for (int64_t i = 0; i < items; ++i) ASSERT_EQ(got[i], i + 1) << items;
      EXPECT_EQ(call.launch->error().code, 0);
    }
  }
}

TEST(CudaDeviceTest, ScratchBelongsToOneItemAtATime) {
  constexpr int64_t kItems = 1000, kScratch = 200;
  const std::string cubin = CubinOf(
      "Buffer own = scratch(a, 0, 200);\n"
      "for (i64 i = 0; i < 25; ++i) store<i64>(own, i, g);\n"
      "i64 sum = 0;\n"
      "for (i64 i = 0; i < 25; ++i) sum += load<i64>(own, i);\n"
      "store<i64>(a.b1, g, sum);\n");
  // Room for one item, for some, for all.
  for (int64_t workspace : {int64_t{1}, int64_t{5000}, int64_t{1} << 26}) {
    auto device = MakeDevice({.workspace_bytes = workspace});
    EXPECT_LE(device->ScratchBytes(kScratch), std::max<int64_t>(workspace, 256));
    auto kernel = device->LoadKernel(cubin).value();
    auto queue = device->NewQueue(kScratch).value();
    Call call(*device, kItems * 8);
    ASSERT_TRUE(call.Launch(*queue, *kernel, kItems).ok());
    std::vector<int64_t> got(kItems);
    ASSERT_TRUE(queue->Copy(got.data(), call.to->data(), kItems * 8, CopyKind::kToHost).ok());
    const absl::Status status = queue->Wait();
    ASSERT_TRUE(status.ok()) << status;
    for (int64_t i = 0; i < kItems; ++i) ASSERT_EQ(got[i], 25 * i) << workspace;
  }
}

TEST(CudaDeviceTest, ScratchThatNoMemoryHoldsIsRefused) {
  auto device = MakeDevice();
  EXPECT_EQ(device->ScratchBytes(INT64_MAX), INT64_MAX);
  EXPECT_EQ(device->ScratchBytes(0), 0);
  EXPECT_EQ(device->NewQueue(int64_t{1} << 40).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(CudaDeviceTest, ErrorsGoToTheirLaunches) {
  auto device = MakeDevice();
  auto kernel = device->LoadKernel(CubinOf(kFail)).value();
  auto queue = device->NewQueue(0).value();
  constexpr int kLaunches = 100;
  auto block =
      CallBlock::Create(*device, *queue,
                        std::vector<CallBlock::Launch>(kLaunches, {.buffers = 2, .sizes = 1}), {},
                        nullptr)
          .value();
  std::vector<RecordedLaunch> recorded;
  for (int i = 0; i < kLaunches; ++i) {
    recorded.push_back(block->Recorded(i));
    recorded.back().kernel = kernel.get();
    recorded.back().most_items = 300;
    block->arguments(i).items() = 300;
  }
  const auto recording = queue->Record(recorded).value();
  // Slots are used again: what failed in one call is no error of the next.
  for (int round = 0; round < 3; ++round) {
    const auto fails = [&](int i) { return i % 7 == round; };
    for (int i = 0; i < kLaunches; ++i) block->arguments(i).size(0) = fails(i) ? 5 : 1000;
    ASSERT_TRUE(block->CopyIn(*queue).ok());
    ASSERT_TRUE(queue->Replay(*recording).ok());
    ASSERT_TRUE(block->CopyOut(*queue).ok());
    ASSERT_TRUE(queue->Wait().ok());
    for (int i = 0; i < kLaunches; ++i) {
      const KernelError& error = block->Error(i);
      ASSERT_EQ(error.code, fails(i) ? 1 : 0) << i;
      if (!fails(i)) continue;
      EXPECT_EQ(error.item, 5);
      EXPECT_EQ(error.index, 5);
      EXPECT_EQ(error.extent, 5);
    }
  }
}

TEST(CudaDeviceTest, StepsOfARecordingRunInOrder) {
  auto device = MakeDevice();
  auto kernel =
      device->LoadKernel(CubinOf("store<i64>(a.b1, 0, 3 * load<i64>(a.b1, 0) + a.s0);")).value();
  auto queue = device->NewQueue(0).value();
  auto memory = device->Allocate(MemoryKind::kArena, 8).value();
  const std::vector<CallBlock::Launch> launches(20, {.buffers = 2, .sizes = 1});
  auto block = CallBlock::Create(*device, *queue, launches, {}, nullptr).value();
  std::vector<RecordedLaunch> recorded;
  int64_t want = 0;
  for (int i = 0; i < 20; ++i) {
    recorded.push_back(block->Recorded(i));
    recorded.back().kernel = kernel.get();
    const ArgumentWords arguments = block->arguments(i);
    arguments.address(1) = reinterpret_cast<int64_t>(memory->data());
    arguments.bytes(1) = 8;
    arguments.size(0) = i;
    arguments.items() = i % 5 == 4 ? 0 : 1;  // some have no work this time
    if (arguments.items() > 0) want = 3 * want + i;
  }
  auto recording = queue->Record(recorded).value();
  ASSERT_TRUE(block->CopyIn(*queue).ok());
  ASSERT_TRUE(queue->Replay(*recording).ok());
  int64_t got = 0;
  ASSERT_TRUE(queue->Copy(&got, memory->data(), 8, CopyKind::kToHost).ok());
  ASSERT_TRUE(queue->Wait().ok());
  EXPECT_EQ(got, want);
}

TEST(CudaDeviceTest, RecordingsKeepTimesIfAsked) {
  auto device = MakeDevice();
  auto kernel =
      device->LoadKernel(CubinOf("for (volatile i64 i = 0; i < a.s0; i = i + 1) {}")).value();
  auto queue = device->NewQueue(0).value();
  auto block =
      CallBlock::Create(*device, *queue,
                        std::vector<CallBlock::Launch>(2, {.buffers = 2, .sizes = 1}), {}, nullptr)
          .value();
  std::vector<RecordedLaunch> recorded;
  for (int i = 0; i < 2; ++i) {
    recorded.push_back(block->Recorded(i));
    recorded.back().kernel = kernel.get();
    block->arguments(i).items() = 1;
  }
  const auto without = queue->Record(recorded).value();
  queue->TimeRecordings();
  const auto timed = queue->Record(recorded).value();
  EXPECT_FALSE(timed->Seconds().ok()) << "it did not run";
  const auto seconds = [&](int64_t first, int64_t second) {
    block->arguments(0).size(0) = first;
    block->arguments(1).size(0) = second;
    for (const DeviceRecording* recording : {without.get(), timed.get()}) {
      EXPECT_TRUE(block->CopyIn(*queue).ok());
      EXPECT_TRUE(queue->Replay(*recording).ok());
      EXPECT_TRUE(queue->Wait().ok());
    }
    EXPECT_EQ(without->Seconds().value(), std::nullopt);
    return timed->Seconds().value().value();
  };
  constexpr int64_t kLong = 2'000'000;
  const double none = seconds(0, 0);
  EXPECT_GT(none, 0);
  // The first launch counts, and the last.
  EXPECT_GT(seconds(kLong, 0), 2 * none);
  EXPECT_GT(seconds(0, kLong), 2 * none);
}

TEST(CudaDeviceTest, AFaultLosesTheDeviceForGood) {
  auto device = MakeDevice();
  auto kernel = device->LoadKernel(CubinOf("store<f32>(a.b1, g + 1, 1.f);")).value();
  auto queue = device->NewQueue(0).value(), other = device->NewQueue(0).value();
  Call call(*device, 400);
  absl::Status status = call.Launch(*queue, *kernel, 100);
  if (status.ok()) status = queue->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuda:0 is lost"), HasSubstr("ILLEGAL_ADDRESS")));
  for (const absl::Status& later :
       {queue->Wait(), other->Wait(), call.launch->Enqueue(*other),
        other->Fill(call.to->data(), 0, 4),
        other->Copy(call.to->data(), call.from->data(), 4, CopyKind::kOnDevice),
        device->Allocate(MemoryKind::kArena, 1).status(), device->NewQueue(0).status(),
        device->LoadKernel(CubinOf(kDouble)).status()}) {
    EXPECT_EQ(later.code(), absl::StatusCode::kUnavailable) << later;
    EXPECT_THAT(std::string(later.message()), HasSubstr("ILLEGAL_ADDRESS"));
  }
}

TEST(CudaDeviceTest, FullMemoryIsNoLoss) {
  auto device = MakeDevice();
  const absl::Status status = device->Allocate(MemoryKind::kScratch, int64_t{1} << 45).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuda:0"), HasSubstr("35184372088832 bytes"), HasSubstr("are free")));
  EXPECT_TRUE(device->Allocate(MemoryKind::kArena, 1).ok());
}

// Launches store how many threads they have.
TEST(CudaDeviceTest, KernelsHaveAsManyThreadsAsAreResident) {
  const auto cubin = [](int team, int shared_bytes) {
    return CubinOf(absl::StrCat("if (g == 0 && lane_of<", team, ">() == 0) {\n",
                                "  store<i64>(a.b1, 0, teams<", team, ">(a));\n}\n"),
                   "sm_80", team, shared_bytes);
  };
  constexpr int64_t kItems = 1 << 20, kMultiprocessors = 4;
  struct Case {
    int team, shared_bytes;  // of a team
    const char* shared;      // of a multiprocessor
    int64_t threads;         // resident on one; blocks have 128
  };
  for (const Case& c : {Case{1, 0, "131072", 256}, Case{1, 64, "131072", 256},
                        Case{1, 64, "16383", 128}, Case{32, 12288, "131072", 256},
                        Case{32, 12288, "98303", 128}, Case{128, 49152, "65536", 128},
                        // Not even a block of 128 fits: a launch still has a team.
                        Case{32, 12288, "49151", 0}}) {
    setenv("ATHANOR_EMULATOR_SHARED", c.shared, 1);
    auto device = MakeDevice();
    auto kernel = device->LoadKernel(cubin(c.team, c.shared_bytes)).value();
    unsetenv("ATHANOR_EMULATOR_SHARED");
    auto queue = device->NewQueue(0).value();
    Call call(*device, 8);
    ASSERT_TRUE(call.Launch(*queue, *kernel, kItems, false, c.team).ok());
    int64_t teams = 0;
    ASSERT_TRUE(queue->Copy(&teams, call.to->data(), 8, CopyKind::kToHost).ok());
    const absl::Status status = queue->Wait();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(teams, std::max<int64_t>(1, kMultiprocessors * c.threads / c.team))
        << c.team << " " << c.shared;
  }
}

TEST(CudaDeviceTest, TellsResidentThreadsByTheBlock) {
  const CudaDriver* driver = emulator::NewDevice().value();
  auto device = CudaDevice::Create(*driver, {}).value();
  ASSERT_TRUE(device->Enter().ok());
  CudaModule module = nullptr;
  CudaFunction function = nullptr;
  const std::string cubin = CubinOf(kDouble);
  ASSERT_EQ(driver->ModuleLoadData(&module, cubin.data()), kCudaSuccess);
  ASSERT_EQ(driver->ModuleGetFunction(&function, module, kCudaKernelSymbol), kCudaSuccess);
  EXPECT_EQ(device->ResidentThreads(function, 1).value(), device->properties().threads);
  EXPECT_EQ(device->ResidentThreads(function, 32).value(), device->properties().threads);
  EXPECT_EQ(device->ResidentThreads(function, 96).value(), 4 * 2 * 96);
  EXPECT_EQ(device->ResidentThreads(function, 512).value(), 0);
  EXPECT_EQ(device->ResidentThreads(function, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Memory that is given back can be had again, whatever died first.
TEST(CudaDeviceTest, GivesEverythingBack) {
  const CudaDriver* driver = emulator::NewDevice().value();
  auto device = CudaDevice::Create(*driver, {}).value();
  ASSERT_TRUE(device->Enter().ok());
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(driver->MemGetInfo(&before, &total), kCudaSuccess);
  {
    auto kernel = device->LoadKernel(CubinOf(kDouble)).value();
    auto queue = device->NewQueue(64).value();
    Call call(*device, 400);
    ASSERT_TRUE(call.Launch(*queue, *kernel, 100).ok());
    ASSERT_TRUE(queue->Wait().ok());
    call.launch.reset();
    ASSERT_TRUE(queue->Fill(call.to->data(), 1, 400).ok());
    queue.reset();  // with work in flight
  }
  ASSERT_EQ(driver->MemGetInfo(&after, &total), kCudaSuccess);
  EXPECT_EQ(before, after);
}

TEST(CudaDeviceTest, ObjectsThatAreNoCubinsOfItAreRefused) {
  auto device = MakeDevice();
  const std::string whole = CubinOf(kDouble);
  for (size_t size : {size_t{0}, size_t{3}, size_t{63}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_EQ(device->LoadKernel(whole.substr(0, size)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  const absl::Status other = device->LoadKernel(CubinOf(kDouble, "sm_90a")).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition) << other;
  EXPECT_TRUE(device->LoadKernel(whole).ok());
}

TEST(CudaDeviceTest, QueuesOfManyThreadsDoNotMix) {
  auto device = MakeDevice();
  auto kernel = device->LoadKernel(CubinOf("store<i64>(a.b1, g, a.s0 + g);")).value();
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto queue = device->NewQueue(32).value();
      Call call(*device, 800);
      for (int round = 0; round < 50; ++round) {
        call.size = 1000 * t + round;
        ASSERT_TRUE(call.Launch(*queue, *kernel, 100).ok());
        std::vector<int64_t> got(100);
        ASSERT_TRUE(queue->Copy(got.data(), call.to->data(), 800, CopyKind::kToHost).ok());
        ASSERT_TRUE(queue->Wait().ok());
        for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(got[i], call.size + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace athanor
