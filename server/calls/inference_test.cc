#include "server/calls/inference.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/core_testing.h"
#include "server/testing/waiters_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A caller that keeps what its inference says, and destroys it with the end.
class Caller final : public InferenceSink {
 public:
  Caller(ServerCore& core, inference::ModelInferRequest request, InferenceCaller caller = {})
      : inference_(std::make_unique<Inference>(core, std::move(caller), this)) {
    *inference_->request() = std::move(request);
  }

  Inference& inference() { return *inference_; }
  bool ended() {
    MutexLock lock(mu_);
    return end_.has_value();
  }
  absl::Status AwaitEnd() {
    MutexLock lock(mu_);
    while (!end_.has_value()) cv_.Wait(lock);
    return *end_;
  }
  std::vector<float> values() {
    std::vector<float> values(reply_.raw_output_contents(0).size() / sizeof(float));
    std::memcpy(values.data(), reply_.raw_output_contents(0).data(), values.size() * sizeof(float));
    return values;
  }
  const inference::ModelInferResponse& reply() const { return reply_; }

  absl::Status Answer(inference::ModelInferResponse* reply) override {
    reply_.Swap(reply);
    thread = std::this_thread::get_id();
    return answered;
  }
  void Release() override { ++released; }
  void Done(const absl::Status& status) override {
    inference_.reset();
    MutexLock lock(mu_);
    EXPECT_FALSE(end_.has_value());
    end_ = status;
    cv_.NotifyAll();
  }

  absl::Status answered;  // what Answer returns
  int released = 0;
  std::thread::id thread;  // which called Answer

 private:
  std::unique_ptr<Inference> inference_;
  inference::ModelInferResponse reply_;
  Mutex mu_;
  CondVar cv_;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

class InferenceTest : public CoreTest {
 protected:
  void SetUp() override {
    options_.inline_us = 1'000'000;
    options_.max_queue = 1;
    options_.max_queue_delay_ms = 0;
    options_.refusals_per_second = 1;
    CoreTest::SetUp();
  }
  std::shared_ptr<ModelVersion> Begin(const std::string& name, const TestModel& model) {
    std::shared_ptr<ModelVersion> version = Store(name, model);
    EXPECT_TRUE(core_->workers().Start(version).ok());
    return version;
  }
  std::shared_ptr<ModelVersion> Serve(const std::string& name, const TestModel& model) {
    std::shared_ptr<ModelVersion> version = Begin(name, model);
    EXPECT_TRUE(Await(*version).ok());
    return version;
  }
  void TearDown() override { EXPECT_EQ(core_->ledger().used(HeldKind::kRequests), 0); }
};

TEST_F(InferenceTest, AnswersOnThisThreadOrOnARunner) {
  Serve("m", ScaleModel({1, -2}));
  for (const bool here : {true, false}) {
    inference::ModelInferRequest request = FloatRequest("m", {3, 4});
    request.set_id("mine");
    Caller caller(*core_, std::move(request));
    caller.inference().Begin({.bytes = 100, .runs_here = here});
    ASSERT_TRUE(caller.AwaitEnd().ok());
    EXPECT_THAT(caller.values(), ElementsAre(3, -8));
    EXPECT_EQ(caller.thread == std::this_thread::get_id(), here);
    EXPECT_EQ(caller.reply().id(), "mine");
    EXPECT_EQ(caller.reply().model_version(), "1");
    EXPECT_TRUE(caller.reply().parameters().contains("queue_us"));
  }
}

TEST_F(InferenceTest, RefusalsSayWhatIsWrong) {
  Serve("m", ScaleModel({1, -2}));
  Caller absent(*core_, FloatRequest("absent", {1}));
  absent.inference().Begin({});
  EXPECT_EQ(absent.AwaitEnd().code(), absl::StatusCode::kNotFound);
  Caller narrow(*core_, FloatRequest("m", {1}));
  narrow.inference().Begin({});
  EXPECT_EQ(narrow.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(narrow.AwaitEnd().message()), HasSubstr("input \"x\""));
  Caller refused(*core_, FloatRequest("m", {1, 2}));
  refused.inference().Refuse(absl::UnavailableError("no"));
  EXPECT_EQ(refused.AwaitEnd(), absl::UnavailableError("no"));
}

TEST_F(InferenceTest, ARefusalThatIsHeldBackHoldsNoMemory) {
  Serve("m", ScaleModel({1}));
  control_->HoldRuns();
  std::vector<std::unique_ptr<Caller>> callers;
  const auto ask = [&]() -> Caller& {
    callers.push_back(std::make_unique<Caller>(*core_, FloatRequest("m", {1}),
                                               InferenceCaller{.client = "greedy"}));
    callers.back()->inference().Begin({});
    return *callers.back();
  };
  const auto held = [&] {
    int64_t held = control_->runs_waiting();
    for (const auto& queue : core_->requests().waiting()) held += queue.requests;
    return held;
  };
  for (int64_t asked = 1; !ask().ended(); ++asked) {
    while (held() < asked) std::this_thread::yield();
  }
  EXPECT_EQ(callers.back()->released, 0) << "the first refusal is told at once";
  // A runner may have made room for one more meanwhile.
  while (core_->refusals().held() == 0) ask();
  Caller& second = *callers.back();
  EXPECT_EQ(second.released, 1);
  EXPECT_EQ(second.AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(core_->refusals().held(), 0);
  control_->ReleaseRuns();
  for (const auto& caller : callers) static_cast<void>(caller->AwaitEnd());
}

TEST_F(InferenceTest, AnAnswerThatFailsEndsWithItsError) {
  Serve("m", ScaleModel({1, -2}));
  Caller caller(*core_, FloatRequest("m", {1, 2}));
  caller.answered = absl::ResourceExhaustedError("too long");
  caller.inference().Begin({});
  EXPECT_EQ(caller.AwaitEnd(), absl::ResourceExhaustedError("too long"));
}

TEST_F(InferenceTest, ACancellationEndsOneThatWaitsForItsPlan) {
  control_->HoldCompiles();
  auto version = Begin("m", ScaleModel({1}));
  Caller caller(*core_, FloatRequest("m", {1}));
  caller.inference().Begin({});
  AwaitWaiters(version->serving(), 1);
  caller.inference().Cancel();
  EXPECT_EQ(caller.AwaitEnd().code(), absl::StatusCode::kCancelled);
  // One that is cancelled ahead of Begin ends as soon as it would wait.
  Caller early(*core_, FloatRequest("m", {1}));
  early.inference().Cancel();
  early.inference().Begin({});
  EXPECT_EQ(early.AwaitEnd().code(), absl::StatusCode::kCancelled);
  control_->ReleaseCompiles();
}

TEST_F(InferenceTest, ADeadlineEndsOneThatWaits) {
  control_->HoldCompiles();
  Begin("m", ScaleModel({1}));
  const auto now = InferenceCaller::Clock::now();
  Caller caller(*core_, FloatRequest("m", {1}),
                {.arrived = now, .deadline = now + std::chrono::milliseconds(1)});
  caller.inference().Begin({});
  EXPECT_EQ(caller.AwaitEnd().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(caller.AwaitEnd().message()), HasSubstr("was not ready after"));
  control_->ReleaseCompiles();
}

TEST_F(InferenceTest, CancellationsRaceRunsWithoutHarm) {
  Serve("m", ScaleModel({2}));
  for (int i = 0; i < 200; ++i) {
    // Held apart from its sink, so that a late cancellation finds it.
    struct Sink final : InferenceSink {
      absl::Status Answer(inference::ModelInferResponse*) override { return absl::OkStatus(); }
      void Release() override {}
      void Done(const absl::Status& status) override {
        MutexLock lock(mu);
        ends.push_back(status.code());
        cv.NotifyAll();
      }
      Mutex mu;
      CondVar cv;
      std::vector<absl::StatusCode> ends ABSL_GUARDED_BY(mu);
    } sink;
    Inference inference(*core_, {}, &sink);
    *inference.request() = FloatRequest("m", {1});
    std::thread cancel([&] { inference.Cancel(); });
    inference.Begin({});
    cancel.join();
    MutexLock lock(sink.mu);
    while (sink.ends.empty()) sink.cv.Wait(lock);
    ASSERT_EQ(sink.ends.size(), 1u);
    EXPECT_THAT(sink.ends[0],
                ::testing::AnyOf(absl::StatusCode::kOk, absl::StatusCode::kCancelled));
  }
}

}  // namespace
}  // namespace athanor
