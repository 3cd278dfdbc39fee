#include "runtime/memory/state_memory.h"

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/device/forwarding_device.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class FakeLedger final : public MemoryLedger {
 public:
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
    EXPECT_EQ(kind, MemoryKind::kStates);
    if (held + bytes > limit) return absl::ResourceExhaustedError("the limit");
    held += bytes;
    return absl::OkStatus();
  }
  void Release(MemoryKind, int64_t bytes) override { held -= bytes; }
  int64_t limit = int64_t{1} << 50, held = 0;
};

class StateMemoryTest : public ::testing::TestWithParam<bool> {
 protected:
  // Returns the granules that a block needs, computed from the addresses of the states.
  static std::set<int64_t> GranulesOf(const StateMemory& states, int64_t block, int64_t slots,
                                      int64_t granule) {
    std::set<int64_t> found;
    for (size_t s = 0; s < states.specs().size(); ++s) {
      const int64_t bytes = slots * states.specs()[s].slot_bytes;
      const int64_t begin = states.data(s) - states.data(0) + block * states.stride() * bytes;
      for (int64_t at = begin; at < begin + bytes; at += granule) found.insert(at / granule);
      found.insert((begin + bytes - 1) / granule);
    }
    return found;
  }

  // Commits and gives back blocks in any order: committed ones keep their bytes, and the charge is
  // that of the granules that they touch.
  void ExpectBlocksComeAndGo(std::unique_ptr<StateMemory> states) {
    EXPECT_EQ(ledger_.held, 0);
    std::mt19937 random(7);
    // Block to what its first state holds; each next state holds one more.
    std::map<int64_t, uint8_t> committed;
    const auto each = [&](int64_t block, auto use) {
      for (size_t s = 0; s < states->specs().size(); ++s) {
        const int64_t bytes = kBlock * states->specs()[s].slot_bytes;
        char* const at = states->data(s) + block * states->stride() * bytes;
        if (GetParam()) {
          EXPECT_TRUE(static_cast<FarDevice*>(device_.get())->Holds(at, bytes)) << block;
        }
        use(static_cast<char*>(FarDevice::Near(at)), bytes, static_cast<uint8_t>(s));
      }
    };
    for (int turn = 0; turn < 2'000; ++turn) {
      const int64_t block = random() % states->blocks();
      if (random() % 2 == 0) {
        ASSERT_TRUE(states->Commit(block).ok());
        const uint8_t byte = random();
        committed[block] = byte;
        each(block, [&](char* data, int64_t bytes, uint8_t state) {
          std::memset(data, static_cast<uint8_t>(byte + state), bytes);
        });
      } else {
        states->Decommit(block);
        committed.erase(block);
      }
      std::set<int64_t> granules;
      for (const auto& [kept, byte] : committed) {
        granules.merge(GranulesOf(*states, kept, kBlock, kGranule));
        each(kept, [&, byte = byte](const char* data, int64_t bytes, uint8_t state) {
          const char want = static_cast<char>(byte + state);
          EXPECT_EQ(data[0], want) << kept;
          EXPECT_EQ(std::memcmp(data, data + 1, bytes - 1), 0) << kept;
        });
      }
      ASSERT_EQ(ledger_.held, std::ssize(granules) * kGranule) << turn;
      ASSERT_EQ(states->charged_bytes(), ledger_.held);
      if (HasFailure()) return;
    }
    states.reset();
    EXPECT_EQ(ledger_.held, 0);
  }

  static constexpr int64_t kBlock = 16, kBlocks = 23, kGranule = 4096;
  FakeLedger ledger_;
  EitherDevice<CpuDevice> device_{CpuDevice::Create({.threads = 1}).value(), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Devices, StateMemoryTest, ::testing::Bool(), EitherDeviceName);

TEST_P(StateMemoryTest, BlocksComeAndGo) {
  ExpectBlocksComeAndGo(
      StateMemory::Create(device_.get(), &ledger_,
                          {{"k", "keys", 768}, {"v", "values", 100}, {"x", "", 1}},
                          kBlock * kBlocks, kBlock)
          .value());
}

TEST_P(StateMemoryTest, BlocksOfAllStatesSideBySide) {
  const auto create = [&](std::vector<StateMemory::Spec> specs) {
    auto states = StateMemory::Create(device_.get(), &ledger_, std::move(specs), kBlock * kBlocks,
                                      kBlock, StateMemory::Order::kByBlock)
                      .value();
    EXPECT_EQ(states->blocks(), kBlocks);
    EXPECT_EQ(states->slots(), kBlock * kBlocks * states->stride());
    return states;
  };
  auto states = create({{"k", "", 12}, {"v", "", 12}, {"w", "", 12}});
  EXPECT_EQ(states->stride(), 3);
  ASSERT_TRUE(states->Commit(0).ok());
  EXPECT_EQ(ledger_.held, kGranule);
  states->Decommit(0);
  ExpectBlocksComeAndGo(std::move(states));
  // States of two sizes, or whose blocks end within cache lines, lie one behind the other.
  for (const int64_t bytes : {768, 3}) {
    states = create({{"k", "", bytes}, {"v", "", 3}});
    EXPECT_EQ(states->stride(), 1);
    ExpectBlocksComeAndGo(std::move(states));
  }
}

TEST_P(StateMemoryTest, ARefusedBlockLeavesEverythingAsItWas) {
  auto states =
      StateMemory::Create(device_.get(), &ledger_, {{"k", "", 4096}, {"v", "", 4096}}, 8, 2)
          .value();
  ASSERT_TRUE(states->Commit(1).ok());
  ledger_.limit = ledger_.held + 3 * 4096;  // of 4 pages
  const int64_t held = ledger_.held;
  const absl::Status refused = states->Commit(2);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_EQ(ledger_.held, held);
  states->Decommit(2);  // does nothing
  EXPECT_EQ(ledger_.held, held);
  states->Decommit(1);
  EXPECT_EQ(ledger_.held, 0);
  EXPECT_TRUE(states->Commit(2).ok());
  EXPECT_TRUE(states->Commit(2).ok());  // once
  EXPECT_EQ(ledger_.held, held);
}

// Gives memory as a whole.
class WholeDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  bool CommitsLater(MemoryKind, int64_t) const override { return false; }
};

TEST_P(StateMemoryTest, WithoutGranulesAllIsThereAtOnce) {
  WholeDevice whole(device_.get());
  auto states =
      StateMemory::Create(&whole, &ledger_, {{"k", "", 100}, {"v", "", 60}}, 4, 2).value();
  EXPECT_EQ(ledger_.held, 448 + 256);  // each ends at a multiple of 64
  ASSERT_TRUE(states->Commit(1).ok());
  states->Decommit(1);
  EXPECT_EQ(ledger_.held, 448 + 256);
  states = StateMemory::Create(&whole, &ledger_, {{"k", "", 32}, {"v", "", 32}}, 4, 2,
                               StateMemory::Order::kByBlock)
               .value();
  EXPECT_EQ(ledger_.held, 4 * 64 + 64);  // the last state's slots lie inside, those of others too
  ledger_.limit = 100;
  EXPECT_EQ(StateMemory::Create(&whole, &ledger_, {{"k", "", 100}}, 2, 2).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(StateMemoryTest, SizesAreChecked) {
  const auto code = [&](std::vector<StateMemory::Spec> specs, int64_t slots, int64_t block,
                        const std::string& part) {
    const absl::Status status =
        StateMemory::Create(device_.get(), &ledger_, std::move(specs), slots, block).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    return status.code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({}, 16, 16, "without states"), invalid);
  EXPECT_EQ(code({{"k", "", 1}}, 0, 16, "0 slots"), invalid);
  EXPECT_EQ(code({{"k", "", 1}}, 24, 16, "24 slots in blocks of 16"), invalid);
  EXPECT_EQ(code({{"k", "", 1}}, 16, 0, "blocks of 0"), invalid);
  EXPECT_EQ(code({{"k", "", 0}}, 16, 16, "state 'k' has slots of 0 bytes"), invalid);
  EXPECT_EQ(code({{"k", "", 1}, {"k", "", 1}}, 16, 16, "'k' is given twice"), invalid);
  const int64_t huge = int64_t{1} << 60;
  EXPECT_EQ(code({{"a", "", 1}, {"b", "", 7}}, huge, 16, "up to 'b'"),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code({{"a", "", 32}}, huge, 16, "up to 'a'"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ledger_.held, 0);
}

}  // namespace
}  // namespace athanor
