// Tests who is refused and who runs first when one client asks for more than the server can do.
#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batch/request_queue.h"
#include "server/batch/testing.h"

namespace athanor {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

// The tests play one runner: each tick is a run.
class FairQueueTest : public ::testing::Test {
 protected:
  // Admits and pushes a request. Returns null if it was refused; `refusal_` says why.
  std::shared_ptr<TestRequest> Offer(RequestQueue& queue, const TestTicket& like) {
    auto request = NewRequest(plan_, {1.f}, like);
    refusal_ = queue.Admit(request->ticket());
    if (!refusal_.ok()) return nullptr;
    queue.Push(request);
    return request;
  }
  // Offers requests until one is refused; returns how many were offered before.
  int OfferUntilRefused(RequestQueue& queue, const TestTicket& like) {
    int offered = 0;
    while (offered < 10'000 && Offer(queue, like) != nullptr) ++offered;
    return offered;
  }
  // Returns the client whose request runs next.
  static std::string Run(RequestQueue& queue) { return queue.Next()->requests[0]->ticket().client; }
  static int64_t WaitingIn(const RequestQueue& queue) {
    int64_t requests = 0;
    for (const RequestQueue::Waiting& waiting : queue.waiting()) requests += waiting.requests;
    return requests;
  }

  absl::Status refusal_;
  std::shared_ptr<const ServedPlan> plan_ = DoublingPlan(100);
};

// The greedy client always has as many requests in the queue as are admitted.
TEST_F(FairQueueTest, WhoAsksForAFifthIsNeverRefusedBesideWhoAsksForAll) {
  for (const QueueOptions& options :
       {QueueOptions{.max_delay = microseconds(1000), .threads = 1},
        QueueOptions{.max_delay = microseconds(50), .threads = 1},  // shorter than a run
        QueueOptions{.max_queue = 8, .threads = 1}, QueueOptions{.max_queue = 2, .threads = 1}}) {
    RequestQueue queue(options);
    int refused = 0, waits = 0, longest = 0;
    for (int tick = 0; tick < 1000; ++tick) {
      refused += OfferUntilRefused(queue, {.client = "a greedy one"}) == 0 ? 1 : 0;
      if (tick % 5 == 0) {
        ASSERT_NE(Offer(queue, {.client = "modest"}), nullptr) << tick << ": " << refusal_;
        waits = 0;
      }
      ++waits;
      if (Run(queue) == "modest") longest = std::max(longest, waits);
    }
    EXPECT_LE(longest, 2) << "its turn comes next, or after one of the other's";
    EXPECT_LE(refused, 400) << "the greedy one has what is left";
  }
}

TEST_F(FairQueueTest, ABurstIsJudgedAsIfItWereAlone) {
  const QueueOptions options{.max_delay = microseconds(1), .threads = 1};  // shorter than a run
  RequestQueue alone(options), beside(options);
  const int most = OfferUntilRefused(alone, {.client = "modest"});
  EXPECT_EQ(most, RequestQueue::kMostRuns + 1);
  OfferUntilRefused(beside, {.client = "greedy"});
  for (int i = 0; i < RequestQueue::kMostRuns; ++i) {
    EXPECT_NE(Offer(beside, {.client = "modest"}), nullptr) << i << ": " << refusal_;
  }
}

TEST_F(FairQueueTest, AWaitIsTheClientsOwnQueueAndTheTurnsOfOthers) {
  RequestQueue queue({.max_delay = microseconds(1000), .threads = 1});
  for (const char* client : {"a", "b"}) {
    for (int i = 0; i < 9; ++i) queue.Push(NewRequest(plan_, {1.f}, {.client = client}));
  }
  // Before a request of c come one more of each other client than of its own.
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(Offer(queue, {.client = "c"}), nullptr) << i << ": " << refusal_;
  }
  EXPECT_EQ(Offer(queue, {.client = "c"}), nullptr);
  EXPECT_THAT(std::string(refusal_.message()), HasSubstr("would be 1.1 ms, more than the 1.0 ms"));
  EXPECT_EQ(Offer(queue, {.client = "a"}), nullptr) << "which waits for its own";
}

// Service that a client has had counts against it, even while it has nothing in the queue.
TEST_F(FairQueueTest, WhoHadMoreWaitsForThoseWhoHadLess) {
  RequestQueue queue({.max_delay = microseconds(1000), .threads = 1});
  queue.Push(NewRequest(plan_, {1.f}, {.client = "had much", .predicted_us = 5000}));
  for (int i = 0; i < 12; ++i) queue.Push(NewRequest(plan_, {1.f}, {.client = "little"}));
  EXPECT_EQ(Run(queue), "had much");
  EXPECT_EQ(Offer(queue, {.client = "had much"}), nullptr);
  EXPECT_THAT(std::string(refusal_.message()), HasSubstr("would be 1.2 ms"));
  EXPECT_NE(Offer(queue, {.client = "new"}), nullptr) << refusal_;
}

TEST_F(FairQueueTest, AFullQueueRefusesTheNewestOfWhoHasMost) {
  RequestQueue queue({.max_queue = 4, .threads = 1});
  std::vector<std::shared_ptr<TestRequest>> greedy;
  for (int i = 0; i < 4; ++i) greedy.push_back(Offer(queue, {.client = "greedy"}));
  EXPECT_EQ(Offer(queue, {.client = "greedy"}), nullptr) << "not for itself";
  const auto modest = Offer(queue, {.client = "modest"});
  ASSERT_NE(modest, nullptr) << refusal_;
  const absl::Status gave_way = greedy[3]->Await();
  EXPECT_EQ(gave_way.code(), kExhausted);
  EXPECT_THAT(std::string(gave_way.message()), HasSubstr("m: 4 requests wait"));
  EXPECT_THAT(std::string(gave_way.message()), HasSubstr("--max_queue"));
  EXPECT_EQ(WaitingIn(queue), 4);
  ASSERT_NE(Offer(queue, {.client = "third"}), nullptr) << refusal_;
  EXPECT_EQ(greedy[2]->Await().code(), kExhausted);
  ASSERT_NE(Offer(queue, {.client = "fourth"}), nullptr) << refusal_;
  EXPECT_EQ(greedy[1]->Await().code(), kExhausted);
  // Each client has one request: none has more than a fifth client would have.
  EXPECT_EQ(Offer(queue, {.client = "fifth"}), nullptr);
  EXPECT_THAT(std::string(refusal_.message()), HasSubstr("4 requests wait already"));
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) order.push_back(Run(queue));
  EXPECT_THAT(order, ElementsAre("fourth", "greedy", "modest", "third"));
}

TEST_F(FairQueueTest, WhatIsLeastUrgentGivesWayFirst) {
  RequestQueue queue({.max_queue = 3, .threads = 1});
  const auto idle = Offer(queue, {.client = "greedy", .priority = 200});
  const auto urgent = Offer(queue, {.client = "greedy", .priority = 1});
  const auto later = Offer(queue, {.client = "greedy"});
  ASSERT_NE(Offer(queue, {.client = "modest"}), nullptr) << refusal_;
  EXPECT_EQ(idle->Await().code(), kExhausted);
  EXPECT_TRUE(urgent->Take());
  EXPECT_TRUE(later->Take());
}

// The deadline or cancellation came first and is the answer.
TEST_F(FairQueueTest, WhatHasBeenAnsweredMakesRoomWithoutARefusal) {
  RequestQueue queue({.max_queue = 2, .threads = 1});
  Offer(queue, {.client = "greedy"});
  const auto answered = Offer(queue, {.client = "greedy"});
  ASSERT_TRUE(answered->Take());
  ASSERT_NE(Offer(queue, {.client = "modest"}), nullptr) << refusal_;
  queue.Remove(*answered);
  EXPECT_EQ(WaitingIn(queue), 2);
}

// Runs that bypass the queue are charged to their model too.
TEST_F(FairQueueTest, RunsAtOnceCountBesideWhatWaits) {
  RequestQueue queue({.threads = 1});
  const TestTicket waits{.model = "m", .client = "waits"}, quick{.model = "n", .client = "quick"};
  for (int i = 0; i < 3; ++i) queue.Push(NewRequest(plan_, {1.f}, waits));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(queue.TryNow(NewRequest(plan_, {1.f}, quick)->ticket(), *plan_));
  }
  queue.Push(NewRequest(plan_, {1.f}, quick));
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) order.push_back(Run(queue));
  EXPECT_THAT(order, ElementsAre("waits", "waits", "waits", "quick"));
}

}  // namespace
}  // namespace athanor
