#include "runtime/executor/call_block.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

class CountingLedger : public MemoryLedger {
 public:
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
    if (held[kind] + bytes > limit) return absl::ResourceExhaustedError("no more");
    held[kind] += bytes;
    return absl::OkStatus();
  }
  void Release(MemoryKind kind, int64_t bytes) override { held[kind] -= bytes; }

  std::map<MemoryKind, int64_t> held;
  int64_t limit = 1 << 20;
};

class CallBlockTest : public ::testing::Test {
 protected:
  std::unique_ptr<CallBlock> Make(int launches, const CallBlock::Limits& limits) {
    const std::vector<CallBlock::Launch> all(launches, {.buffers = 2, .sizes = 1});
    return CallBlock::Create(far_, *queue_, all, limits, &ledger_, &host_ledger_).value();
  }
  // Records a kernel that doubles floats, or gathers, by the block's first launches.
  std::unique_ptr<DeviceRecording> Record(const CallBlock& block, const DeviceKernel& kernel,
                                          int first, int end) {
    std::vector<RecordedLaunch> launches;
    for (int i = first; i < end; ++i) {
      launches.push_back(block.Recorded(i));
      launches.back().kernel = &kernel;
      launches.back().most_items = kWidth;
    }
    return queue_->Record(launches).value();
  }
  static void Set(const ArgumentWords& words, std::vector<std::pair<void*, int64_t>> buffers,
                  int64_t size, int64_t items) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      words.address(i) = reinterpret_cast<int64_t>(buffers[i].first);
      words.bytes(i) = buffers[i].second;
    }
    words.size(0) = size;
    words.items() = items;
  }

  CountingLedger ledger_, host_ledger_;
  const std::unique_ptr<FunctionDevice> near_ = FunctionDevice::Make(1);
  FarDevice far_{near_.get()};
  std::unique_ptr<DeviceQueue> queue_ = far_.NewQueue(0).value();
};

TEST_F(CallBlockTest, BringsInputsAndFetchesOutputsOfAnySize) {
  auto block = Make(1, {.most_in = 3 * 64, .most_out = 3 * 64});
  auto kernel = far_.LoadKernel("double").value();
  auto recording = Record(*block, *kernel, 0, 1);
  for (const int64_t n : {8, 1, 0, 5, 8}) {
    const int64_t bytes = n * sizeof(float);
    block->Resize(64 + bytes, 64 + bytes);
    Set(block->arguments(0), {{block->in_on_device(64), bytes}, {block->out_on_device(64), bytes}},
        0, n);
    for (int64_t i = 0; i < n; ++i) StoreAt(block->in(64), i, 3.0f + i);
    std::memset(block->out(0), 0xFF, 64 + bytes);
    ASSERT_TRUE(block->CopyIn(*queue_).ok());
    ASSERT_TRUE(queue_->Replay(*recording).ok());
    ASSERT_TRUE(block->CopyOut(*queue_).ok());
    ASSERT_TRUE(queue_->Wait().ok());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(LoadAt<float>(block->out(64), i), 2 * (3.0f + i));
    EXPECT_EQ(block->Error(0).code, 0);
  }
}

TEST_F(CallBlockTest, TensorsAndSlotsAreAligned) {
  auto block = Make(3, {.most_in = 1000, .most_out = 7});
  for (const int64_t in : {0, 1, 63, 64, 1000}) {
    block->Resize(in, 7);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->in_on_device(0)) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->out_on_device(0)) % 64, 0u);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(block->arguments(i).error() % 64, 0);
}

TEST_F(CallBlockTest, ChargesItsMemoryWhereItLiesAndGivesItBack) {
  int64_t &device = ledger_.held[MemoryKind::kStaging],
          &host = host_ledger_.held[MemoryKind::kStaging];
  {
    auto block = Make(2, {.most_in = 256, .most_out = 128});
    EXPECT_GE(device, 256 + 128 + 2 * 64 + 2 * 9 * 8);
    EXPECT_EQ(host, device);
    // Turns that are ahead lie on the host alone.
    const int64_t without = device;
    auto turning = Make(2, {.most_in = 256, .most_out = 128, .most_of_turn = 2});
    EXPECT_EQ(device, 2 * without);
    EXPECT_GE(host, 2 * without + 64 * 2 * 9 * 8);
  }
  EXPECT_EQ(device, 0);
  EXPECT_EQ(host, 0);
  const std::vector<CallBlock::Launch> launches(1);
  for (CountingLedger* full : {&ledger_, &host_ledger_}) {
    full->limit = 100;
    EXPECT_EQ(
        CallBlock::Create(far_, *queue_, launches, {}, &ledger_, &host_ledger_).status().code(),
        absl::StatusCode::kResourceExhausted);
    full->limit = 1 << 20;
    EXPECT_EQ(device, 0);
    EXPECT_EQ(host, 0);
  }
}

// The queue does all of it at the wait, long after the host has gone on to other arguments.
TEST_F(CallBlockTest, TurnsHaveTheArgumentsThatTheyWereSentWith) {
  constexpr int64_t kBytes = kWidth * sizeof(float);
  auto block = Make(3, {.most_of_turn = 2});
  auto kernel = far_.LoadKernel("double").value();
  auto recording = Record(*block, *kernel, 1, 3);
  auto memory = far_.Allocate(MemoryKind::kScratch, 100 * kBytes).value();
  char* const at = static_cast<char*>(memory->data());
  int turns = 0;
  std::vector<float> rows(100 * kWidth);
  rows[0] = 1;
  ASSERT_TRUE(queue_->Copy(at, rows.data(), 100 * kBytes, CopyKind::kToDevice).ok());
  ASSERT_TRUE(block->CopyIn(*queue_).ok());
  for (; !block->Full(); ++turns) {
    for (int i = 0; i < 2; ++i) {
      char* const from = at + (2 * turns + i) % 90 * kBytes;
      Set(block->arguments(1 + i),
          {{from, kBytes}, {at + (2 * turns + i + 1) % 90 * kBytes, kBytes}}, 0, kWidth);
    }
    ASSERT_TRUE(block->SendTurn(*queue_, 1, 3).ok());
    ASSERT_TRUE(queue_->Replay(*recording).ok());
    ASSERT_TRUE(block->FetchTurn(*queue_).ok());
    if (2 * turns + 4 > 89) break;
  }
  ASSERT_GT(turns, 20);
  ASSERT_TRUE(queue_->Copy(rows.data(), at, 100 * kBytes, CopyKind::kToHost).ok());
  ASSERT_TRUE(queue_->Wait().ok());
  for (int i = 1; i <= 2 * turns; ++i) EXPECT_EQ(rows[i * kWidth], 2 * rows[(i - 1) * kWidth]) << i;
  block->Settle([](int, const KernelError&) { FAIL(); });
}

TEST_F(CallBlockTest, TurnsTellTheirErrorsInOrder) {
  const std::vector<CallBlock::Launch> launches(2, {.buffers = 3, .sizes = 1});
  auto block = CallBlock::Create(far_, *queue_, launches, {.most_of_turn = 2}, nullptr).value();
  auto kernel = far_.LoadKernel("gather").value();
  auto recording = Record(*block, *kernel, 0, 2);
  auto memory = far_.Allocate(MemoryKind::kScratch, 1024).value();
  char* const at = static_cast<char*>(memory->data());
  const std::vector<int64_t> index = {4};
  ASSERT_TRUE(queue_->Copy(at + 512, index.data(), 8, CopyKind::kToDevice).ok());
  ASSERT_TRUE(block->CopyIn(*queue_).ok());
  std::vector<int64_t> sizes = {8, 4, 3, 8};
  for (const int64_t size : sizes) {
    for (int i = 0; i < 2; ++i) {
      Set(block->arguments(i), {{at, 32}, {at + 512, 8}, {at + 768, 4}}, i == 0 ? 8 : size, 1);
    }
    ASSERT_TRUE(block->SendTurn(*queue_, 0, 2).ok());
    ASSERT_TRUE(queue_->Replay(*recording).ok());
    ASSERT_TRUE(block->FetchTurn(*queue_).ok());
    ASSERT_TRUE(block->SendNumber(*queue_, at + 900, size).ok());
  }
  // Sent, and never run.
  ASSERT_TRUE(block->SendTurn(*queue_, 0, 2).ok());
  int64_t number = 0;
  ASSERT_TRUE(queue_->Copy(&number, at + 900, 8, CopyKind::kToHost).ok());
  ASSERT_TRUE(queue_->Wait().ok());
  EXPECT_EQ(number, 8);
  std::vector<std::pair<int, int64_t>> got;
  block->Settle(
      [&](int launch, const KernelError& error) { got.push_back({launch, error.extent}); });
  EXPECT_EQ(got, (std::vector<std::pair<int, int64_t>>{{1, 4}, {1, 3}}));
  block->Settle([](int, const KernelError&) { FAIL() << "told twice"; });
}

}  // namespace
}  // namespace athanor
