#include "server/batch/request_queue.h"

#include <chrono>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry_after.h"
#include "server/batch/batch_run.h"
#include "server/batch/testing.h"
#include "server/memory/server_ledger.h"

namespace athanor {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class RequestQueueTest : public ::testing::Test {
 protected:
  // Returns the first element of x of each request in the next call.
  std::vector<float> Next() {
    std::vector<float> firsts;
    std::optional<Batch> batch = queue_.Next();
    for (const auto& request : batch->requests) {
      firsts.push_back(static_cast<TestRequest&>(*request).x()[0]);
    }
    return firsts;
  }
  void Push(float x, const TestTicket& like) { queue_.Push(NewRequest(plan_, {x}, like)); }

  RequestQueue queue_{{.max_queue = 4, .max_delay = microseconds(1000), .threads = 2}};
  std::shared_ptr<const ServedPlan> plan_ = DoublingPlan(100);
};

TEST_F(RequestQueueTest, LowerPriorityNumbersGoFirstAndEqualOnesInTurn) {
  Push(1, {.priority = 100});
  Push(2, {.priority = 100});
  Push(3, {.priority = 1});
  Push(4, {.priority = 7});
  std::vector<float> order;
  for (int i = 0; i < 4; ++i) order.push_back(Next()[0]);
  EXPECT_THAT(order, ElementsAre(3, 4, 1, 2));
}

TEST_F(RequestQueueTest, ModelsShareTheMachineByWhatTheyTakeNotByHowManyTheyAre) {
  for (int i = 0; i < 8; ++i) Push(static_cast<float>(i), {.model = "often", .predicted_us = 100});
  for (int i = 10; i < 12; ++i) Push(static_cast<float>(i), {.model = "long", .predicted_us = 400});
  std::vector<float> order;
  for (int i = 0; i < 10; ++i) order.push_back(Next()[0]);
  // After a long run its model waits until the other has had as much run time.
  EXPECT_THAT(order, ElementsAre(10, 0, 1, 2, 3, 11, 4, 5, 6, 7));
}

TEST_F(RequestQueueTest, AClientThatAsksMuchDoesNotHoldUpOneThatAsksLittle) {
  for (int i = 0; i < 3; ++i) Push(static_cast<float>(i), {.client = "much"});
  Push(10, {.client = "little"});
  std::vector<float> order;
  for (int i = 0; i < 4; ++i) order.push_back(Next()[0]);
  EXPECT_THAT(order, ElementsAre(10, 0, 1, 2));
}

TEST_F(RequestQueueTest, WhoComesBackAtOnceHasHadWhatItHad) {
  Push(0, {.model = "back", .predicted_us = 1000});
  Push(10, {.model = "other"});
  Push(11, {.model = "other"});
  EXPECT_THAT(Next(), ElementsAre(0));
  Push(1, {.model = "back", .predicted_us = 1000});
  EXPECT_THAT(Next(), ElementsAre(10));
  EXPECT_THAT(Next(), ElementsAre(11));
  EXPECT_THAT(Next(), ElementsAre(1));
}

TEST_F(RequestQueueTest, ACallIsOfThePlanOfAllItsRowsOrWaitsForIt) {
  const auto small = DoublingPlan(1, 0, 1), large = DoublingPlan(1, 2, 8);
  const TestTicket like{.group = "g", .most_rows = 2};
  for (float x : {0.f, 1.f, 2.f}) {
    const auto request = NewRequest(small, {x}, like);
    request->SetPlanOf([=](absl::Span<const int64_t> dims) { return dims[0] < 2 ? small : large; });
    queue_.Push(request);
  }
  std::optional<Batch> two = queue_.Next();
  EXPECT_EQ(two->plan, large);
  EXPECT_THAT(two->requests, SizeIs(2));
  // The third request alone fits the other box, whose plan is free.
  std::optional<Batch> one = queue_.Next();
  EXPECT_EQ(one->plan, small);
  EXPECT_THAT(one->requests, SizeIs(1));
}

// Counts only the rows that fit together: the plan chosen for all of them is another box's.
TEST_F(RequestQueueTest, RowsThatDoNotFitDoNotCount) {
  const auto small = DoublingPlan(1, 0, 5), large = DoublingPlan(1, 6, 8);
  const TestTicket like{.group = "g", .most_rows = 8};
  for (int i = 0; i < 2; ++i) {
    const auto request = NewRequest(small, std::vector<float>(5, static_cast<float>(i)), like);
    request->SetPlanOf([=](absl::Span<const int64_t> dims) { return dims[0] < 6 ? small : large; });
    queue_.Push(request);
  }
  std::optional<Batch> batch = queue_.Next();
  EXPECT_EQ(batch->plan, small);
  EXPECT_THAT(batch->requests, SizeIs(1));
  EXPECT_TRUE(large->contexts->TryAcquire()) << "what was taken for nothing is back";
  EXPECT_FALSE(small->contexts->TryAcquire());
}

TEST_F(RequestQueueTest, AFullQueueRefusesWithItsNumbersButWhoHasFewerInIt) {
  const TestTicket like{.client = "a", .predicted_us = 1};
  for (int i = 0; i < 4; ++i) {
    const auto request = NewRequest(plan_, {1.f}, like);
    ASSERT_TRUE(queue_.Admit(request->ticket()).ok()) << i;
    queue_.Push(request);
  }
  const absl::Status full = queue_.Admit(NewRequest(plan_, {1.f}, like)->ticket());
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("m: 4 requests wait already"));
  EXPECT_EQ(RetryAfter(full).count(), 100) << "no run was timed yet";
  queue_.Ran("m", 1, microseconds(999));
  const absl::Status timed = queue_.Admit(NewRequest(plan_, {1.f}, like)->ticket());
  EXPECT_EQ(RetryAfter(timed).count(), 1) << "4 runs of 0.5 ms on 2 threads";
  EXPECT_TRUE(queue_.Admit(NewRequest(plan_, {1.f}, {.model = "n"})->ticket()).ok());
  for (const char* client : {"b", "c", "d"}) {
    const auto request = NewRequest(plan_, {1.f}, {.client = client, .predicted_us = 1});
    EXPECT_TRUE(queue_.Admit(request->ticket()).ok()) << client;
    queue_.Push(request);
  }
  EXPECT_FALSE(queue_.Admit(NewRequest(plan_, {1.f}, {.client = "e"})->ticket()).ok());
}

TEST_F(RequestQueueTest, AClientHasItsShareWhereOthersWait) {
  Push(0, {.client = "a", .predicted_us = 1});
  Push(1, {.client = "a", .predicted_us = 1});
  const auto third = NewRequest(plan_, {2.f}, {.client = "a", .predicted_us = 1});
  EXPECT_TRUE(queue_.Admit(third->ticket()).ok()) << "alone it may have all";
  Push(3, {.client = "b", .predicted_us = 1});
  const absl::Status share = queue_.Admit(third->ticket());
  EXPECT_EQ(share.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(share.message()), HasSubstr("2 requests of this client"));
  EXPECT_TRUE(queue_.Admit(NewRequest(plan_, {4.f}, {.client = "b"})->ticket()).ok());
}

TEST_F(RequestQueueTest, TooLongAWaitIsRefusedAndWhatGoesFirstDoesNotWait) {
  Push(0, {.predicted_us = 3000});
  const auto another = NewRequest(plan_, {1.f});
  const absl::Status wait = queue_.Admit(another->ticket());
  EXPECT_EQ(wait.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(wait.message()), HasSubstr("would be 1.5 ms, more than the 1.0 ms"));
  EXPECT_TRUE(queue_.Admit(NewRequest(plan_, {1.f}, {.priority = 1})->ticket()).ok());
  // Another model of the same priority runs soon, however much waits here.
  EXPECT_TRUE(queue_.Admit(NewRequest(plan_, {1.f}, {.model = "n"})->ticket()).ok());
  EXPECT_FALSE(
      queue_.Admit(NewRequest(plan_, {1.f}, {.model = "n", .priority = 101})->ticket()).ok());
  // Runs with prediction 0 do not change predictions; others do.
  queue_.Ran("m", 0, microseconds(1));
  EXPECT_FALSE(queue_.Admit(another->ticket()).ok());
  for (int i = 0; i < 4; ++i) queue_.Ran("m", 1000, microseconds(100));
  EXPECT_TRUE(queue_.Admit(another->ticket()).ok());
  queue_.Forget("m");
  EXPECT_FALSE(queue_.Admit(another->ticket()).ok());
}

TEST_F(RequestQueueTest, ThoseOfOneGroupShareACallAsFarAsTheyFit) {
  const TestTicket like{.group = "7", .most_rows = 4};
  queue_.Push(NewRequest(plan_, {1, 1}, like));
  queue_.Push(NewRequest(plan_, {2, 2, 2}, like));  // would make five rows
  queue_.Push(NewRequest(plan_, {3}, like));
  queue_.Push(NewRequest(plan_, {4}, {.group = "8", .most_rows = 4}));
  queue_.Push(NewRequest(plan_, {5}, like));
  EXPECT_THAT(Next(), ElementsAre(1, 3, 5));
  EXPECT_THAT(Next(), ElementsAre(2));
  EXPECT_THAT(Next(), ElementsAre(4));
}

TEST_F(RequestQueueTest, ARequestWaitsForCompanyUntilItIsDueOrTheCallIsFull) {
  RequestQueue queue({.batch_delay = std::chrono::hours(1), .threads = 1});
  const TestTicket like{.group = "7", .most_rows = 2};
  queue.Push(NewRequest(plan_, {1}, like));
  queue.Push(NewRequest(plan_, {9}, {.model = "n"}));
  EXPECT_THAT(queue.Next()->requests, SizeIs(1)) << "the other model's goes ahead";
  std::thread later([&] { queue.Push(NewRequest(plan_, {2}, like)); });
  EXPECT_THAT(queue.Next()->requests, SizeIs(2));
  later.join();
  EXPECT_FALSE(queue.TryNow(NewRequest(plan_, {1}, like)->ticket(), *plan_))
      << "who waits for company does not run at once";
  EXPECT_TRUE(queue.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
  RequestQueue soon({.batch_delay = microseconds(500), .threads = 1});
  soon.Push(NewRequest(plan_, {1}, like));
  EXPECT_THAT(soon.Next()->requests, SizeIs(1));
}

// A request leaves in time for its deadline, whether others join or not.
TEST_F(RequestQueueTest, ADeadlineIsNotWaitedOut) {
  RequestQueue queue({.batch_delay = std::chrono::hours(1), .threads = 1});
  const auto now = RequestQueue::Clock::now();
  const TestTicket soon{.group = "7", .deadline = now + std::chrono::milliseconds(20)};
  queue.Push(NewRequest(plan_, {1}, soon));
  EXPECT_THAT(queue.Next()->requests, SizeIs(1));
  // A request whose run needs all the time left does not wait at all.
  const TestTicket tight{
      .group = "7", .predicted_us = 3'600'000'000, .deadline = now + std::chrono::seconds(3600)};
  queue.Push(NewRequest(plan_, {2}, tight));
  EXPECT_THAT(queue.Next()->requests, SizeIs(1));
  queue.Push(NewRequest(plan_, {3}, {.group = "7", .deadline = now}));
  EXPECT_THAT(queue.Next()->requests, SizeIs(1)) << "too late already";
}

TEST_F(RequestQueueTest, WaitingForCompanyIsToldApartFromWaitingForATurn) {
  const TestTicket like{.group = "7", .most_rows = 2};
  Push(1, like);
  EXPECT_THAT(queue_.Next()->waited, SizeIs(0)) << "without a delay nobody waits for company";
  RequestQueue queue({.batch_delay = std::chrono::hours(1), .threads = 1});
  queue.Push(NewRequest(plan_, {1}, like));
  queue.Push(NewRequest(plan_, {2}, like));
  EXPECT_THAT(queue.Next()->waited, SizeIs(0)) << "the call was full when a runner came";
  queue.Push(NewRequest(plan_, {1}, like));
  queue.Push(NewRequest(plan_, {9}, {.model = "n"}));
  EXPECT_THAT(queue.Next()->requests, SizeIs(1)) << "held from here on";
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  queue.Push(NewRequest(plan_, {2}, like));
  const std::optional<Batch> batch = queue.Next();
  ASSERT_THAT(batch->waited, SizeIs(2));
  EXPECT_GE(batch->waited[0], std::chrono::milliseconds(2));
  EXPECT_LT(batch->waited[1], batch->waited[0]);
}

TEST_F(RequestQueueTest, WhoWaitsForCompanyHoldsUpNobodyBehindIt) {
  RequestQueue queue({.batch_delay = std::chrono::hours(1), .threads = 1});
  queue.Push(NewRequest(plan_, {1}, {.group = "7", .most_rows = 8}));
  queue.Push(NewRequest(plan_, {2}, {.group = ""}));
  queue.Push(NewRequest(plan_, {3}, {.group = "8", .most_rows = 1}));
  for (const float first : {2.f, 3.f}) {
    const std::optional<Batch> batch = queue.Next();
    ASSERT_THAT(batch->requests, SizeIs(1));
    EXPECT_EQ(static_cast<TestRequest&>(*batch->requests[0]).x()[0], first);
  }
  queue.Stop();  // waiting requests stop waiting for others to join
  EXPECT_THAT(queue.Next()->requests, SizeIs(1));
  EXPECT_FALSE(queue.Next().has_value());
}

TEST_F(RequestQueueTest, OtherPrioritiesAreNoCompany) {
  const auto like = [](int64_t priority) { return TestTicket{.priority = priority, .group = "7"}; };
  Push(1, like(100));
  Push(2, like(1));
  Push(3, like(100));
  Push(4, like(1));
  EXPECT_THAT(Next(), ElementsAre(2, 4));
  EXPECT_THAT(Next(), ElementsAre(1, 3));
}

TEST_F(RequestQueueTest, ClientsAreCompanyInTurn) {
  const auto like = [](const std::string& client) {
    return TestTicket{.client = client, .group = "7", .most_rows = 4};
  };
  for (float x : {1.f, 2.f, 3.f, 4.f, 5.f}) Push(x, like("a"));
  for (float x : {11.f, 12.f}) Push(x, like("b"));
  Push(21, like("c"));
  EXPECT_THAT(Next(), ElementsAre(1, 11, 21, 2));
  EXPECT_THAT(Next(), ElementsAre(12, 3, 4, 5));
}

TEST_F(RequestQueueTest, RequestsWithoutRowsShareCallsToo) {
  const TestTicket like{.group = "7", .most_rows = 2};
  const std::shared_ptr<TestRequest> none = NewRequest(plan_, {}, like);
  queue_.Push(none);
  queue_.Push(NewRequest(plan_, {1, 2}, like));
  queue_.Push(NewRequest(plan_, {3}, like));
  EXPECT_THAT(queue_.Next()->requests, SizeIs(2));
  EXPECT_THAT(Next(), ElementsAre(3));
  EXPECT_THAT(queue_.waiting(), SizeIs(0));
}

TEST_F(RequestQueueTest, WhatWasTakenOrRemovedIsNotRun) {
  auto taken = NewRequest(plan_, {1.f}), removed = NewRequest(plan_, {2.f});
  queue_.Push(taken);
  queue_.Push(removed);
  Push(3, {});
  ASSERT_TRUE(taken->Take());
  queue_.Remove(*removed);
  queue_.Remove(*removed);
  EXPECT_THAT(Next(), ElementsAre(3));
  EXPECT_THAT(queue_.waiting(), SizeIs(0));
}

TEST_F(RequestQueueTest, AModelWithoutAFreeContextIsPassedOver) {
  const std::shared_ptr<const ServedPlan> one = DoublingPlan(1);
  queue_.Push(NewRequest(one, {1}, {.model = "one"}));
  queue_.Push(NewRequest(one, {2}, {.model = "one"}));
  std::optional<Batch> first = queue_.Next();
  Push(3, {});
  EXPECT_THAT(Next(), ElementsAre(3));
  ASSERT_THAT(queue_.waiting(), SizeIs(1));
  EXPECT_EQ(queue_.waiting()[0].requests, 1);
  std::thread later([&] {
    first.reset();
    queue_.Ran("one", 100, microseconds(100));
  });
  EXPECT_THAT(Next(), ElementsAre(2));
  later.join();
}

// A plan that the runner examined for a call may hold the last reference to a model.
TEST_F(RequestQueueTest, ARunnerThatWaitsHoldsNothing) {
  std::shared_ptr<const ServedPlan> plan = DoublingPlan(1);
  const std::weak_ptr<const ServedPlan> held = plan;
  auto first = NewRequest(plan, {1}), second = NewRequest(plan, {2});
  std::atomic<int> looks{0};
  second->SetPlanOf([&looks, plan](absl::Span<const int64_t>) {
    ++looks;
    return plan;
  });
  queue_.Push(first);
  queue_.Push(second);
  std::optional<Batch> batch = queue_.Next();
  std::thread runner([&] { EXPECT_FALSE(queue_.Next().has_value()); });
  while (looks == 0) std::this_thread::yield();
  queue_.Remove(*second);
  first.reset();
  second.reset();
  batch.reset();
  plan.reset();
  for (int i = 0; i < 10'000 && !held.expired(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(held.expired());
  queue_.Stop();
  runner.join();
}

TEST_F(RequestQueueTest, NothingRunsAtOnceWhileItsModelWaits) {
  EXPECT_TRUE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
  Push(1, {});
  EXPECT_TRUE(queue_.TryNow(NewRequest(plan_, {1}, {.model = "n"})->ticket(), *plan_));
  EXPECT_FALSE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
  Next();
  EXPECT_TRUE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
}

TEST_F(RequestQueueTest, NothingRunsAtOnceOnABusyDevice) {
  const auto runner = std::static_pointer_cast<DoublingRunner>(plan_->runner);
  runner->SetBusy(true);
  EXPECT_FALSE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
  runner->SetBusy(false);
  EXPECT_TRUE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
}

// Its turn on the device goes with the context: to a run, or back.
TEST_F(RequestQueueTest, WhatRunsAtOnceHasItsTurn) {
  const auto runner = std::static_pointer_cast<DoublingRunner>(plan_->runner);
  ContextPool::Lease unused = queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_);
  EXPECT_EQ(runner->turns(), 1);
  EXPECT_FALSE(queue_.TryNow(NewRequest(plan_, {1}, {.group = "g"})->ticket(), *DoublingPlan(0)));
  EXPECT_EQ(runner->turns(), 1) << "no context: no turn";
  unused = {};
  EXPECT_EQ(runner->turns(), 0);

  for (const bool begins : {true, false}) {
    const auto request = NewRequest(plan_, {3});
    if (!begins) request->FailToBegin(absl::ResourceExhaustedError("no memory for its answer"));
    ContextPool::Lease lease = queue_.TryNow(request->ticket(), *plan_);
    ASSERT_TRUE(lease);
    EXPECT_EQ(runner->turns(), 1);
    ServerLedger ledger(1 << 20);
    Staging staging(&ledger);
    RunBatch({plan_, std::move(lease), {request}}, queue_, staging);
    EXPECT_EQ(request->Await().ok(), begins);
    EXPECT_EQ(runner->turns(), 0) << begins;
  }
  EXPECT_TRUE(plan_->contexts->TryAcquire());
  EXPECT_EQ(runner->turns(), 0) << "runners wait for their turn when they run";
}

TEST_F(RequestQueueTest, WhatRunsAtOnceMakesNoFurtherContexts) {
  const ContextPool::Lease first = queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_);
  EXPECT_TRUE(first);
  EXPECT_FALSE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
  EXPECT_TRUE(plan_->contexts->TryAcquire()) << "runners do";
  EXPECT_TRUE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_));
}

// The next call takes all that came meanwhile.
TEST_F(RequestQueueTest, WhatCouldShareACallWaitsBehindARunOfItsPlan) {
  const auto joins = NewRequest(plan_, {1}, {.group = "g"});
  std::vector<ContextPool::Lease> both;
  for (int i = 0; i < 2; ++i) both.push_back(plan_->contexts->TryAcquire());
  both.pop_back();
  EXPECT_FALSE(queue_.TryNow(joins->ticket(), *plan_));
  EXPECT_TRUE(queue_.TryNow(NewRequest(plan_, {1})->ticket(), *plan_)) << "it shares with nobody";
  EXPECT_TRUE(
      queue_.TryNow(NewRequest(plan_, {1}, {.group = "g", .most_rows = 1})->ticket(), *plan_))
      << "it fills a call";
  both.clear();
  EXPECT_TRUE(queue_.TryNow(joins->ticket(), *plan_));
  queue_.Ran("m", 100, microseconds(100), 2);
  EXPECT_FALSE(queue_.TryNow(joins->ticket(), *plan_)) << "there are others, it seems";
  queue_.Ran("m", 100, microseconds(100), 1);
  EXPECT_TRUE(queue_.TryNow(joins->ticket(), *plan_));
}

TEST_F(RequestQueueTest, StoppedItGivesWhatWaitsAndThenNothing) {
  Push(1, {});
  queue_.Stop();
  EXPECT_THAT(Next(), ElementsAre(1));
  EXPECT_FALSE(queue_.Next().has_value());
}

TEST_F(RequestQueueTest, AllRunnersEndOnceTheLastOneThatWaitedHasRun) {
  const std::shared_ptr<const ServedPlan> one = DoublingPlan(1);
  for (int round = 0; round < 20; ++round) {
    RequestQueue queue({.threads = 4});
    std::vector<std::thread> runners;
    for (int i = 0; i < 3; ++i) queue.Push(NewRequest(one, {1.f}));
    for (int i = 0; i < 4; ++i) {
      runners.emplace_back([&] {
        while (std::optional<Batch> batch = queue.Next()) {
          std::this_thread::yield();
          batch->lease = {};
          queue.Ran("m", 100, microseconds(1));
        }
      });
    }
    queue.Stop();
    for (std::thread& runner : runners) runner.join();
  }
}

TEST_F(RequestQueueTest, ManyThreadsPushTakeAndRemove) {
  RequestQueue queue({.max_queue = 1000, .threads = 4});
  constexpr int kRequests = 2000;
  std::atomic<int> ran{0}, gone{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (std::optional<Batch> batch = queue.Next()) {
        ran += static_cast<int>(batch->requests.size());
        {
          ContextPool::Lease free = std::move(batch->lease);
        }
        queue.Ran("m", 100, microseconds(1));
      }
    });
  }
  std::vector<std::thread> clients;
  for (int t = 0; t < 3; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        auto request = NewRequest(
            plan_, {1.f},
            {.client = std::to_string(t), .priority = 1 + i % 3, .group = i % 2 == 0 ? "" : "odd"});
        queue.Push(request);
        if (i % 5 == 0 && request->Take()) {
          queue.Remove(*request);
          ++gone;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  queue.Stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran + gone, 3 * kRequests);
  EXPECT_THAT(queue.waiting(), SizeIs(0));
}

}  // namespace
}  // namespace athanor
