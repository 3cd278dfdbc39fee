// Trying kernels in a child: what streams back, and what each loss costs.
#include <signal.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
using Outcome = internal::TryOutcome;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kForEver[] = "for (;;) *(volatile float*)y = 1;";
constexpr char kSlow[] =
    "volatile float z = 0; for (long i = 0; i < 100 * (end - begin); ++i) z = 1;";

class TunerTrialsTest : public TunerProcessTest {
 protected:
  void SetUp() override {
    TunerProcessTest::SetUp();
    target_.set_threads(1);
    *request_.mutable_target() = target_;
  }

  internal::TriedKernel* Add(const std::string& body) { return AddSource(Kernel(body)); }
  internal::TriedKernel* AddSource(const std::string& source) {
    internal::TriedKernel* tried = request_.add_kernels();
    internal::SearchKernel* kernel = tried->mutable_kernel();
    *kernel->mutable_check() = DoublingCheck("");
    kernel->mutable_check()->clear_objects();
    kernel->mutable_check()->mutable_plan()->mutable_kernels(0)->set_source(source);
    kernel->set_key(absl::StrCat("k", request_.kernels_size()));
    kernel->set_task(static_cast<uint32_t>(request_.kernels_size()));
    for (int64_t n : {37, 1000}) kernel->add_sizes()->add_values(n);
    tried->add_objects("");
    return tried;
  }

  // Makes all kernels of one task, whose best one is compiled of `body` and takes so many seconds.
  void RaceAgainst(const std::string& body, double seconds) {
    for (internal::TriedKernel& tried : *request_.mutable_kernels()) {
      internal::SearchKernel* kernel = tried.mutable_kernel();
      kernel->set_task(1);
      *kernel->mutable_best()->mutable_plan() = kernel->check().plan();
      kernel->mutable_best()->add_objects(tuner_->Compile(Kernel(body), target_).value());
      for (int i = 0; i < kernel->sizes_size(); ++i) kernel->add_best_seconds(seconds);
    }
  }

  absl::Status Try() {
    parts_.clear();
    return tuner_->Try(request_, [this](Outcome part) { parts_.push_back(std::move(part)); });
  }
  // Returns what the parts say of a kernel, in their order: "objects", "times", "end".
  std::vector<std::string> Said(uint32_t kernel) const {
    std::vector<std::string> said;
    for (const Outcome& part : parts_) {
      if (part.kernel() != kernel) continue;
      said.push_back(part.ended()              ? "end"
                     : part.checked()          ? "right"
                     : !part.objects().empty() ? "objects"
                                               : "times");
    }
    return said;
  }
  // Returns what the time of all parts of a kernel was spent on.
  std::vector<std::string> SpentOn(uint32_t kernel) const {
    std::vector<std::string> on;
    for (const Outcome& part : parts_) {
      if (part.kernel() != kernel) continue;
      for (const v1::SearchTime& time : part.spent()) on.push_back(time.on());
    }
    return on;
  }
  // The part that ends a kernel; its code is -1 where there is none.
  Outcome End(uint32_t kernel) const {
    for (const Outcome& part : parts_) {
      if (part.kernel() == kernel && part.ended()) return part;
    }
    Outcome none;
    none.set_code(-1);
    return none;
  }
  internal::TryRequest request_;
  std::vector<Outcome> parts_;
};

// Twice: what stays in the child from the first time changes nothing.
TEST_F(TunerTrialsTest, AllObjectsComeFirstAndThenVerdictsInOrder) {
  Add("");
  Add("(void)0;");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(Try().ok());
    ASSERT_EQ(parts_.size(), 8u);
    std::vector<uint32_t> kernels;
    for (const Outcome& part : parts_) {
      kernels.push_back(part.kernel());
      EXPECT_EQ(part.code(), 0) << part.message();
    }
    EXPECT_EQ(kernels, (std::vector<uint32_t>{0, 1, 0, 0, 0, 1, 1, 1}));
    EXPECT_THAT(parts_[0].objects(0), HasSubstr("ELF"));
    for (uint32_t kernel : {0u, 1u}) {
      EXPECT_EQ(Said(kernel), (std::vector<std::string>{"objects", "times", "right", "end"}));
      EXPECT_EQ(SpentOn(kernel), (std::vector<std::string>{"compile", "measure", "check"}));
      ASSERT_EQ(End(kernel).times_size(), 2);
      EXPECT_GT(End(kernel).times(1).seconds(), 0);
      EXPECT_TRUE(End(kernel).checked());
    }
  }
}

TEST_F(TunerTrialsTest, AnObjectThatIsGivenIsNotCompiledOrSentBack) {
  Add("")->set_objects(0, tuner_->Compile(Kernel(""), target_).value());
  ASSERT_TRUE(Try().ok());
  EXPECT_EQ(Said(0), (std::vector<std::string>{"times", "right", "end"}));
  EXPECT_TRUE(End(0).checked());
  // Known to be right, it is not checked again.
  request_.mutable_kernels(0)->set_passed(true);
  ASSERT_TRUE(Try().ok());
  EXPECT_EQ(Said(0), std::vector<std::string>{"end"});
  EXPECT_EQ(SpentOn(0), std::vector<std::string>{"measure"});
  EXPECT_TRUE(End(0).checked());
}

// Each of these costs itself alone, also where all race together.
TEST_F(TunerTrialsTest, EveryFailureNamesItsStage) {
  const struct {
    std::string source;
    Outcome::Stage stage;
    Code code;
  } rows[] = {{"no C", Outcome::COMPILE, Code::kInvalidArgument},
              {Kernel("__builtin_trap();"), Outcome::MEASURE, Code::kInternal},
              {Kernel("if (begin == 0) { y[0] = 1e9f; return; }"), Outcome::CHECK, Code::kDataLoss},
              {Kernel("*(volatile float*)8 = x[0];"), Outcome::MEASURE, Code::kInternal}};
  for (const auto& row : rows) AddSource(row.source);
  Add("");
  for (bool race : {false, true}) {
    if (race) RaceAgainst(kSlow, 1);
    ASSERT_TRUE(Try().ok());
    for (size_t i = 0; i < std::size(rows); ++i) {
      const Outcome end = End(static_cast<uint32_t>(i));
      EXPECT_EQ(end.code(), static_cast<int>(rows[i].code)) << i << ": " << end.message();
      EXPECT_EQ(end.failed_at(), rows[i].stage) << i;
      EXPECT_FALSE(end.checked());
    }
    EXPECT_EQ(End(std::size(rows)).code(), 0);
    EXPECT_TRUE(End(std::size(rows)).checked());
    EXPECT_EQ(tuner_->starts(), 1);
  }
}

// Checks and measures again the fastest of three that race; the others cannot win.
TEST_F(TunerTrialsTest, OnlyWhatMayServeIsCheckedAndMeasuredAgain) {
  Add(kSlow);
  Add("");
  Add(absl::StrCat(kSlow, " z = 0;"));
  RaceAgainst(kSlow, 0.5);
  ASSERT_TRUE(Try().ok());
  const Outcome fast = End(1);
  EXPECT_TRUE(fast.checked());
  EXPECT_EQ(SpentOn(1), (std::vector<std::string>{"compile", "measure", "check", "measure"}));
  // Times are the best's as it was known, by the ratio, and what it surely keeps within: not those
  // of now.
  double sum = 0, most = 0;
  for (const internal::SizeTimes& size : fast.times()) {
    EXPECT_LT(size.seconds(), 0.5);
    EXPECT_GT(size.seconds(), 0.5 / 1000);
    EXPECT_GE(size.seconds(), 0.5 * size.ratio());
    sum += size.seconds();
    most += 0.5 * size.ratio_high();
  }
  EXPECT_LE(sum, most * (1 + 1e-6));
  for (uint32_t kernel : {0u, 2u}) {
    const Outcome slow = End(kernel);
    EXPECT_FALSE(slow.checked());
    EXPECT_EQ(SpentOn(kernel), (std::vector<std::string>{"compile", "measure"}));
    for (int size = 0; size < 2; ++size) {
      EXPECT_LE(slow.times(size).rounds(), 15);  // those of a race
      EXPECT_LT(fast.times(size).seconds(), slow.times(size).seconds());
    }
  }
}

// Never says without a check that a kernel beats the best.
TEST_F(TunerTrialsTest, NoiseMakesNoBest) {
  for (int i = 0; i < 4; ++i) Add(absl::StrCat(kSlow, " z = ", i, ";"));
  RaceAgainst(kSlow, 0.5);
  ASSERT_TRUE(Try().ok());
  for (uint32_t kernel = 0; kernel < 4; ++kernel) {
    const Outcome end = End(kernel);
    ASSERT_EQ(end.code(), 0) << end.message();
    const double sum = end.times(0).seconds() + end.times(1).seconds();
    EXPECT_TRUE(end.checked() || sum >= 2 * 0.5 * (1 - 1e-9)) << sum;
  }
}

// Without a best, the first takes its place, and all are checked: each may become the best.
TEST_F(TunerTrialsTest, KernelsOfANewTaskRaceEachOther) {
  Add(kSlow);
  Add("");
  for (internal::TriedKernel& tried : *request_.mutable_kernels()) {
    tried.mutable_kernel()->set_task(7);
  }
  ASSERT_TRUE(Try().ok());
  EXPECT_TRUE(End(0).checked());
  EXPECT_TRUE(End(1).checked());
  for (int size = 0; size < 2; ++size) {
    EXPECT_LT(End(1).times(size).seconds(), End(0).times(size).seconds());
  }
  // A wrong kernel costs itself.
  Add("if (begin == 0) { y[0] = 1e9f; return; }")->mutable_kernel()->set_task(7);
  ASSERT_TRUE(Try().ok());
  EXPECT_EQ(End(2).failed_at(), Outcome::CHECK);
  EXPECT_TRUE(End(1).checked());
  EXPECT_TRUE(End(0).checked());
}

TEST_F(TunerTrialsTest, ABestWithoutItsObjectsOrTimesIsRefused) {
  Add("");
  RaceAgainst("", 1);
  request_.mutable_kernels(0)->mutable_kernel()->mutable_best()->clear_objects();
  EXPECT_EQ(Try().code(), Code::kInvalidArgument);
  request_.mutable_kernels(0)->mutable_kernel()->clear_best();
  EXPECT_EQ(Try().code(), Code::kInvalidArgument);
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(TunerTrialsTest, AfterItsTimeNoFurtherKernelIsBegun) {
  for (int i = 0; i < 3; ++i) Add("");
  request_.set_enough_us(1);
  ASSERT_TRUE(Try().ok());
  EXPECT_EQ(Said(0), (std::vector<std::string>{"objects", "times", "right", "end"}));
  EXPECT_EQ(End(0).code(), 0) << End(0).message();
  for (uint32_t kernel : {1u, 2u}) {
    // The second process may have compiled it by then.
    EXPECT_EQ(Said(kernel).back(), "end");
    EXPECT_FALSE(absl::c_linear_search(Said(kernel), "times"));
    EXPECT_EQ(End(kernel).code(), static_cast<int>(Code::kAborted));
  }
}

// A kernel that packs weights is the same for many schedules.
TEST_F(TunerTrialsTest, AKernelThatSeveralHaveIsCompiledOnce) {
  const std::string object = tuner_->Compile(Kernel("", "int one;"), target_).value();
  // Not what Clang makes of the source, so that it shows where the second object comes from.
  Add("")->set_objects(0, object);
  Add("");
  ASSERT_TRUE(Try().ok());
  EXPECT_EQ(Said(1), (std::vector<std::string>{"objects", "times", "right", "end"}));
  EXPECT_EQ(parts_[0].objects(0), object);
}

TEST_F(TunerTrialsTest, ALostChildLeavesWhatItSaid) {
  Add("");
  Add("for (int i = 0; i < 1000000; ++i) *(volatile float*)y = 1;");
  for (const char* at : {"times", "right", "end"}) {
    parts_.clear();
    const absl::Status lost = tuner_->Try(request_, [&](Outcome part) {
      parts_.push_back(std::move(part));
      if (Said(0).back() == at) kill(tuner_->pid(), SIGKILL);
    });
    EXPECT_EQ(lost.code(), Code::kUnavailable) << lost;
    EXPECT_THAT(std::string(lost.message()), HasSubstr("a kernel: the tuner was ended by"));
    EXPECT_EQ(Said(1), std::vector<std::string>{"objects"});
  }
  EXPECT_TRUE(End(0).checked());
  ASSERT_TRUE(Try().ok());
  EXPECT_EQ(End(1).code(), 0) << End(1).message();
}

TEST_F(TunerTrialsTest, AnInterruptEndsItInTheMiddle) {
  Add("");
  Add(kForEver);
  std::thread interrupter;
  parts_.clear();
  const absl::Status status = tuner_->Try(request_, [&](Outcome part) {
    if (part.ended()) interrupter = std::thread([this] { tuner_->Interrupt(); });
    parts_.push_back(std::move(part));
  });
  ASSERT_TRUE(interrupter.joinable());
  interrupter.join();
  EXPECT_EQ(status.code(), Code::kCancelled) << status;
  EXPECT_TRUE(End(0).checked());
  tuner_->ClearInterrupt();
}

TEST_F(TunerTrialsTest, TheEndOfItsTimeEndsItInTheMiddle) {
  Add("");
  Add(kForEver);
  Add("");
  ASSERT_TRUE(tuner_->Target().ok());
  const TunerProcess::Background background(tuner_.get(), Clock::now() + milliseconds(1500));
  const absl::Status status = Try();
  EXPECT_EQ(status.code(), Code::kAborted) << status;
  EXPECT_EQ(End(2).code(), -1) << "not begun";
}

TEST_F(TunerTrialsTest, ARequestThatDoesNotFitIsRefused) {
  Add("")->clear_objects();
  const absl::Status status = Try();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 objects for 1 kernels"));
  EXPECT_EQ(tuner_->starts(), 1);
}

}  // namespace
}  // namespace athanor
