#include "server/tuner/check/canaries.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/executor/one_launch_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// Adds 1 to each of the second argument's floats, and stores `sizes[1]` at byte `sizes[0]` of it.
void AddAndStray(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end, void*,
                 KernelError*) {
  for (int64_t i = begin; i < end; ++i) {
    StoreAt(buffers[1], i, LoadAt<float>(buffers[0], i) + 1);
  }
  if (sizes[1] >= 0) static_cast<char*>(buffers[1])[sizes[0]] = static_cast<char>(sizes[1]);
}

class CanariesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kFloats = 1000;

  void SetUp() override {
    memory_ = far_.Allocate(MemoryKind::kScratch, 1 << 20).value();
    queue_ = canaries_.NewQueue(0).value();
    kernel_ = CpuDevice::WrapKernel(AddAndStray);
    std::iota(Floats(0), Floats(0) + 3 * kFloats, 0.0f);
  }

  float* Floats(int64_t first) const {
    return static_cast<float*>(FarDevice::Near(memory_->data())) + first;
  }
  void* OnDevice(int64_t first) const { return static_cast<float*>(memory_->data()) + first; }
  // Runs the kernel once.
  absl::Status Launch(std::vector<void*> buffers, std::vector<int64_t> bytes,
                      std::vector<int64_t> sizes, int64_t grid) {
    auto launch = OneLaunch::Record(
        canaries_, *queue_,
        {.kernel = kernel_.get(), .buffers = 2, .sizes = 2, .most_items = 1 << 20});
    if (!launch.ok()) return launch.status();
    (*launch)->Set(buffers, bytes, sizes, grid);
    absl::Status status = (*launch)->Enqueue(*queue_);
    const absl::Status waited = queue_->Wait();
    return status.ok() ? waited : status;
  }

  // Runs items [0, grid) on arguments that begin at these floats.
  absl::Status Run(int64_t in, int64_t out, int64_t at = 0, int64_t value = -1,
                   int64_t bytes = 4 * kFloats, int64_t grid = kFloats) {
    return Launch({OnDevice(in), OnDevice(out)}, {bytes, bytes}, {at, value}, grid);
  }

  const std::unique_ptr<FunctionDevice> device_ = FunctionDevice::Make(1);
  FarDevice far_{device_.get()};
  CanaryDevice canaries_{&far_};
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<DeviceQueue> queue_;
  std::unique_ptr<DeviceKernel> kernel_;
};

TEST_F(CanariesTest, ResultsAreWhereTheyShouldBe) {
  for (int64_t out : {kFloats, kFloats + 3, 2 * kFloats, int64_t{0}}) {
    ASSERT_TRUE(Run(0, out).ok());
    for (int64_t i = 0; i < kFloats; ++i) ASSERT_EQ(*Floats(out + i), static_cast<float>(i + 1));
    std::iota(Floats(0), Floats(0) + 3 * kFloats, 0.0f);
  }
}

// What lies together stays together, with what one argument has of the other.
TEST_F(CanariesTest, ArgumentsThatOverlapAreOne) {
  ASSERT_TRUE(Run(1, 0).ok());
  for (int64_t i = 0; i < kFloats; ++i) ASSERT_EQ(*Floats(i), static_cast<float>(i + 2));
  EXPECT_EQ(*Floats(kFloats), static_cast<float>(kFloats));
}

TEST_F(CanariesTest, AWriteBesideAnArgumentIsFound) {
  const struct {
    int64_t at;
    const char* message;
  } rows[] = {
      {4 * kFloats, "writes 1 byte behind argument 1, which has 4000 bytes"},
      {4 * kFloats + 300, "writes 301 bytes behind argument 1"},
      {-1, "writes 1 byte before argument 1"},
      {-40, "writes 40 bytes before argument 1"},
  };
  for (const auto& row : rows) {
    const absl::Status found = Run(0, kFloats, row.at, 1);
    EXPECT_EQ(found.code(), absl::StatusCode::kDataLoss) << found;
    EXPECT_THAT(std::string(found.message()), HasSubstr(row.message));
    // The neighbour itself is as it was, and the next launch finds clean gaps.
    EXPECT_EQ(*Floats(kFloats - 1), static_cast<float>(kFloats - 1));
    EXPECT_EQ(*Floats(2 * kFloats), static_cast<float>(2 * kFloats));
    EXPECT_TRUE(Run(0, kFloats).ok());
  }
}

// Such a value spoils the result, which is compared.
TEST_F(CanariesTest, AReadBehindAnArgumentFindsNoValue) {
  // Nor does it go into the next gap unseen.
  EXPECT_FALSE(Run(0, kFloats, 0, -1, 4 * kFloats, kFloats + 1).ok());
  ASSERT_TRUE(
      Launch({OnDevice(0), OnDevice(kFloats)}, {4 * (kFloats - 1), 4 * kFloats}, {0, -1}, kFloats)
          .ok());
  EXPECT_EQ(*Floats(2 * kFloats - 2), static_cast<float>(kFloats - 1));
  EXPECT_LT(*Floats(2 * kFloats - 1), -1e15f);
}

TEST_F(CanariesTest, ArgumentsOfNoBytesAndOfVeryMany) {
  EXPECT_TRUE(Run(0, kFloats, 0, -1, /*bytes=*/0, /*grid=*/0).ok());
  // No gaps then, and nothing is found.
  memory_ = far_.Allocate(MemoryKind::kScratch, 2 * CanaryDevice::kMostBytes).value();
  EXPECT_TRUE(Launch({OnDevice(0), OnDevice(CanaryDevice::kMostBytes / 4)},
                     {CanaryDevice::kMostBytes, 8}, {8, 1}, 2)
                  .ok());
  EXPECT_EQ(reinterpret_cast<char*>(Floats(CanaryDevice::kMostBytes / 4))[8], 1);
}

// Whole plans run as without.
TEST_F(CanariesTest, PlansRunAsWithout) {
  const std::vector<ParameterView> parameters = {RowParameter(0.5f)};
  const auto plan =
      Executable::Load(RowPlan(), RowPlanObjects(), parameters, &canaries_, {.poison = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto context = (*plan)->NewContext().value();
  for (int64_t rows : {0, 1, 7, 64}) {
    RowCall call(rows);
    ASSERT_TRUE(call.Run(**plan, context.get()).ok());
    EXPECT_TRUE(call.Right(0.5f)) << rows;
  }
}

}  // namespace
}  // namespace athanor
