// Races between threads of a team, and between teams.
#include "tests/emulator/races.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::emulator {
namespace {

using ::testing::AllOf;
using ::testing::Eq;
using ::testing::Field;
using ::testing::Optional;

constexpr uint64_t kPlace = 0x12340;

auto By(Race::Kind kind, long team, int thread) {
  return Optional(
      AllOf(Field(&Race::kind, kind), Field(&Race::team, team), Field(&Race::thread, thread)));
}
const auto kNone = Eq(std::nullopt);

class RacesTest : public ::testing::Test {
 protected:
  void SetUp() override { BeginLaunch(); }
  void BeginLaunch() {
    races_.BeginLaunch();
    races_.BeginTeam(0);
  }
  std::optional<Race> Read(int thread, uint64_t address = kPlace, int bytes = 4) {
    return races_.Touch(thread, address, bytes, false, region_);
  }
  std::optional<Race> Write(int thread, uint64_t address = kPlace, int bytes = 4) {
    return races_.Touch(thread, address, bytes, true, region_);
  }

  Races races_;
  Races::Region region_;
};

TEST_F(RacesTest, OneThreadMayDoAsItLikes) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Read(5), kNone);
    EXPECT_THAT(Write(5), kNone);
  }
}

TEST_F(RacesTest, AllMayReadWhatNobodyWrites) {
  for (int thread = 0; thread < 128; ++thread) EXPECT_THAT(Read(thread), kNone);
}

TEST_F(RacesTest, WithoutABarrierAWriteRacesWithReadsAndWritesOfOthers) {
  EXPECT_THAT(Write(1), kNone);
  EXPECT_THAT(Read(2), By(Race::kWritten, 0, 1));
  EXPECT_THAT(Write(2), By(Race::kWritten, 0, 1));
  races_.Barrier();
  EXPECT_THAT(Read(3), kNone);
  EXPECT_THAT(Write(4), By(Race::kRead, 0, 3));
}

TEST_F(RacesTest, AReaderThatWritesRacesWithTheOtherReader) {
  EXPECT_THAT(Read(3), kNone);
  EXPECT_THAT(Read(7), kNone);
  EXPECT_THAT(Read(9), kNone);
  EXPECT_THAT(Write(3), By(Race::kRead, 0, 7));
  EXPECT_THAT(Write(9), By(Race::kRead, 0, 3));
}

TEST_F(RacesTest, ABarrierOrders) {
  for (int thread = 0; thread < 8; ++thread) {
    EXPECT_THAT(Write(thread), kNone);
    races_.Barrier();
    EXPECT_THAT(Read(thread + 1), kNone);
    races_.Barrier();
  }
}

TEST_F(RacesTest, WiderAccessesMeetEachOfTheirCells) {
  EXPECT_THAT(Write(1, kPlace + 4, 4), kNone);
  EXPECT_THAT(Read(2, kPlace, 4), kNone);
  EXPECT_THAT(Read(2, kPlace, 8), By(Race::kWritten, 0, 1));
}

TEST_F(RacesTest, NarrowAccessesMeetByByte) {
  EXPECT_THAT(Write(0, kPlace, 4), kNone);
  // The rest of the page is by byte from here on, and what was known still is.
  EXPECT_THAT(Write(1, kPlace + 4, 1), kNone);
  EXPECT_THAT(Write(2, kPlace + 5, 1), kNone);
  EXPECT_THAT(Write(3, kPlace + 6, 2), kNone);
  EXPECT_THAT(Read(3, kPlace + 5, 1), By(Race::kWritten, 0, 2));
  for (int byte = 0; byte < 4; ++byte) {
    EXPECT_THAT(Read(1, kPlace + byte, 1), By(Race::kWritten, 0, 0));
  }
  EXPECT_THAT(Read(4, kPlace + 4, 4), By(Race::kWritten, 0, 1));
}

TEST_F(RacesTest, TeamsDoNotWaitForEachOther) {
  EXPECT_THAT(Write(1), kNone);
  races_.Barrier();
  races_.BeginTeam(7);
  EXPECT_THAT(Write(1), By(Race::kWritten, 0, 1));
  EXPECT_THAT(Read(1), By(Race::kWritten, 0, 1));
}

constexpr uint64_t kCounter = 0x777000;

TEST_F(RacesTest, WhoDrawsReadsWhatOthersWroteBeforeTheyDrew) {
  EXPECT_THAT(Write(1), kNone);
  races_.Draw(kCounter);
  races_.Barrier();
  EXPECT_THAT(Write(1, kPlace + 4), kNone);  // too late
  races_.BeginTeam(3);
  EXPECT_THAT(Read(2), By(Race::kWritten, 0, 1));  // too early
  races_.Draw(kCounter);
  races_.Barrier();
  EXPECT_THAT(Read(2), kNone);
  EXPECT_THAT(Read(2, kPlace + 4), By(Race::kWritten, 0, 1));
  // Writing over it is none of what a ticket is for.
  EXPECT_THAT(Write(2), By(Race::kWritten, 0, 1));
  // The next team has drawn nothing, and the next launch knows no draws.
  races_.BeginTeam(1);
  EXPECT_THAT(Read(2), By(Race::kWritten, 0, 1));
  BeginLaunch();
  EXPECT_THAT(Write(1), kNone);
  races_.BeginTeam(2);
  races_.Draw(kCounter);
  EXPECT_THAT(Read(1), By(Race::kWritten, 0, 1));
}

TEST_F(RacesTest, CountersTellOfTheirOwnDrawsOnly) {
  EXPECT_THAT(Write(1), kNone);
  races_.Draw(kCounter);
  races_.BeginTeam(1);
  races_.Draw(kCounter + 4);
  EXPECT_THAT(Read(1), By(Race::kWritten, 0, 1));
  // By way of a third team.
  races_.BeginTeam(2);
  races_.Draw(kCounter);
  races_.Barrier();
  races_.Draw(kCounter + 4);
  races_.BeginTeam(3);
  races_.Draw(kCounter + 4);
  EXPECT_THAT(Read(1), kNone);
}

TEST_F(RacesTest, AWriteRacesWithReadersOfTeamsBefore) {
  EXPECT_THAT(Read(4), kNone);
  races_.BeginTeam(3);
  EXPECT_THAT(Read(5), kNone);
  races_.Barrier();
  EXPECT_THAT(Read(6), kNone);
  races_.Barrier();
  EXPECT_THAT(Write(6), By(Race::kRead, 0, 4));
  races_.BeginTeam(2);
  EXPECT_THAT(Write(6), By(Race::kRead, 3, 6));
}

TEST_F(RacesTest, ALaunchForgetsThoseBefore) {
  EXPECT_THAT(Write(1), kNone);
  EXPECT_THAT(Read(1, kPlace + 8), kNone);
  BeginLaunch();
  EXPECT_THAT(Write(2), kNone);
  EXPECT_THAT(Write(2, kPlace + 8), kNone);
}

TEST_F(RacesTest, ATeamsOwnMemoryIsNewForEachTeam) {
  region_ = {.of_team = true, .defined = false};
  EXPECT_THAT(Read(1), By(Race::kUndefined, 0, 0));
  EXPECT_THAT(Write(1), kNone);
  races_.Barrier();
  EXPECT_THAT(Read(2), kNone);
  races_.BeginTeam(1);
  EXPECT_THAT(Read(2), By(Race::kUndefined, 0, 0));
  EXPECT_THAT(Write(2), kNone);
}

TEST_F(RacesTest, MuchMemoryIsForgottenBetweenLaunchesOnly) {
  EXPECT_THAT(Write(1, 0), kNone);
  for (int launch = 0; launch < 2; ++launch) {
    BeginLaunch();
    EXPECT_EQ(races_.pages(), launch == 0 ? 1u : 0u);
    for (uint64_t page = 0; page < 9000; ++page) EXPECT_THAT(Write(1, page << 12), kNone);
    EXPECT_EQ(races_.pages(), 9000u);
    for (uint64_t page = 0; page < 9000; page += 1000) {
      EXPECT_THAT(Read(2, page << 12), By(Race::kWritten, 0, 1));
    }
  }
}

}  // namespace
}  // namespace athanor::emulator
