// Tests that boxes get plans of their own as far as the memory of their device allows.
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/memory/prepared_pool.h"
#include "server/testing/box_testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The ledger of a device with memory of its own.
class Ledger final : public MemoryLedger {
 public:
  explicit Ledger(int64_t free) : free_(free) {}
  absl::Status Reserve(MemoryKind, int64_t) override { return absl::OkStatus(); }
  void Release(MemoryKind, int64_t) override {}
  int64_t free() const override { return free_; }
  std::string limit_name() const override { return "what the GPU has"; }

 private:
  const int64_t free_;
};

class BoxMemoryTest : public BoxTest {
 protected:
  static constexpr int64_t kBytes = int64_t{1} << 20;

  // Returns the reason why the first box has no plan, with so much free on the device.
  std::string ReasonWith(int64_t free) {
    const auto near = FunctionDevice::Make(1);
    FarDevice device(near.get());
    Ledger ledger(free);
    PreparedPool pool(&device, &ledger);
    core_.reset();
    control_->constant_bytes = kBytes;
    control_->pool = &pool;
    Restart();
    const std::shared_ptr<ModelVersion> version = StoreBoxes();
    AwaitEnd(*Start(version));
    const v1::Model model = version->ToProto(true);
    core_.reset();
    control_->pool = nullptr;
    return model.buckets(0).reason();
  }
};

TEST_F(BoxMemoryTest, AGpusOwnMemoryDecides) {
  EXPECT_THAT(ReasonWith(kBytes - 1),
              AllOf(HasSubstr("weights do not fit beside the 0 bytes of the other buckets"),
                    HasSubstr("1048575 are free of the limit of what the GPU has")));
}

TEST_F(BoxMemoryTest, PlansThatFitAreLoaded) {
  // Both boxes share the constant.
  EXPECT_EQ(ReasonWith(kBytes), "");
}

}  // namespace
}  // namespace athanor
