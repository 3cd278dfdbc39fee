#include "server/calls/inference.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// An object in shared memory whose next opening for writing, as the server's for each read, can be
// held up.
class HeldObject {
 public:
  explicit HeldObject(absl::string_view bytes) {
    const int fd = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size())) << key_;
    close(fd);
    lease_ = shm_open(key_.c_str(), O_RDONLY, 0);
  }
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  ~HeldObject() {
    close(lease_);
    shm_unlink(key_.c_str());
  }

  const std::string& key() const { return key_; }
  void Hold() const {
    EXPECT_EQ(fcntl(lease_, F_SETSIG, SIGURG), 0);  // which is ignored; holds for one lease
    EXPECT_EQ(fcntl(lease_, F_SETLEASE, F_RDLCK), 0) << std::strerror(errno);
  }
  // Reports whether it is not held up, or somebody waits to open it.
  bool opening() const { return fcntl(lease_, F_GETLEASE) != F_RDLCK; }
  void LetGo() const { EXPECT_EQ(fcntl(lease_, F_SETLEASE, F_UNLCK), 0); }

 private:
  const std::string key_ = absl::StrCat("/athanor-test-", getpid(), "-held");
  int lease_ = -1;
};

class InferenceTest : public CoreTest {
 protected:
  void SetUp() override {
    options_.shared_memory = "athanor-test-*";
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

// The backend estimates a millisecond for every run.
TEST_F(InferenceTest, ARunThatIsExpectedToBeLongGoesToARunner) {
  for (const int64_t most : {999, 1000}) {
    core_.reset();
    options_.inline_us = most;
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
    Serve(absl::StrCat("m", most), ScaleModel({1, -2}));
    Caller caller(*core_, FloatRequest(absl::StrCat("m", most), {3, 4}));
    caller.inference().Begin({.runs_here = true});
    ASSERT_TRUE(caller.AwaitEnd().ok());
    EXPECT_EQ(caller.thread == std::this_thread::get_id(), most == 1000) << most;
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

// Its input is read between the version's being found and its plan's being taken.
TEST_F(InferenceTest, OneWhoseVersionIsReplacedIsAnsweredByTheNext) {
  const float x[] = {3, 4};
  const HeldObject object({reinterpret_cast<const char*>(x), sizeof(x)});
  const SharedUser user{.owner = "", .local = true};
  ASSERT_TRUE(core_->regions().Register(user, {"r", object.key(), 0, sizeof(x)}).ok());
  const auto ask = [&](const std::string& name, const std::string& taps) {
    inference::ModelInferRequest request = FloatRequest(name, {0, 0});
    request.clear_raw_input_contents();
    auto& parameters = *request.mutable_inputs(0)->mutable_parameters();
    parameters["shared_memory_region"].set_string_param("r");
    parameters["shared_memory_byte_size"].set_int64_param(sizeof(x));
    if (!taps.empty()) (*request.mutable_parameters())["taps"].set_string_param(taps);
    auto caller =
        std::make_unique<Caller>(*core_, std::move(request), InferenceCaller{.shared = user});
    object.Hold();
    std::thread begins([&] { caller->inference().Begin({}); });
    while (!object.opening() && !caller->ended()) std::this_thread::yield();
    EXPECT_FALSE(caller->ended());
    EXPECT_TRUE(core_->registry().Delete(name, "1").ok());
    object.LetGo();
    begins.join();
    return caller;
  };
  for (const std::string taps : {"", "hidden"}) {
    const std::string name = "m" + taps;
    Serve(name, ChainModel({1, 1}));
    Serve(name, ChainModel({10, 20}));
    ASSERT_TRUE(core_->registry().publisher().Rollback(name, "1").ok());
    const auto caller = ask(name, taps);
    ASSERT_TRUE(caller->AwaitEnd().ok()) << caller->AwaitEnd();
    EXPECT_EQ(caller->reply().model_version(), "2");
    EXPECT_THAT(caller->values(), ElementsAre(60, 160));
    EXPECT_EQ(caller->reply().outputs_size(), taps.empty() ? 1 : 2);
  }
  Serve("only", ChainModel({1, 1}));
  EXPECT_EQ(ask("only", "hidden")->AwaitEnd().code(), absl::StatusCode::kNotFound);
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
