#include "runtime/memory/prepared_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

using Block = PreparedPool::Block;

class Ledger final : public MemoryLedger {
 public:
  explicit Ledger(int64_t limit = int64_t{1} << 40) : limit_(limit) {}
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
    MutexLock lock(mu_);
    if (held_ + bytes > limit_) return absl::ResourceExhaustedError("full");
    held_ += bytes;
    by_kind_[kind] += bytes;
    return absl::OkStatus();
  }
  void Release(MemoryKind kind, int64_t bytes) override {
    MutexLock lock(mu_);
    held_ -= bytes;
    by_kind_[kind] -= bytes;
  }
  int64_t held() const {
    MutexLock lock(mu_);
    return held_;
  }
  int64_t held(MemoryKind kind) {
    MutexLock lock(mu_);
    return by_kind_[kind];
  }

 private:
  const int64_t limit_;
  mutable Mutex mu_;
  int64_t held_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<MemoryKind, int64_t> by_kind_ ABSL_GUARDED_BY(mu_);
};

void Fill(DeviceQueue& queue, const Block& block, int byte) {
  ASSERT_TRUE(queue.Fill(block.data(), static_cast<uint8_t>(byte), block.bytes()).ok());
  ASSERT_TRUE(queue.Wait().ok());
}

std::string Bytes(DeviceQueue& queue, const Block& block) {
  std::string bytes(block.bytes(), '?');
  EXPECT_TRUE(queue.Copy(bytes.data(), block.data(), block.bytes(), CopyKind::kToHost).ok());
  EXPECT_TRUE(queue.Wait().ok());
  return bytes;
}

class PreparedPoolTest : public ::testing::TestWithParam<bool> {
 protected:
  Block One(int64_t bytes) { return pool_->Allocate({bytes}).value()[0]; }

  EitherDevice<FunctionDevice> device_{FunctionDevice::Make(1), GetParam()};
  const std::unique_ptr<DeviceQueue> queue_ = device_->NewQueue(0).value();
  Ledger ledger_;
  std::unique_ptr<PreparedPool> pool_ = std::make_unique<PreparedPool>(device_.get(), &ledger_);
};

INSTANTIATE_TEST_SUITE_P(Devices, PreparedPoolTest, ::testing::Bool(), EitherDeviceName);

TEST_P(PreparedPoolTest, FoundWhileSomebodyHoldsIt) {
  Block block = One(100);
  EXPECT_EQ(block.bytes(), 128);
  EXPECT_EQ(ledger_.held(), 128);
  EXPECT_FALSE(pool_->Find("k").has_value());  // not published
  Fill(*queue_, block, 7);
  block = pool_->Publish("k", std::move(block));
  Block second = pool_->Find("k").value();
  EXPECT_EQ(second.data(), block.data());
  EXPECT_EQ(ledger_.held(), 128);  // once, however many hold it
  block = Block();
  EXPECT_EQ(Bytes(*queue_, pool_->Find("k").value()), std::string(128, 7));
  second = Block();
  EXPECT_FALSE(pool_->Find("k").has_value());
  EXPECT_EQ(ledger_.held(), 0);
  EXPECT_EQ(pool_->bytes(), 0);
}

TEST_P(PreparedPoolTest, NothingIsFoundWithoutAKey) { EXPECT_FALSE(pool_->Find("").has_value()); }

TEST_P(PreparedPoolTest, LargeBlocksComeFromTheDeviceForThem) {
  const auto other = FunctionDevice::Make(1);
  const int64_t large = PreparedPool::kLargeBlock;
  PreparedPool pool(device_.get(), &ledger_, other.get());
  std::vector<Block> blocks = pool.Allocate({large, 64, large - 1, 1}).value();
  ASSERT_EQ(blocks.size(), 4);
  const auto at = [&](int i) { return static_cast<char*>(blocks[i].data()); };
  EXPECT_EQ(at(2) - at(1), 64);
  EXPECT_EQ(at(3) - at(2), large);
  EXPECT_TRUE(at(0) + large <= at(1) || at(0) >= at(3) + 64);
  EXPECT_EQ(ledger_.held(), 2 * large + 128);
  blocks.clear();
  EXPECT_EQ(ledger_.held(), 0);
  // All blocks or none: the large one exceeds the ledger's limit.
  Ledger tight(large);
  PreparedPool bounded(device_.get(), &tight, other.get());
  EXPECT_FALSE(bounded.Allocate({64, large}).ok());
  EXPECT_EQ(tight.held(), 0);
}

TEST_P(PreparedPoolTest, WhatIsAllocatedTogetherFollowsEachOther) {
  const std::vector<Block> blocks = pool_->Allocate({1, 0, 64, 65}).value();
  ASSERT_EQ(blocks.size(), 4);
  const auto* begin = static_cast<char*>(blocks[0].data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % PreparedPool::kAlignment, 0);
  EXPECT_EQ(blocks[1].data(), begin + 64);
  EXPECT_EQ(blocks[2].data(), begin + 128);
  EXPECT_EQ(blocks[3].data(), begin + 192);
  EXPECT_EQ(blocks[3].bytes(), 128);
  EXPECT_EQ(ledger_.held(), 320);
}

TEST_P(PreparedPoolTest, TheFirstOfTwoThatArePublishedRemains) {
  Block first = One(64), second = One(64);
  Fill(*queue_, first, 1);
  Fill(*queue_, second, 1);
  first = pool_->Publish("k", std::move(first));
  second = pool_->Publish("k", std::move(second));
  EXPECT_EQ(first.data(), second.data());
  EXPECT_EQ(ledger_.held(), 64);
  // The key is free again once both copies are gone, and only then.
  first = Block();
  EXPECT_TRUE(pool_->Find("k").has_value());
  second = Block();
  Block third = pool_->Publish("k", One(64));
  EXPECT_EQ(pool_->Find("k").value().data(), third.data());
}

TEST_P(PreparedPoolTest, BlocksAreOfTheKindThatIsAskedFor) {
  std::vector<Block> weights = pool_->Allocate({100}, MemoryKind::kWeights).value();
  const Block prepared = One(1);
  EXPECT_EQ(ledger_.held(MemoryKind::kWeights), 128);
  EXPECT_EQ(ledger_.held(MemoryKind::kPrepared), 64);
  EXPECT_EQ(pool_->bytes(), 192);
  weights.clear();
  EXPECT_EQ(ledger_.held(MemoryKind::kWeights), 0);
  EXPECT_EQ(ledger_.held(MemoryKind::kPrepared), 64);
}

TEST_P(PreparedPoolTest, RefusedAllocationsHoldNothing) {
  Ledger small(128);
  PreparedPool pool(device_.get(), &small);
  EXPECT_EQ(pool.Allocate({64, 65}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(small.held(), 0);
  EXPECT_EQ(pool.bytes(), 0);
  EXPECT_TRUE(pool.Allocate({64, 64}).ok());
}

TEST_P(PreparedPoolTest, BlocksOutliveThePool) {
  Block block = pool_->Publish("k", One(64));
  pool_.reset();
  Fill(*queue_, block, 1);
  block = Block();
  EXPECT_EQ(ledger_.held(), 0);
}

// Returns how many pages of the block are in memory.
int64_t ResidentPages(const Block& block) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  auto* const data = static_cast<char*>(FarDevice::Near(block.data()));
  char* const first = data - reinterpret_cast<uintptr_t>(data) % page;
  std::vector<unsigned char> resident((data + block.bytes() - first + page - 1) / page);
  EXPECT_EQ(mincore(first, resident.size() * page, resident.data()), 0);
  int64_t count = 0;
  for (unsigned char r : resident) count += r & 1;
  return count;
}

TEST_P(PreparedPoolTest, ABlockThatDiesGivesItsPagesBack) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  // Small blocks that meet inside a page, and a block that begins inside one.
  std::vector<Block> blocks =
      pool_->Allocate({100, 20 * page, page / 4, page / 4, 10 * page}).value();
  for (const Block& block : blocks) Fill(*queue_, block, 5);
  auto* const big = static_cast<char*>(FarDevice::Near(blocks[1].data()));
  char* const inner = big + page - reinterpret_cast<uintptr_t>(big) % page;
  std::vector<unsigned char> resident(19);
  const auto count = [&] {
    EXPECT_EQ(mincore(inner, 19 * page, resident.data()), 0);
    int64_t pages = 0;
    for (unsigned char r : resident) pages += r & 1;
    return pages;
  };
  EXPECT_EQ(count(), 19);
  blocks[1] = Block();
  EXPECT_EQ(count(), 0);
  // Its neighbours are unchanged.
  for (int i : {0, 2, 3, 4}) {
    EXPECT_EQ(Bytes(*queue_, blocks[i]), std::string(blocks[i].bytes(), 5)) << i;
  }
  EXPECT_EQ(ResidentPages(blocks[4]), 11);
  EXPECT_EQ(ledger_.held(), pool_->bytes());
  // A page that several blocks share goes with the last of them.
  blocks[2] = Block();
  blocks[0] = Block();
  blocks[3] = Block();
  EXPECT_EQ(mincore(inner - page, page, resident.data()), 0);
  EXPECT_EQ(resident[0] & 1, 0);
  EXPECT_EQ(Bytes(*queue_, blocks[4])[0], 5);
  blocks.clear();
  EXPECT_EQ(ledger_.held(), 0);
}

// Threads load, share and drop a few weights at once: no bytes are ever wrong, and none remain.
TEST_P(PreparedPoolTest, ManyLoadersAtOnce) {
  constexpr int kThreads = 4, kRounds = 300, kKeys = 5;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Block> held(kKeys);
      const std::unique_ptr<DeviceQueue> queue = device_->NewQueue(0).value();
      for (int round = 0; round < kRounds; ++round) {
        const int k = (round * 7 + t) % kKeys;
        const std::string key = absl::StrCat("k", k);
        std::optional<Block> block = pool_->Find(key);
        if (!block) {
          std::vector<Block> made = pool_->Allocate({5000, 300}).value();
          Fill(*queue, made[0], k);
          block = pool_->Publish(key, std::move(made[0]));
        }
        const std::string bytes = Bytes(*queue, *block);
        if (bytes[0] != k || bytes[4999] != k) ++wrong;
        held[(round + t) % kKeys] = *std::move(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ledger_.held(), 0);
  EXPECT_EQ(pool_->bytes(), 0);
  for (int k = 0; k < kKeys; ++k) EXPECT_FALSE(pool_->Find(absl::StrCat("k", k)).has_value());
}

}  // namespace
}  // namespace athanor
