#include "server/batch/batch_run.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batch/testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TestTicket kShared{.group = "7", .most_rows = 16};

class BatchRunTest : public ::testing::Test {
 protected:
  const DoublingRunner& runner() { return static_cast<const DoublingRunner&>(*plan_->runner); }
  void RunAll(const std::vector<std::shared_ptr<TestRequest>>& requests) {
    for (const auto& request : requests) queue_.Push(request);
    Runners runners(&queue_, &ledger_, /*threads=*/1);
  }

  ServerLedger ledger_{1 << 20};
  RequestQueue queue_{{.threads = 1}};
  std::shared_ptr<const ServedPlan> plan_ = DoublingPlan(1);
};

TEST_F(BatchRunTest, OneCallAnswersEachWithItsOwnRows) {
  auto a = NewRequest(plan_, {1, 2}, kShared), b = NewRequest(plan_, {3}, kShared),
       c = NewRequest(plan_, {4, 5, 6}, kShared);
  RunAll({a, b, c});
  EXPECT_THAT(runner().rows(), ElementsAre(6));
  EXPECT_TRUE(a->Await().ok() && b->Await().ok() && c->Await().ok());
  EXPECT_THAT(a->y(), ElementsAre(2, 4));
  EXPECT_THAT(b->y(), ElementsAre(6));
  EXPECT_THAT(c->y(), ElementsAre(8, 10, 12));
  EXPECT_EQ(b->times().batch_rows, 6);
  EXPECT_EQ(ledger_.used(), 0);
}

TEST_F(BatchRunTest, WhatIsCountedOnceACallIsToldByItsFirst) {
  auto a = NewRequest(plan_, {1}, kShared), b = NewRequest(plan_, {2}, kShared);
  auto alone = NewRequest(plan_, {3}), late = NewRequest(plan_, {4});
  late->FailToBegin(absl::DeadlineExceededError("too late"));
  RunAll({a, b, alone, late});
  EXPECT_TRUE(a->times().ran && a->times().first);
  EXPECT_TRUE(b->times().ran);
  EXPECT_FALSE(b->times().first);
  EXPECT_TRUE(alone->times().ran && alone->times().first);
  EXPECT_FALSE(late->times().ran);
  for (const auto& request : {a, b, alone, late}) EXPECT_FALSE(request->times().split);
}

TEST_F(BatchRunTest, OneWithoutRowsIsAnsweredToo) {
  auto none = NewRequest(plan_, {}, kShared), a = NewRequest(plan_, {1, 2}, kShared),
       other = NewRequest(plan_, {}, kShared);
  RunAll({none, a, other});
  EXPECT_THAT(runner().rows(), ElementsAre(2));
  EXPECT_TRUE(none->Await().ok() && a->Await().ok() && other->Await().ok());
  EXPECT_THAT(a->y(), ElementsAre(2, 4));
  EXPECT_EQ(none->times().batch_rows, 2);
  EXPECT_TRUE(none->times().ran);
}

TEST_F(BatchRunTest, NoRowsAtAllAreACallToo) {
  auto a = NewRequest(plan_, {}, kShared), b = NewRequest(plan_, {}, kShared);
  RunAll({a, b});
  EXPECT_THAT(runner().rows(), ElementsAre(0));
  EXPECT_TRUE(a->Await().ok() && b->Await().ok());
}

// Plans of two boxes: up to 4 rows, and more.
class BoxesTest : public BatchRunTest {
 protected:
  std::shared_ptr<TestRequest> Boxed(std::vector<float> x) {
    auto request = NewRequest(small_, std::move(x), kShared);
    request->SetPlanOf(
        [this](absl::Span<const int64_t> dims) { return dims[0] <= 4 ? small_ : large_; });
    return request;
  }
  static std::vector<int64_t> RowsOf(const std::shared_ptr<const ServedPlan>& plan) {
    return static_cast<const DoublingRunner&>(*plan->runner).rows();
  }

  std::shared_ptr<const ServedPlan> small_ = DoublingPlan(1, 0, 4), large_ = DoublingPlan(1, 5, 16);
};

TEST_F(BoxesTest, ACallIsRunByThePlanOfAllItsRows) {
  auto a = Boxed({1, 2, 3}), b = Boxed({4, 5, 6});
  RunAll({a, b});
  EXPECT_TRUE(a->Await().ok() && b->Await().ok());
  EXPECT_THAT(RowsOf(large_), ElementsAre(6));
  EXPECT_THAT(RowsOf(small_), ElementsAre());
  EXPECT_EQ(a->bucket(), "b=5..16");
  EXPECT_EQ(b->bucket(), "b=5..16");
  EXPECT_THAT(b->y(), ElementsAre(8, 10, 12));
}

TEST_F(BoxesTest, FewerRowsThanWereCountedAreRunByThePlanOfThose) {
  auto a = Boxed({1, 2, 3}), late = Boxed({4, 5}), b = Boxed({6});
  late->FailToBegin(absl::DeadlineExceededError("too late"));
  RunAll({a, late, b});
  EXPECT_TRUE(a->Await().ok() && b->Await().ok());
  EXPECT_FALSE(late->Await().ok());
  EXPECT_THAT(RowsOf(small_), ElementsAre(4));
  EXPECT_THAT(RowsOf(large_), ElementsAre());
  EXPECT_EQ(b->bucket(), "b=0..4");
  EXPECT_THAT(b->y(), ElementsAre(12));
}

TEST_F(BoxesTest, ThoseSplitOutAreEachRunByThePlanOfTheirOwnRows) {
  auto a = Boxed({1, 2, 3}), wrong = Boxed({-4, 5, 6}), many = Boxed({1, 2, 3, 4, 5});
  RunAll({a, wrong, many});
  EXPECT_TRUE(a->Await().ok() && many->Await().ok());
  EXPECT_FALSE(wrong->Await().ok());
  EXPECT_THAT(RowsOf(large_), ElementsAre(11, 5));
  EXPECT_THAT(RowsOf(small_), ElementsAre(3, 3));
  EXPECT_EQ(a->bucket(), "b=0..4");
  EXPECT_EQ(many->bucket(), "b=5..16");
}

// A request that needs another context gives its own back while it waits.
TEST_F(BoxesTest, ABusyPlanIsWaitedFor) {
  std::vector<std::shared_ptr<TestRequest>> requests;
  for (int i = 0; i < 200; ++i) {
    requests.push_back(Boxed({static_cast<float>(i), 1, i % 3 == 0 ? -1.f : 2.f}));
  }
  for (const auto& request : requests) queue_.Push(request);
  {
    Runners runners(&queue_, &ledger_, /*threads=*/4);
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(requests[i]->Await().ok(), i % 3 != 0) << i;
    if (i % 3 != 0) EXPECT_THAT(requests[i]->y(), ElementsAre(2 * i, 2, 4));
  }
}

TEST_F(BatchRunTest, ABadOneIsSplitOut) {
  std::vector<std::shared_ptr<TestRequest>> requests;
  for (int i = 0; i < 16; ++i) {
    requests.push_back(NewRequest(plan_, {i == 5 ? -1.f : static_cast<float>(i)}, kShared));
  }
  RunAll(requests);
  for (int i = 0; i < 16; ++i) {
    const absl::Status status = requests[i]->Await();
    if (i == 5) {
      EXPECT_EQ(status, absl::InvalidArgumentError("x is negative"));
    } else {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_THAT(requests[i]->y(), ElementsAre(2 * i));
      EXPECT_EQ(requests[i]->times().batch_rows, 1);
    }
    EXPECT_TRUE(requests[i]->times().first);
    EXPECT_EQ(requests[i]->times().split, i == 0);
    EXPECT_EQ(requests[i]->times().failed_us >= 0, i == 0);
  }
  EXPECT_EQ(runner().rows().size(), 17);
}

TEST_F(BatchRunTest, ACallStoppedAtItsDeadlineIsNotSplit) {
  auto a = NewRequest(plan_, {1}, kShared),
       b = NewRequest(plan_, {std::numeric_limits<float>::infinity()}, kShared);
  RunAll({a, b});
  EXPECT_THAT(runner().rows(), ElementsAre(2));
  for (const auto& request : {a, b}) {
    EXPECT_EQ(request->Await().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(request->times().ran);
    EXPECT_EQ(request->times().first, request == a);
    EXPECT_FALSE(request->times().split);
  }
}

TEST_F(BatchRunTest, OneSplitOutTooLateIsNotRun) {
  auto bad = NewRequest(plan_, {-1}, kShared), late = NewRequest(plan_, {2}, kShared);
  late->SetDeadline(std::chrono::steady_clock::now());
  RunAll({bad, late});
  EXPECT_THAT(runner().rows(), ElementsAre(2, 1));
  EXPECT_EQ(bad->Await().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(late->Await().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(late->times().ran);
}

TEST_F(BatchRunTest, OneThatCannotBeginLeavesTheOthersTheirCall) {
  auto a = NewRequest(plan_, {1}, kShared), b = NewRequest(plan_, {2}, kShared),
       c = NewRequest(plan_, {3}, kShared);
  b->FailToBegin(absl::DeadlineExceededError("too late"));
  RunAll({a, b, c});
  EXPECT_THAT(runner().rows(), ElementsAre(2));
  EXPECT_EQ(b->Await(), absl::DeadlineExceededError("too late"));
  EXPECT_THAT(a->y(), ElementsAre(2));
  EXPECT_THAT(c->y(), ElementsAre(6));
}

TEST_F(BatchRunTest, WithoutMemoryForACallTogetherEachHasItsOwn) {
  ServerLedger none(1);
  auto a = NewRequest(plan_, {1}, kShared), b = NewRequest(plan_, {2}, kShared);
  queue_.Push(a);
  queue_.Push(b);
  {
    Runners runners(&queue_, &none, 1);
  }
  EXPECT_THAT(runner().rows(), ElementsAre(1, 1));
  EXPECT_TRUE(a->times().split);
  EXPECT_EQ(a->times().failed_us, -1);
  EXPECT_THAT(a->y(), ElementsAre(2));
  EXPECT_THAT(b->y(), ElementsAre(4));
}

TEST(StagingTest, GrowsAndGivesBack) {
  ServerLedger ledger(1024);
  {
    Staging staging(&ledger);
    char* const small = staging.Block(100).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % 64, 0);
    EXPECT_EQ(staging.Block(64).value(), small);
    EXPECT_EQ(ledger.used(HeldKind::kRequests), 128);
    EXPECT_TRUE(staging.Block(1000).ok());
    EXPECT_EQ(ledger.used(HeldKind::kRequests), 1024);
    EXPECT_EQ(staging.Block(1025).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ledger.used(), 0);
    EXPECT_TRUE(staging.Block(10).ok());
  }
  EXPECT_EQ(ledger.used(), 0);
}

}  // namespace
}  // namespace athanor
