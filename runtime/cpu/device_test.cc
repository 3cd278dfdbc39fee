#include "runtime/cpu/device.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

std::string Object(const std::string& name) {
  std::ifstream file(absl::StrCat("runtime/cpu/", name, ".so"), std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::unique_ptr<CpuDevice> MakeDevice() { return CpuDevice::Create({.threads = 2}).value(); }

// The kernels of the row plan as shared objects.
TEST(CpuDeviceTest, RunsAPlanOfLoadedKernels) {
  const std::string objects[] = {Object("kernel_double"), Object("kernel_add_row"),
                                 Object("kernel_mul_row"), Object("kernel_gather")};
  auto device = MakeDevice();
  const ParameterView parameters[] = {RowParameter(0.5f)};
  auto executable =
      Executable::Load(RowPlan(), std::vector<absl::string_view>(objects, objects + 4), parameters,
                       device.get(), {.poison = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  auto context = (*executable)->NewContext().value();
  for (int64_t rows : {64, 1, 0, 33}) {
    RowCall call(rows);
    ASSERT_TRUE(call.Run(**executable, context.get()).ok());
    EXPECT_TRUE(call.Right(0.5f)) << rows;
  }
  RowCall bad(64);
  bad.idx[40] = 8;
  EXPECT_THAT(std::string(bad.Run(**executable, context.get()).message()),
              ::testing::HasSubstr("'pick': index 8 is out of range [0, 8) at "
                                   "work item 40"));
}

TEST(CpuDeviceTest, ObjectsWithoutTheKernelSymbolAreRefused) {
  const absl::Status status = MakeDevice()->LoadKernel(Object("module_one")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("'athanor_kernel'"));
}

void RecordScratch(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                   void* scratch, KernelError*) {
  for (int64_t i = begin; i < end; ++i) {
    static_cast<void**>(buffers[0])[i] = scratch;
  }
  static_cast<char*>(scratch)[sizes[0] - 1] = 1;
}

TEST(CpuDeviceTest, ScratchIsAlignedAndApart) {
  auto device = MakeDevice();
  auto queue = device->NewQueue(/*scratch_bytes=*/1000).value();
  auto kernel = CpuDevice::WrapKernel(RecordScratch);
  void* seen[256] = {};
  void* const buffers[] = {seen};
  const int64_t sizes[] = {1000};
  KernelError error;
  ASSERT_TRUE(queue
                  ->Launch(*kernel, {.buffers = buffers,
                                     .sizes = sizes,
                                     .grid = 256,
                                     .work = CpuDevice::kSharedWork,
                                     .error = &error})
                  .ok());
  ASSERT_TRUE(queue->Wait().ok());
  for (void* a : seen) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0);
    for (void* b : seen) {
      const int64_t apart = static_cast<char*>(a) - static_cast<char*>(b);
      EXPECT_TRUE(apart == 0 || std::abs(apart) >= 1000);
    }
  }
  EXPECT_EQ(error.code, 0);
}

TEST(CpuDeviceTest, SmallLaunchesStayOnTheCallingThread) {
  auto device = MakeDevice();
  auto queue = device->NewQueue(64).value();
  auto kernel = CpuDevice::WrapKernel(
      [](void* const* buffers, const int64_t*, int64_t begin, int64_t end, void*, KernelError*) {
        // Not synchronised on purpose: there must be one call for the whole grid.
        static_cast<int64_t*>(buffers[0])[0] += 1;
        static_cast<int64_t*>(buffers[0])[1] += end - begin;
      });
  for (const bool one_thread : {false, true}) {
    int64_t counts[2] = {};
    void* const buffers[] = {counts};
    KernelError error;
    const LaunchArguments launch = {
        .buffers = buffers,
        .grid = 500,
        .work = one_thread ? int64_t{1} << 40 : CpuDevice::kSharedWork - 1,
        .one_thread = one_thread,
        .error = &error};
    ASSERT_TRUE(queue->Launch(*kernel, launch).ok());
    EXPECT_EQ(counts[0], 1);
    EXPECT_EQ(counts[1], 500);
  }
}

TEST(CpuDeviceTest, AnItemHasOneThread) {
  auto device = MakeDevice();
  auto queue = device->NewQueue(0).value();
  auto kernel = CpuDevice::WrapKernel(
      [](void* const*, const int64_t*, int64_t, int64_t, void*, KernelError*) { FAIL(); });
  KernelError error;
  const absl::Status status = queue->Launch(*kernel, {.grid = 1, .team = 32, .error = &error});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("teams of 32 threads"), absl::string_view::npos) << status;
}

TEST(CpuDeviceTest, ImpossibleScratchIsRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t bytes : {int64_t{1} << 62, kMost - 1, kMost}) {
    EXPECT_EQ(MakeDevice()->NewQueue(bytes).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

TEST(CpuDeviceTest, ScratchBytesAreThoseOfAllThreads) {
  const auto device = MakeDevice();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::pair<int64_t, int64_t> rows[] = {{0, 0},
                                              {1, 256},
                                              {128, 256},
                                              {129, 512},
                                              {kMost / 2 - 127, kMost - 255},
                                              {kMost / 2 - 126, kMost},
                                              {kMost, kMost}};
  for (const auto& [per_item, bytes] : rows) {
    EXPECT_EQ(device->ScratchBytes(per_item), bytes) << per_item;
  }
}

TEST(CpuDeviceTest, CopiesAndFills) {
  const auto device = MakeDevice();
  EXPECT_TRUE(device->host_memory());
  const auto memory = device->Allocate(MemoryKind::kArena, 64).value();
  const auto queue = device->NewQueue(0).value();
  auto* const data = static_cast<char*>(memory->data());
  const std::string from = "0123456789";
  std::string to(12, '?');
  ASSERT_TRUE(queue->Copy(data + 1, from.data(), 10, CopyKind::kToDevice).ok());
  ASSERT_TRUE(queue->Copy(data + 32, data + 3, 7, CopyKind::kOnDevice).ok());
  ASSERT_TRUE(queue->Fill(data + 33, 'x', 2).ok());
  ASSERT_TRUE(queue->Copy(to.data() + 1, data + 32, 8, CopyKind::kToHost).ok());
  // A pointer to nothing may be null.
  ASSERT_TRUE(queue->Copy(nullptr, data, 0, CopyKind::kToHost).ok());
  ASSERT_TRUE(queue->Copy(data, nullptr, 0, CopyKind::kToDevice).ok());
  ASSERT_TRUE(queue->Fill(nullptr, 'y', 0).ok());
  ASSERT_TRUE(queue->Wait().ok());
  EXPECT_EQ(to, std::string("?2xx5678\0???", 12));
}

}  // namespace
}  // namespace athanor
