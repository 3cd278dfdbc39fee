#include "server/net/upload_places.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class UploadPlacesTest : public testing::Test {
 protected:
  UploadPlaces::Clock::time_point At(int64_t ms) const { return begin_ + milliseconds(ms); }
  // Starts upload `name` of `host`; returns null if it was refused.
  UploadPlaces::PlacePtr Take(UploadPlaces& places, const std::string& name,
                              const std::string& host, int64_t ms) {
    auto place =
        places.Take(host, [this, name](const absl::Status&) { left_.push_back(name); }, At(ms));
    refusal_ = place.status();
    return place.ok() ? *place : nullptr;
  }

  // Returns until when the upload may wait.
  UploadPlaces::Clock::time_point Wait(UploadPlaces& places, UploadPlaces::Place& place,
                                       UploadPlaces::Clock::time_point now) {
    turn_ = places.Wait(place, now);
    places.Asked(place, turn_);
    return turn_.until;
  }

  const UploadPlaces::Clock::time_point begin_{seconds(100)};
  UploadPlaces::Turn turn_;
  std::vector<std::string> left_;
  absl::Status refusal_;
};

TEST_F(UploadPlacesTest, AllTakenIsRefused) {
  UploadPlaces places({.most = 1, .idle = seconds(10)});
  const auto first = Take(places, "first", "a", 0);
  Wait(places, *first, At(0));
  EXPECT_EQ(Take(places, "second", "b", 900), nullptr);
  EXPECT_THAT(std::string(refusal_.message()), HasSubstr("1 uploads"));
  EXPECT_EQ(places.taken(), 1);
  places.Drop(first);
  places.Drop(first);
  EXPECT_NE(Take(places, "second", "b", 900), nullptr);
  EXPECT_EQ(places.taken(), 1);
  EXPECT_THAT(left_, IsEmpty());
}

TEST_F(UploadPlacesTest, WhoKeepsItWaitingGivesWay) {
  UploadPlaces places({.most = 3, .least_rate = 1000, .idle = seconds(10)});
  const auto fast = Take(places, "fast", "a", 0), slow = Take(places, "slow", "a", 0),
             works = Take(places, "works", "a", 0);
  for (const auto& place : {fast, slow}) Wait(places, *place, At(0));
  for (int ms = 500; ms <= 2000; ms += 500) {
    EXPECT_TRUE(places.Came(*fast, 1000, At(ms)));
    EXPECT_TRUE(places.Came(*slow, 1, At(ms)));
    for (const auto& place : {fast, slow}) Wait(places, *place, At(ms));
  }
  EXPECT_NE(Take(places, "new", "b", 2000), nullptr);
  EXPECT_THAT(left_, ElementsAre("slow"));
  EXPECT_EQ(places.taken(), 3);
  // An upload is ended only once.
  EXPECT_FALSE(places.Came(*slow, 1, At(2001)));
  EXPECT_EQ(places.Expire(*slow, turn_, At(90'000)), std::nullopt);
  places.Drop(slow);
  EXPECT_EQ(places.taken(), 3);
  EXPECT_EQ(Take(places, "newer", "b", 2000), nullptr);
}

TEST_F(UploadPlacesTest, APeerHasItsShare) {
  UploadPlaces places({.most = 4, .peer_percent = 50, .idle = seconds(10)});
  const auto a1 = Take(places, "a1", "a", 0), a2 = Take(places, "a2", "a", 0),
             b1 = Take(places, "b1", "b", 0);
  for (const auto& place : {a1, b1}) Wait(places, *place, At(0));
  EXPECT_EQ(Take(places, "a3", "a", 500), nullptr);
  EXPECT_THAT(std::string(refusal_.message()), HasSubstr("2 uploads of a"));
  EXPECT_THAT(std::string(refusal_.message()), HasSubstr("--max_peer_percent"));
  // Ends an upload of the same peer, not of another one.
  EXPECT_NE(Take(places, "a3", "a", 2000), nullptr);
  EXPECT_THAT(left_, ElementsAre("a1"));
  EXPECT_NE(Take(places, "c1", "c", 2000), nullptr);
  EXPECT_EQ(places.taken(), 4);
}

TEST_F(UploadPlacesTest, WhoHasMostGivesWay) {
  UploadPlaces places({.most = 3, .idle = seconds(10)});
  const auto b = Take(places, "b", "b", 0), a1 = Take(places, "a1", "a", 0),
             a2 = Take(places, "a2", "a", 0);
  Wait(places, *b, At(0));
  Wait(places, *a1, At(1000));
  Wait(places, *a2, At(2000));
  EXPECT_NE(Take(places, "c", "c", 5000), nullptr);
  EXPECT_THAT(left_, ElementsAre("a1"));
}

TEST_F(UploadPlacesTest, NothingForTooLong) {
  UploadPlaces places({.idle = seconds(10)});
  const auto place = Take(places, "p", "a", 0);
  EXPECT_EQ(Wait(places, *place, At(0)), At(10'000));
  EXPECT_TRUE(places.Came(*place, 1, At(9'000)));
  EXPECT_EQ(places.Expire(*place, turn_, At(10'000)), std::nullopt);
  EXPECT_EQ(Wait(places, *place, At(20'000)), At(30'000));
  EXPECT_THAT(std::string(places.Expire(*place, turn_, At(30'000))->message()),
              HasSubstr("no whole message came for 10000 ms (--upload_idle)"));
  EXPECT_FALSE(places.Came(*place, 1, At(30'000)));
}

TEST_F(UploadPlacesTest, TooLittleForTooLong) {
  UploadPlaces places({.least_rate = 1000, .idle = seconds(10)});
  const auto place = Take(places, "p", "a", 0);
  Wait(places, *place, At(0));
  EXPECT_TRUE(places.Came(*place, 1000, At(4'000)));  // 4 s of waiting used up, 1 s earned
  EXPECT_EQ(Wait(places, *place, At(50'000)), At(57'000));
  EXPECT_TRUE(places.Came(*place, 1 << 30, At(56'000)));
  EXPECT_EQ(Wait(places, *place, At(60'000)), At(70'000));
  EXPECT_TRUE(places.Came(*place, 0, At(66'000)));
  EXPECT_EQ(Wait(places, *place, At(70'000)), At(74'000));
  EXPECT_THAT(
      std::string(places.Expire(*place, turn_, At(74'000))->message()),
      HasSubstr("fewer than 1000 bytes a second came in whole messages (--upload_least_rate)"));
}

TEST_F(UploadPlacesTest, NobodyEndsAWaitBeforeItIsAskedFor) {
  UploadPlaces places({.most = 1, .idle = seconds(10)});
  const auto place = Take(places, "p", "a", 0);
  const UploadPlaces::Turn turn = places.Wait(*place, At(0));
  EXPECT_EQ(Take(places, "new", "b", 9'000), nullptr);
  EXPECT_EQ(places.Expire(*place, turn, At(10'000)), std::nullopt);
  EXPECT_TRUE(places.Came(*place, 1, At(10'000)));
  // A late Asked or Expire belongs to an earlier wait and does nothing.
  const UploadPlaces::Turn next = places.Wait(*place, At(11'000));
  places.Asked(*place, turn);
  EXPECT_EQ(places.Expire(*place, next, At(30'000)), std::nullopt);
  places.Asked(*place, next);
  EXPECT_EQ(places.Expire(*place, turn, At(30'000)), std::nullopt);
  EXPECT_NE(places.Expire(*place, next, At(30'000)), std::nullopt);
}

TEST_F(UploadPlacesTest, TooLongInAll) {
  UploadPlaces places({.idle = seconds(10), .longest = seconds(25)});
  const auto place = Take(places, "p", "a", 0);
  EXPECT_EQ(Wait(places, *place, At(10'000)), At(20'000));
  EXPECT_TRUE(places.Came(*place, 1, At(19'000)));
  EXPECT_EQ(Wait(places, *place, At(20'000)), At(25'000));
  EXPECT_THAT(std::string(places.Expire(*place, turn_, At(25'000))->message()),
              HasSubstr("not done after 25000 ms (--upload_time)"));
}

}  // namespace
}  // namespace athanor
