#include "server/batch/admission.h"

#include <chrono>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry_after.h"
#include "server/batch/run_paces.h"

namespace athanor {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;

Ticket Of(const std::string& client) { return {.model = "m", .client = client}; }

void AddMany(int count, const std::string& client, Admission* admission) {
  for (int i = 0; i < count; ++i) admission->Add(Of(client));
}

TEST(AdmissionTest, AnEmptyQueueHasRoom) {
  Admission admission({.max_queue = 1});
  EXPECT_FALSE(admission.waits("m"));
  EXPECT_EQ(admission.MakeRoom(Of("a")).value(), std::nullopt);
  admission.Add(Of("a"));
  EXPECT_TRUE(admission.waits("m"));
  EXPECT_FALSE(admission.waits("n"));
  admission.Remove(Of("a"));
  EXPECT_FALSE(admission.waits("m"));
}

TEST(AdmissionTest, AClientAloneMayFillTheQueue) {
  Admission admission({.max_queue = 8});
  AddMany(7, "a", &admission);
  EXPECT_EQ(admission.MakeRoom(Of("a")).value(), std::nullopt);
  admission.Add(Of("a"));
  const absl::Status full = admission.MakeRoom(Of("a")).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("m: 8 requests wait already"));
}

// Says when the runs ahead will be done, by their measured pace.
TEST(AdmissionTest, RefusalsSayWhenToComeAgain) {
  Admission admission({.max_queue = 1, .max_delay = microseconds(10'000), .threads = 2});
  const Admission::Ahead ahead{.all = 60'000, .apart = 60'000, .measured = true};
  EXPECT_EQ(RetryAfter(admission.CheckWait(Of("a"), ahead, 1'000)).count(), 20);
  EXPECT_EQ(RetryAfter(admission.CheckWait(Of("a"), ahead, 6'000)).count(), 6) << "four runs";
  EXPECT_EQ(RetryAfter(admission.Later(admission.EvictedError("m"), ahead)).count(), 30);
  const Admission::Ahead forever{.all = 1e300, .apart = 1e300, .measured = true};
  EXPECT_EQ(RetryAfter(admission.Later(admission.EvictedError("m"), forever)).count(), 60'000);
}

// Predictions that no run has confirmed bring nobody back at once.
TEST(AdmissionTest, BeforeAnyRunRefusalsHaveALeastTime) {
  Admission admission({.max_queue = 1, .max_delay = microseconds(10)});
  const Admission::Ahead little{.all = 50, .apart = 50}, much{.all = 3e6, .apart = 3e6};
  const absl::Status evicted = admission.EvictedError("m");
  EXPECT_EQ(RetryAfter(admission.CheckWait(Of("a"), little, 1)).count(), 100);
  EXPECT_EQ(RetryAfter(admission.Later(evicted, little)).count(), 100);
  EXPECT_EQ(RetryAfter(admission.Later(evicted, much)).count(), 3'000);
  EXPECT_EQ(RetryAfter(admission.Later(evicted, {.all = 50, .measured = true})).count(), 1);
}

TEST(AdmissionTest, AmongOthersAClientHasItsShare) {
  Admission admission({.max_queue = 8, .max_client_percent = 25});
  AddMany(2, "a", &admission);
  EXPECT_EQ(admission.MakeRoom(Of("a")).value(), std::nullopt);  // it is alone
  admission.Add(Of("b"));
  const absl::Status share = admission.MakeRoom(Of("a")).status();
  EXPECT_EQ(share.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(share.message(),
              HasSubstr("2 requests of this client wait already, its share (25 %"));
  EXPECT_EQ(admission.MakeRoom(Of("b")).value(), std::nullopt);
  admission.Remove(Of("b"));
  EXPECT_EQ(admission.MakeRoom(Of("a")).value(), std::nullopt);
}

TEST(AdmissionTest, AFullQueueTakesFromTheClientWithMost) {
  Admission admission({.max_queue = 6, .max_client_percent = 100});
  AddMany(4, "a", &admission);
  AddMany(2, "b", &admission);
  EXPECT_EQ(admission.MakeRoom(Of("c")).value(), "a");
  EXPECT_EQ(admission.MakeRoom(Of("b")).value(), "a");
  admission.Remove(Of("a"));
  admission.Add(Of("b"));  // three each: b would then have more
  EXPECT_EQ(admission.MakeRoom(Of("b")).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(admission.MakeRoom(Of("c")).value(), "b");
  EXPECT_THAT(admission.EvictedError("m").message(), HasSubstr("m: 6 requests wait"));
}

TEST(AdmissionTest, ALongWaitIsRefusedUnlessItIsAFewOwnRuns) {
  Admission admission({.max_delay = microseconds(1000), .threads = 2});
  EXPECT_TRUE(admission.CheckWait(Of("a"), {.all = 2000, .apart = 2000}, 10).ok());
  const absl::Status late = admission.CheckWait(Of("a"), {.all = 3000, .apart = 3000}, 10);
  EXPECT_EQ(late.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(late.message(), HasSubstr("would be 1.5 ms, more than the 1.0 ms allowed"));
  // Others' runs come in between.
  EXPECT_TRUE(admission.CheckWait(Of("a"), {.all = 3000, .apart = 80}, 10).ok());
  EXPECT_FALSE(admission.CheckWait(Of("a"), {.all = 3000, .apart = 81}, 10).ok());
}

TEST(RunPacesTest, PredictionsAreScaledByWhatRunsTook) {
  RunPaces paces;
  const Ticket ticket{.model = "m", .predicted_us = 100};
  EXPECT_EQ(paces.Cost(ticket), 100);
  EXPECT_FALSE(paces.Knows("m"));
  paces.Learn("m", 100, microseconds(300), 1);
  EXPECT_TRUE(paces.Knows("m"));
  EXPECT_EQ(paces.Of("m"), 2);  // the prediction has the weight of one run
  EXPECT_EQ(paces.Cost(ticket), 200);
  for (int i = 0; i < 200; ++i) paces.Learn("m", 100, microseconds(300), 2);
  EXPECT_NEAR(paces.Of("m"), 3, 1e-3);
  EXPECT_TRUE(paces.Shares("m"));
  paces.Learn("m", 100, microseconds(300), 1);
  EXPECT_FALSE(paces.Shares("m"));
  EXPECT_EQ(paces.Of("n"), 1);
  paces.Forget("m");
  EXPECT_EQ(paces.Of("m"), 1);
}

}  // namespace
}  // namespace athanor
