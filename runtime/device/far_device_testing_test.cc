// Shows that the far device notices what the tests that run on it rely on.
#include "runtime/device/far_device_testing.h"

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/executor/one_launch_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class FarDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(memory_->Commit(0, 64).ok()); }
  static void ExpectBroken(const absl::Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  // Doubles eight floats.
  absl::Status Double(void* from, int64_t from_bytes, void* to, int64_t to_bytes,
                      int64_t items = kWidth) {
    auto launch =
        OneLaunch::Record(far_, *queue_,
                          {.kernel = kernel_.get(), .buffers = 2, .sizes = 0, .most_items = kWidth})
            .value();
    launch->Set({from, to}, {from_bytes, to_bytes}, {}, items);
    absl::Status status = launch->Enqueue(*queue_);
    if (absl::Status waited = queue_->Wait(); status.ok()) status = waited;
    return status;
  }

  const std::unique_ptr<FunctionDevice> near_ = FunctionDevice::Make(1);
  FarDevice far_{near_.get()};
  std::unique_ptr<DeviceMemory> memory_ = far_.Allocate(MemoryKind::kArena, 64).value();
  char* const data_ = static_cast<char*>(memory_->data());
  const std::unique_ptr<DeviceKernel> kernel_ = far_.LoadKernel("double").value();
  std::unique_ptr<DeviceQueue> queue_ = far_.NewQueue(0).value();
};

using FarDeviceDeathTest = FarDeviceTest;

TEST_F(FarDeviceDeathTest, TheHostCannotTouchItsMemory) {
  EXPECT_DEATH({ *static_cast<volatile char*>(data_) = 1; }, "");
  EXPECT_DEATH({ (void)*static_cast<volatile char*>(data_); }, "");
  *static_cast<char*>(FarDevice::Near(data_)) = 1;
}

TEST_F(FarDeviceDeathTest, QueuesDoNotDieWithCalls) {
  EXPECT_DEATH(
      {
        EXPECT_TRUE(queue_->Fill(data_, 1, 1).ok());
        queue_.reset();
      },
      "nobody waited for");
}

TEST_F(FarDeviceTest, NothingRunsBeforeWait) {
  std::string from(8, 'a'), to(8, '?');
  ASSERT_TRUE(queue_->Copy(data_, from.data(), 8, CopyKind::kToDevice).ok());
  ASSERT_TRUE(queue_->Fill(data_, 'f', 2).ok());
  ASSERT_TRUE(queue_->Copy(data_ + 8, data_, 8, CopyKind::kOnDevice).ok());
  ASSERT_TRUE(queue_->Copy(to.data(), data_ + 8, 8, CopyKind::kToHost).ok());
  from = "bbbbbbbb";
  EXPECT_EQ(to, "????????");
  ASSERT_TRUE(queue_->Wait().ok());
  EXPECT_EQ(to, "ffbbbbbb");
}

TEST_F(FarDeviceTest, BuffersLieInOneBlock) {
  EXPECT_TRUE(Double(data_, 32, data_ + 32, 32).ok());
  ExpectBroken(Double(data_, 32, data_ + 32, 33), "buffer of a launch: 33 bytes");
  ExpectBroken(Double(data_ - 1, 32, data_ + 32, 32), "buffer of a launch: 32 bytes");
  float host[kWidth] = {};
  ExpectBroken(Double(host, 32, data_ + 32, 32), "not in a block of the device");
  // Of no bytes it may be anything.
  EXPECT_TRUE(queue_->Fill(nullptr, 1, 0).ok());
  EXPECT_TRUE(queue_->Copy(nullptr, data_ + 64, 0, CopyKind::kToHost).ok());
  EXPECT_TRUE(queue_->Wait().ok());
  memory_.reset();
  EXPECT_FALSE(far_.Holds(data_, 32));
}

TEST_F(FarDeviceTest, MemoryHasToBeCommitted) {
  const int64_t page = memory_->granularity();
  ASSERT_GT(page, 0);
  auto memory = far_.Allocate(MemoryKind::kArena, 2 * page + 1).value();
  char* const data = static_cast<char*>(memory->data());
  const auto fill = [&](int64_t offset, int64_t bytes) {
    const absl::Status status = queue_->Fill(data + offset, 1, bytes);
    EXPECT_TRUE(queue_->Wait().ok());
    return status;
  };
  ExpectBroken(fill(0, 1), "not in a block of the device, committed");
  ASSERT_TRUE(memory->Commit(page + 1, page - 1).ok());
  EXPECT_TRUE(fill(page, page).ok());
  ExpectBroken(fill(page, page + 1), "fill");
  ExpectBroken(fill(page - 1, 2), "fill");
  ASSERT_TRUE(memory->Commit(2 * page, 1).ok());
  EXPECT_TRUE(fill(page, page + 1).ok());
  memory->Decommit(page + 1, page);  // no whole granule but the last, which ends the memory
  EXPECT_TRUE(fill(page, page).ok());
  ExpectBroken(fill(2 * page, 1), "fill");
  memory->Decommit();
  ExpectBroken(fill(page, 1), "fill");
  // Scratch is there at once.
  auto scratch = far_.Allocate(MemoryKind::kScratch, 1).value();
  EXPECT_EQ(scratch->granularity(), 0);
  EXPECT_TRUE(queue_->Fill(scratch->data(), 1, 1).ok());
  EXPECT_TRUE(queue_->Wait().ok());
}

TEST_F(FarDeviceTest, CopiesGoTheWayTheySay) {
  char host[64] = {};
  ExpectBroken(queue_->Copy(host, data_, 8, CopyKind::kToDevice), "copy to: 8 bytes");
  ExpectBroken(queue_->Copy(data_, host, 8, CopyKind::kToHost), "copy to: 8 bytes");
  ExpectBroken(queue_->Copy(data_, host, 8, CopyKind::kOnDevice), "copy from: 8 bytes");
  ExpectBroken(queue_->Copy(data_, host, 65, CopyKind::kToDevice), "copy to: 65 bytes");
  ExpectBroken(queue_->Fill(host, 1, 8), "fill: 8 bytes");
  EXPECT_TRUE(queue_->Wait().ok());
}

TEST_F(FarDeviceTest, ALaunchHasNoMoreItemsThanWereRecorded) {
  EXPECT_TRUE(Double(data_, 32, data_ + 32, 32, 0).ok());
  ExpectBroken(Double(data_, 32, data_ + 32, 32, kWidth + 1),
               "9 items; a launch was recorded of 8");
  ExpectBroken(Double(data_, 32, data_ + 32, 32, -1), "-1 items");
}

TEST_F(FarDeviceTest, ItHasRecordingsInsteadOfLaunches) {
  EXPECT_FALSE(queue_->Launch(*kernel_, {.grid = 1}).ok());
  EXPECT_FALSE(near_->NewQueue(0).value()->Record({}).ok());
}

}  // namespace
}  // namespace athanor
