// The emulated driver without kernels: memory, copies, queues, events, graphs, contexts.
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulator/testing.h"

namespace athanor {
namespace {

using ::testing::Each;

constexpr size_t kGranule = size_t{2} << 20;

class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("ATHANOR_EMULATOR_ARCH");
    unsetenv("ATHANOR_EMULATOR_QUEUE");
    setenv("ATHANOR_EMULATOR_BYTES", "67108864", 1);
    const absl::StatusOr<const CudaDriver*> driver = emulator::NewDevice();
    ASSERT_TRUE(driver.ok()) << driver.status();
    cuda_ = *driver;
  }
  void Start() {
    ASSERT_EQ(cuda_->Init(0), kCudaSuccess);
    ASSERT_EQ(cuda_->PrimaryCtxRetain(&context_, 0), kCudaSuccess);
    ASSERT_EQ(cuda_->CtxSetCurrent(context_), kCudaSuccess);
    ASSERT_EQ(cuda_->StreamCreate(&stream_, kCudaStreamNonBlocking), kCudaSuccess);
  }
  CudaPointer Allocate(size_t bytes) {
    CudaPointer pointer = 0;
    EXPECT_EQ(cuda_->MemAlloc(&pointer, bytes), kCudaSuccess);
    return pointer;
  }
  size_t Free() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cuda_->MemGetInfo(&free, &total), kCudaSuccess);
    EXPECT_EQ(total, size_t{64} << 20);
    return free;
  }
  CudaResult Upload(CudaPointer to, const std::vector<int>& values) {
    const CudaResult result =
        cuda_->CopyToDevice(to, values.data(), values.size() * sizeof(int), stream_);
    return result != kCudaSuccess ? result : Wait();
  }
  CudaResult Wait() { return cuda_->StreamSynchronize(stream_); }

  const CudaDriver* cuda_ = nullptr;
  CudaContext context_ = nullptr;
  CudaStream stream_ = nullptr;
};

TEST_F(DriverTest, CallsNeedTheirDriverAndContext) {
  CudaPointer pointer = 0;
  CudaDeviceHandle device = 0;
  EXPECT_EQ(cuda_->DeviceGet(&device, 0), kCudaNotInitialized);
  ASSERT_EQ(cuda_->Init(0), kCudaSuccess);
  EXPECT_EQ(cuda_->DeviceGet(&device, 0), kCudaSuccess);
  EXPECT_EQ(cuda_->DeviceGet(&device, 1), kCudaInvalidDevice);
  constexpr CudaResult kInvalidContext = 201;
  EXPECT_EQ(cuda_->MemAlloc(&pointer, 4), kInvalidContext);
  Start();
  EXPECT_EQ(cuda_->MemAlloc(&pointer, 4), kCudaSuccess);
  // Each thread says which context it uses.
  std::thread([&] {
    EXPECT_EQ(cuda_->MemFree(pointer), kInvalidContext);
    EXPECT_EQ(cuda_->CtxSetCurrent(context_), kCudaSuccess);
    EXPECT_EQ(cuda_->MemFree(pointer), kCudaSuccess);
  }).join();
  EXPECT_EQ(cuda_->PrimaryCtxRelease(0), kCudaSuccess);
  EXPECT_EQ(cuda_->MemAlloc(&pointer, 4), kInvalidContext);
}

TEST_F(DriverTest, TheEnvironmentSaysWhichDeviceItIs) {
  Start();
  const auto attribute = [&](CudaDeviceAttribute which) {
    int value = -1;
    EXPECT_EQ(cuda_->DeviceGetAttribute(&value, which, 0), kCudaSuccess);
    return value;
  };
  EXPECT_EQ(attribute(kCudaComputeMajor), 8);
  EXPECT_EQ(attribute(kCudaComputeMinor), 0);
  EXPECT_EQ(attribute(kCudaMultiprocessors), 4);
  setenv("ATHANOR_EMULATOR_ARCH", "sm_90a", 1);
  EXPECT_EQ(attribute(kCudaComputeMajor), 9);
}

TEST_F(DriverTest, MemoryIsCounted) {
  Start();
  CudaPointer pointer = 0;
  EXPECT_EQ(cuda_->MemAlloc(&pointer, 0), kCudaInvalidValue);
  EXPECT_EQ(cuda_->MemAlloc(&pointer, (size_t{64} << 20) + 1), kCudaOutOfMemory);
  EXPECT_EQ(cuda_->MemAlloc(&pointer, SIZE_MAX), kCudaOutOfMemory);
  const CudaPointer all = Allocate(size_t{64} << 20);
  EXPECT_EQ(all % 256, 0);
  EXPECT_EQ(Free(), 0);
  EXPECT_EQ(cuda_->MemAlloc(&pointer, 1), kCudaOutOfMemory);
  EXPECT_EQ(cuda_->MemFree(all + 256), kCudaInvalidValue);
  EXPECT_EQ(cuda_->MemFree(all), kCudaSuccess);
  EXPECT_EQ(cuda_->MemFree(all), kCudaInvalidValue);
  EXPECT_EQ(cuda_->MemFree(0), kCudaSuccess);
  EXPECT_EQ(Free(), size_t{64} << 20);
}

TEST_F(DriverTest, CopiesAndFillsMoveWhatTheySay) {
  Start();
  const CudaPointer from = Allocate(16), to = Allocate(16);
  std::vector<int> read(4);
  ASSERT_EQ(Upload(from, {1, 2, 3, 4}), kCudaSuccess);
  ASSERT_EQ(cuda_->FillBytes(to, 1, 16, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyOnDevice(to + 4, from, 8, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToHost(read.data(), to, 16, stream_), kCudaSuccess);
  ASSERT_EQ(Wait(), kCudaSuccess);
  EXPECT_EQ(read, (std::vector<int>{0x01010101, 1, 2, 0x01010101}));
}

TEST_F(DriverTest, CopiesAndFillsOutsideMemoryAreRefused) {
  Start();
  const CudaPointer memory = Allocate(16);
  int host[8] = {};
  EXPECT_EQ(cuda_->CopyToDevice(memory + 4, host, 16, stream_), kCudaInvalidValue);
  EXPECT_EQ(cuda_->CopyToHost(host, memory - 4, 8, stream_), kCudaInvalidValue);
  EXPECT_EQ(cuda_->CopyOnDevice(memory, memory + 8, 16, stream_), kCudaInvalidValue);
  EXPECT_EQ(cuda_->FillBytes(memory, 0, 17, stream_), kCudaInvalidValue);
  EXPECT_EQ(cuda_->FillBytes(memory + 8, 0, SIZE_MAX, stream_), kCudaInvalidValue);
  EXPECT_EQ(cuda_->CopyToDevice(0, host, 4, stream_), kCudaInvalidValue);
  EXPECT_EQ(cuda_->CopyToDevice(0, host, 0, stream_), kCudaSuccess);  // nothing
  EXPECT_EQ(Wait(), kCudaSuccess);
}

TEST_F(DriverTest, WorkWaitsUntilItIsWaitedFor) {
  Start();
  const CudaPointer memory = Allocate(4);
  void* pinned = nullptr;
  ASSERT_EQ(cuda_->MemHostAlloc(&pinned, 4, 0), kCudaSuccess);
  int& source = *static_cast<int*>(pinned);
  int read = 0;
  source = 1;
  ASSERT_EQ(cuda_->CopyToDevice(memory, &source, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToHost(&read, memory, 4, stream_), kCudaSuccess);
  source = 2;  // too early
  EXPECT_EQ(read, 0);
  ASSERT_EQ(Wait(), kCudaSuccess);
  EXPECT_EQ(read, 2);

  setenv("ATHANOR_EMULATOR_QUEUE", "now", 1);
  ASSERT_EQ(cuda_->CopyToDevice(memory, &source, 4, stream_), kCudaSuccess);
  source = 3;
  ASSERT_EQ(cuda_->CopyToHost(&read, memory, 4, stream_), kCudaSuccess);
  EXPECT_EQ(read, 2);
  EXPECT_EQ(cuda_->MemFreeHost(pinned), kCudaSuccess);
}

TEST_F(DriverTest, AStreamDoesNotWaitForAnother) {
  Start();
  CudaStream other = nullptr;
  ASSERT_EQ(cuda_->StreamCreate(&other, kCudaStreamNonBlocking), kCudaSuccess);
  const CudaPointer memory = Allocate(4);
  const int one = 1;
  int read = 0;
  ASSERT_EQ(cuda_->FillBytes(memory, 0, 4, stream_), kCudaSuccess);
  ASSERT_EQ(Wait(), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToDevice(memory, &one, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToHost(&read, memory, 4, other), kCudaSuccess);
  ASSERT_EQ(cuda_->StreamSynchronize(other), kCudaSuccess);
  EXPECT_EQ(read, 0);
  ASSERT_EQ(cuda_->StreamDestroy(stream_), kCudaSuccess);  // does what it has left
  ASSERT_EQ(cuda_->CopyToHost(&read, memory, 4, other), kCudaSuccess);
  ASSERT_EQ(cuda_->StreamSynchronize(other), kCudaSuccess);
  EXPECT_EQ(read, 1);
  EXPECT_NE(cuda_->StreamSynchronize(stream_), kCudaSuccess);
}

TEST_F(DriverTest, AnEventIsWaitedForWithWhatIsBeforeIt) {
  Start();
  const CudaPointer memory = Allocate(4);
  CudaEvent begin = nullptr, end = nullptr;
  ASSERT_EQ(cuda_->EventCreate(&begin, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->EventCreate(&end, 0), kCudaSuccess);
  float ms = -1;
  EXPECT_NE(cuda_->EventElapsedTime(&ms, begin, end), kCudaSuccess);  // never recorded
  const int one = 1, two = 2;
  int first = 0, second = 0;
  ASSERT_EQ(cuda_->EventRecord(begin, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToDevice(memory, &one, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToHost(&first, memory, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->EventRecord(end, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToDevice(memory, &two, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToHost(&second, memory, 4, stream_), kCudaSuccess);
  EXPECT_EQ(cuda_->EventElapsedTime(&ms, begin, end), kCudaNotReady);
  ASSERT_EQ(cuda_->EventSynchronize(end), kCudaSuccess);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
  EXPECT_EQ(cuda_->EventElapsedTime(&ms, begin, end), kCudaSuccess);
  EXPECT_GT(ms, 0);
  ASSERT_EQ(cuda_->EventDestroy(begin), kCudaSuccess);
  ASSERT_EQ(cuda_->EventDestroy(end), kCudaSuccess);
  ASSERT_EQ(Wait(), kCudaSuccess);
  EXPECT_EQ(second, 2);
}

TEST_F(DriverTest, AnEventMayGoBeforeItIsReached) {
  Start();
  CudaEvent event = nullptr;
  ASSERT_EQ(cuda_->EventCreate(&event, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->EventRecord(event, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->EventRecord(event, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->EventDestroy(event), kCudaSuccess);
  EXPECT_EQ(Wait(), kCudaSuccess);
}

TEST_F(DriverTest, NodesOfAGraphWaitOnlyForThoseTheyName) {
  Start();
  const CudaPointer memory = Allocate(4);
  int one = 1, two = 2, read = 0;
  CudaGraph graph = nullptr;
  ASSERT_EQ(cuda_->GraphCreate(&graph, 0), kCudaSuccess);
  const auto add = [&](const CudaCopyNode& copy, std::vector<CudaGraphNode> after) {
    CudaGraphNode node = nullptr;
    EXPECT_EQ(cuda_->GraphAddCopy(&node, graph, after.data(), after.size(), &copy, context_),
              kCudaSuccess);
    return node;
  };
  const auto write = [&](int* from, std::vector<CudaGraphNode> after) {
    return add(
        {.from = {.type = kCudaCopyOfHost, .host = from}, .to = {.device = memory}, .bytes = 4},
        std::move(after));
  };
  // Neither waits for the other: the later one runs first.
  const CudaGraphNode first = write(&one, {}), second = write(&two, {});
  add({.from = {.device = memory}, .to = {.type = kCudaCopyOfHost, .host = &read}, .bytes = 4},
      {first, second});
  CudaGraphExec exec = nullptr;
  ASSERT_EQ(cuda_->GraphInstantiate(&exec, graph, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphLaunch(exec, stream_), kCudaSuccess);
  ASSERT_EQ(Wait(), kCudaSuccess);
  EXPECT_EQ(read, 1);
  CudaGraphNode node = nullptr;
  const auto stranger = reinterpret_cast<CudaGraphNode>(9);
  const CudaCopyNode copy = {.from = {.device = memory}, .to = {.device = memory}, .bytes = 4};
  EXPECT_EQ(cuda_->GraphAddCopy(&node, graph, &stranger, 1, &copy, context_), kCudaInvalidValue);
  EXPECT_EQ(cuda_->GraphExecDestroy(exec), kCudaSuccess);
  EXPECT_EQ(cuda_->GraphDestroy(graph), kCudaSuccess);
}

TEST_F(DriverTest, AGraphsCopiesReadTheirSourceAtEachReplay) {
  Start();
  const CudaPointer memory = Allocate(8);
  int source = 1, read[2] = {};
  CudaGraph graph = nullptr;
  CudaGraphNode node = nullptr;
  CudaGraphExec exec = nullptr;
  ASSERT_EQ(cuda_->GraphCreate(&graph, 0), kCudaSuccess);
  const CudaCopyNode in = {
      .from = {.type = kCudaCopyOfHost, .host = &source}, .to = {.device = memory}, .bytes = 4};
  const CudaCopyNode across = {
      .from = {.device = memory}, .to = {.device = memory + 4}, .bytes = 4};
  const CudaCopyNode out = {
      .from = {.device = memory}, .to = {.type = kCudaCopyOfHost, .host = read}, .bytes = 8};
  const CudaCopyNode outside = {
      .from = {.device = memory}, .to = {.device = memory + 8}, .bytes = 4};
  for (const CudaCopyNode* copy : {&in, &across, &out}) {
    const CudaGraphNode before = node;
    ASSERT_EQ(cuda_->GraphAddCopy(&node, graph, &before, before != nullptr ? 1 : 0, copy, context_),
              kCudaSuccess);
  }
  EXPECT_EQ(cuda_->GraphAddCopy(&node, graph, nullptr, 0, &outside, context_), kCudaInvalidValue);
  ASSERT_EQ(cuda_->GraphInstantiate(&exec, graph, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphDestroy(graph), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphUpload(exec, stream_), kCudaSuccess);
  for (source = 5; source < 8; ++source) {
    ASSERT_EQ(cuda_->GraphLaunch(exec, stream_), kCudaSuccess);
    EXPECT_NE(read[1], source);
    ASSERT_EQ(Wait(), kCudaSuccess);
    EXPECT_THAT(read, Each(source));
  }
  ASSERT_EQ(cuda_->GraphLaunch(exec, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphExecDestroy(exec), kCudaSuccess);
  EXPECT_EQ(Wait(), kCudaSuccess);
  EXPECT_EQ(read[1], 8);
}

TEST_F(DriverTest, CapturedWorkIsDoneByItsGraph) {
  Start();
  const CudaPointer memory = Allocate(4);
  int source = 1, read = 0;
  const CudaCopyNode out = {
      .from = {.device = memory}, .to = {.type = kCudaCopyOfHost, .host = &read}, .bytes = 4};
  CudaGraph graph = nullptr, child = nullptr;
  CudaGraphNode first = nullptr, last = nullptr;
  ASSERT_EQ(cuda_->StreamEndCapture(stream_, &child), kCudaInvalidValue) << "none is under way";
  ASSERT_EQ(cuda_->StreamBeginCapture(stream_, kCudaCaptureRelaxed), kCudaSuccess);
  EXPECT_EQ(cuda_->StreamBeginCapture(stream_, kCudaCaptureRelaxed), kCudaCaptureUnsupported);
  ASSERT_EQ(cuda_->FillBytes(memory, 9, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToDevice(memory, &source, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->StreamEndCapture(stream_, &child), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphCreate(&graph, 0), kCudaSuccess);
  EXPECT_EQ(cuda_->GraphAddChild(&first, graph, nullptr, 0, nullptr), kCudaInvalidValue);
  ASSERT_EQ(cuda_->GraphAddChild(&first, graph, nullptr, 0, child), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphDestroy(child), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphAddCopy(&last, graph, &first, 1, &out, context_), kCudaSuccess);
  CudaGraphExec exec = nullptr;
  ASSERT_EQ(cuda_->GraphInstantiate(&exec, graph, 0), kCudaSuccess);
  ASSERT_EQ(Wait(), kCudaSuccess);
  EXPECT_EQ(read, 0) << "nothing ran so far";
  for (source = 5; source < 8; ++source) {
    ASSERT_EQ(cuda_->GraphLaunch(exec, stream_), kCudaSuccess);
    ASSERT_EQ(Wait(), kCudaSuccess);
    EXPECT_EQ(read, source);
  }
  EXPECT_EQ(cuda_->GraphExecDestroy(exec), kCudaSuccess);
  EXPECT_EQ(cuda_->GraphDestroy(graph), kCudaSuccess);
}

TEST_F(DriverTest, AGraphRecordsEvents) {
  Start();
  const CudaPointer memory = Allocate(4);
  CudaEvent begin = nullptr, end = nullptr;
  ASSERT_EQ(cuda_->EventCreate(&begin, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->EventCreate(&end, 0), kCudaSuccess);
  int read = 0;
  const CudaCopyNode out = {
      .from = {.device = memory}, .to = {.type = kCudaCopyOfHost, .host = &read}, .bytes = 4};
  CudaGraph graph = nullptr;
  CudaGraphNode first = nullptr, copy = nullptr, last = nullptr;
  ASSERT_EQ(cuda_->GraphCreate(&graph, 0), kCudaSuccess);
  EXPECT_EQ(cuda_->GraphAddEvent(&first, graph, nullptr, 0, nullptr), kCudaInvalidValue);
  ASSERT_EQ(cuda_->GraphAddEvent(&first, graph, nullptr, 0, begin), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphAddCopy(&copy, graph, &first, 1, &out, context_), kCudaSuccess);
  ASSERT_EQ(cuda_->GraphAddEvent(&last, graph, &copy, 1, end), kCudaSuccess);
  CudaGraphExec exec = nullptr;
  ASSERT_EQ(cuda_->GraphInstantiate(&exec, graph, 0), kCudaSuccess);
  float ms = -1;
  EXPECT_EQ(cuda_->EventElapsedTime(&ms, begin, end), 400) << "nothing was launched so far";
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cuda_->GraphLaunch(exec, stream_), kCudaSuccess);
    EXPECT_EQ(cuda_->EventElapsedTime(&ms, begin, end), kCudaNotReady);
    ASSERT_EQ(Wait(), kCudaSuccess);
    ms = -1;
    ASSERT_EQ(cuda_->EventElapsedTime(&ms, begin, end), kCudaSuccess);
    EXPECT_GT(ms, 0);
    EXPECT_LT(ms, 1) << "those of this launch";
  }
  EXPECT_EQ(cuda_->GraphExecDestroy(exec), kCudaSuccess);
  EXPECT_EQ(cuda_->GraphDestroy(graph), kCudaSuccess);
  for (const CudaEvent event : {begin, end}) EXPECT_EQ(cuda_->EventDestroy(event), kCudaSuccess);
}

TEST_F(DriverTest, AWaitBreaksACapture) {
  Start();
  const CudaPointer memory = Allocate(4);
  CudaGraph graph = nullptr;
  ASSERT_EQ(cuda_->StreamBeginCapture(stream_, kCudaCaptureRelaxed), kCudaSuccess);
  ASSERT_EQ(cuda_->FillBytes(memory, 9, 4, stream_), kCudaSuccess);
  EXPECT_EQ(Wait(), kCudaCaptureUnsupported);
  EXPECT_EQ(cuda_->StreamEndCapture(stream_, &graph), kCudaCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(Wait(), kCudaSuccess) << "the stream is as before";
}

TEST_F(DriverTest, ReservedMemoryIsThereOnceMappedWithAccess) {
  Start();
  size_t granule = 0;
  const CudaAllocationProperties properties;
  ASSERT_EQ(cuda_->MemGranularity(&granule, &properties, kCudaGranularityMinimum), kCudaSuccess);
  EXPECT_EQ(granule, kGranule);
  CudaPointer base = 0;
  EXPECT_EQ(cuda_->AddressReserve(&base, kGranule + 1, 0, 0, 0), kCudaInvalidValue);
  ASSERT_EQ(cuda_->AddressReserve(&base, 3 * kGranule, 0, 0, 0), kCudaSuccess);
  CudaAllocation pieces[2] = {};
  const CudaAccess access;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cuda_->MemCreate(&pieces[i], kGranule, &properties, 0), kCudaSuccess);
    ASSERT_EQ(cuda_->MemMap(base + i * kGranule, kGranule, 0, pieces[i], 0), kCudaSuccess);
  }
  EXPECT_EQ(Free(), (size_t{64} << 20) - 2 * kGranule);
  EXPECT_EQ(cuda_->MemMap(base, kGranule, 0, pieces[1], 0), kCudaInvalidValue);  // taken
  EXPECT_EQ(cuda_->MemMap(base + 3 * kGranule, kGranule, 0, pieces[1], 0), kCudaInvalidValue);

  const CudaPointer seam = base + kGranule - 8;
  EXPECT_EQ(Upload(seam, {1, 2, 3, 4}), kCudaInvalidValue);  // no access yet
  ASSERT_EQ(cuda_->MemSetAccess(base, 2 * kGranule, &access, 1), kCudaSuccess);
  std::vector<int> read(4);
  ASSERT_EQ(Upload(seam, {1, 2, 3, 4}), kCudaSuccess);
  ASSERT_EQ(cuda_->CopyToHost(read.data(), seam, 16, stream_), kCudaSuccess);
  ASSERT_EQ(Wait(), kCudaSuccess);
  EXPECT_EQ(read, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(Upload(base + 2 * kGranule - 8, {1, 2, 3, 4}), kCudaInvalidValue);

  EXPECT_EQ(cuda_->AddressFree(base, 3 * kGranule), kCudaInvalidValue);  // mapped
  ASSERT_EQ(cuda_->MemUnmap(base + kGranule, kGranule), kCudaSuccess);
  EXPECT_EQ(Upload(seam, {1, 2, 3, 4}), kCudaInvalidValue);
  EXPECT_EQ(cuda_->MemUnmap(base, 2 * kGranule), kCudaInvalidValue);
  ASSERT_EQ(cuda_->MemUnmap(base, kGranule), kCudaSuccess);
  for (const CudaAllocation piece : pieces) EXPECT_EQ(cuda_->MemRelease(piece), kCudaSuccess);
  EXPECT_EQ(cuda_->MemRelease(pieces[0]), kCudaInvalidValue);
  EXPECT_EQ(Free(), size_t{64} << 20);
  EXPECT_EQ(cuda_->AddressFree(base, 3 * kGranule), kCudaSuccess);
}

TEST_F(DriverTest, AMappingKeepsWhatIsReleased) {
  Start();
  const CudaAllocationProperties properties;
  const CudaAccess access;
  CudaPointer base = 0;
  CudaAllocation piece = 0;
  const size_t all = size_t{64} << 20;
  ASSERT_EQ(cuda_->AddressReserve(&base, kGranule, 0, 0, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->MemCreate(&piece, kGranule, &properties, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->MemMap(base, kGranule, 0, piece, 0), kCudaSuccess);
  ASSERT_EQ(cuda_->MemRelease(piece), kCudaSuccess);
  EXPECT_EQ(cuda_->MemRelease(piece), kCudaInvalidValue);
  EXPECT_EQ(Free(), all - kGranule);
  ASSERT_EQ(cuda_->MemSetAccess(base, kGranule, &access, 1), kCudaSuccess);
  ASSERT_EQ(Upload(base, {1, 2, 3}), kCudaSuccess);
  // Work that needs it later loses the device.
  ASSERT_EQ(cuda_->FillBytes(base, 1, 4, stream_), kCudaSuccess);
  ASSERT_EQ(cuda_->MemUnmap(base, kGranule), kCudaSuccess);
  EXPECT_EQ(Free(), all);
  EXPECT_EQ(Wait(), kCudaIllegalAddress);
}

TEST_F(DriverTest, ADeviceMayHaveNoVirtualMemory) {
  Start();
  setenv("ATHANOR_EMULATOR_VIRTUAL", "0", 1);
  int has = -1;
  EXPECT_EQ(cuda_->DeviceGetAttribute(&has, kCudaVirtualMemory, 0), kCudaSuccess);
  EXPECT_EQ(has, 0);
  CudaPointer base = 0;
  constexpr CudaResult kNotSupported = 801;
  EXPECT_EQ(cuda_->AddressReserve(&base, kGranule, 0, 0, 0), kNotSupported);
  unsetenv("ATHANOR_EMULATOR_VIRTUAL");
  EXPECT_EQ(cuda_->AddressReserve(&base, kGranule, 0, 0, 0), kCudaSuccess);
}

TEST_F(DriverTest, ResultsHaveTheirNames) {
  EXPECT_EQ(
      CudaStatus(*cuda_, kCudaOutOfMemory, "cuMemAlloc"),
      absl::ResourceExhaustedError("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"));
  const char* name = "";
  EXPECT_EQ(cuda_->GetErrorName(4711, &name), kCudaInvalidValue);
  EXPECT_EQ(name, nullptr);
}

}  // namespace
}  // namespace athanor
