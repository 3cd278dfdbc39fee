#include "server/generate/block_memory.h"

#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::seconds;

// Writes down what it is asked for.
class NotingRunner : public StepRunner {
 public:
  absl::StatusOr<absl::Span<const float>> Run(
      const Step&, absl::Span<const absl::Span<const int32_t>>) override {
    return absl::InternalError("no runs here");
  }
  absl::Status Commit(int32_t block) override {
    if (block == 9) return absl::ResourceExhaustedError("none left");
    notes += "+" + std::to_string(block);
    return absl::OkStatus();
  }
  void Decommit(int32_t block) override { notes += "-" + std::to_string(block); }
  bool Trim() override { return false; }
  int64_t committed_bytes() const override { return 0; }
  std::string signature() override { return ""; }
  const std::string& plan_id() const override { return notes; }

  std::string notes;
};

class BlockMemoryTest : public ::testing::Test {
 protected:
  std::string Notes() { return std::exchange(runner_.notes, {}); }
  std::vector<bool> InUse(std::initializer_list<int> blocks) {
    std::vector<bool> in_use(10);
    for (int block : blocks) in_use[block] = true;
    return in_use;
  }
  const SequenceTime start_ = SequenceTime(std::chrono::hours(1));
  NotingRunner runner_;
  BlockMemory memory_{&runner_, 10};
};

TEST_F(BlockMemoryTest, CommitsABlockOnce) {
  EXPECT_EQ(memory_.next_look(), SequenceTime::max()) << "there is nothing to give back";
  EXPECT_TRUE(memory_.Use(3).ok());
  EXPECT_TRUE(memory_.Use(3).ok());
  EXPECT_EQ(memory_.Use(9).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory_.Use(9).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Notes(), "+3");
  EXPECT_LE(memory_.next_look(), start_);
}

TEST_F(BlockMemoryTest, GivesBackWhatWasNotUsedFromOneLookToTheNext) {
  for (int block : {1, 2, 3, 4, 5}) ASSERT_TRUE(memory_.Use(block).ok());
  Notes();
  memory_.Look(InUse({1, 2}), start_);
  EXPECT_FALSE(memory_.has_chosen()) << "all were used just now";
  EXPECT_EQ(memory_.next_look(), start_ + BlockMemory::kKeep);
  ASSERT_TRUE(memory_.Use(3).ok());
  memory_.Look(InUse({1}), start_ + seconds(10));
  memory_.GiveBack(1);
  EXPECT_EQ(Notes(), "-4") << "2 and 3 were used";
  memory_.GiveBack(9);
  memory_.GiveBack(9);
  EXPECT_EQ(Notes(), "-5");
  ASSERT_TRUE(memory_.Use(4).ok());
  EXPECT_EQ(Notes(), "+4");
}

TEST_F(BlockMemoryTest, KeepsWhatIsUsedAfterItWasChosen) {
  for (int block : {1, 2}) ASSERT_TRUE(memory_.Use(block).ok());
  memory_.Look(InUse({}), start_);
  memory_.Look(InUse({}), start_ + seconds(10));
  ASSERT_TRUE(memory_.Use(1).ok());
  Notes();
  memory_.GiveBack(9);
  EXPECT_EQ(Notes(), "-2");
  memory_.Look(InUse({}), start_ + seconds(20));
  memory_.Look(InUse({}), start_ + seconds(30));
  memory_.GiveBack(9);
  EXPECT_EQ(Notes(), "-1");
  memory_.Look(InUse({}), start_ + seconds(40));
  EXPECT_EQ(memory_.next_look(), SequenceTime::max()) << "nothing is committed";
}

TEST_F(BlockMemoryTest, GivesBackWhatIsUnusedAtOnce) {
  for (int block : {1, 2, 4, 5, 6}) ASSERT_TRUE(memory_.Use(block).ok());
  Notes();
  EXPECT_EQ(memory_.GiveBackUnused(InUse({2, 5}), 2), 2);
  EXPECT_EQ(Notes(), "-6-4") << "the highest first";
  EXPECT_EQ(memory_.GiveBackUnused(InUse({2, 5}), 9), 1);
  EXPECT_EQ(Notes(), "-1");
  EXPECT_EQ(memory_.GiveBackUnused(InUse({2, 5}), 9), 0);
  EXPECT_TRUE(memory_.GiveBackNow(5));
  EXPECT_FALSE(memory_.GiveBackNow(5));
  EXPECT_FALSE(memory_.GiveBackNow(9));
  EXPECT_EQ(Notes(), "-5");
  ASSERT_TRUE(memory_.Use(5).ok());
  EXPECT_EQ(Notes(), "+5");
}

// Blocks that were chosen and then given back at once are not given back again.
TEST_F(BlockMemoryTest, GivesBackOnce) {
  ASSERT_TRUE(memory_.Use(1).ok());
  memory_.Look(InUse({}), start_);
  memory_.Look(InUse({}), start_ + seconds(10));
  EXPECT_TRUE(memory_.has_chosen());
  EXPECT_TRUE(memory_.GiveBackNow(1));
  Notes();
  memory_.GiveBack(9);
  EXPECT_EQ(Notes(), "");
}

}  // namespace
}  // namespace athanor
