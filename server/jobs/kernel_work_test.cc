#include "server/jobs/kernel_work.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/idle_backend_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Says what it compiled and checked, in order; may refuse a task by its name.
class Backend : public IdleBackend {
 public:
  explicit Backend(std::function<absl::Status(const std::string&)> verdict = {})
      : verdict_(std::move(verdict)) {}

  absl::StatusOr<KernelObject> CompileKernel(const v1::Plan& plan, int index) override {
    const absl::Status status = Do("compile " + plan.kernels(index).name());
    if (!status.ok()) return status;
    return KernelObject{"object of " + plan.kernels(index).name(), false};
  }
  absl::Status CheckKernel(const v1::Plan& plan, const internal::KernelCheck& check,
                           absl::Span<const KernelObject> objects) override {
    for (const v1::Kernel& kernel : check.request().plan().kernels()) {
      for (int i = 0; i < plan.kernels_size(); ++i) {
        if (plan.kernels(i).source_hash() != kernel.source_hash()) continue;
        EXPECT_EQ(objects[i].object, "object of " + plan.kernels(i).name());
        break;
      }
    }
    return Do("check " + plan.kernels(check.kernel()).name());
  }

  std::vector<std::string> done;

 private:
  absl::Status Do(std::string what) {
    done.push_back(what);
    return verdict_ ? verdict_(what) : absl::OkStatus();
  }

  const std::function<absl::Status(const std::string&)> verdict_;
};

// A plan of kernels k0, k1, ... with sources of these lengths, each with a check that runs it and
// the kernel before it.
internal::LowerReply Lowered(const std::vector<int>& lengths) {
  internal::LowerReply lowered;
  for (size_t i = 0; i < lengths.size(); ++i) {
    v1::Kernel* kernel = lowered.mutable_plan()->add_kernels();
    kernel->set_name(absl::StrCat("k", i));
    kernel->set_source(std::string(lengths[i], 'x'));
    kernel->set_source_hash(absl::StrCat("hash", i));
    internal::KernelCheck& check = *lowered.add_checks();
    check.set_kernel(static_cast<uint32_t>(i));
    *check.mutable_request()->mutable_plan()->add_kernels() = *kernel;
    if (i > 0) {
      *check.mutable_request()->mutable_plan()->add_kernels() =
          lowered.plan().kernels(static_cast<int>(i) - 1);
    }
  }
  return lowered;
}

TEST(KernelWorkTest, OneWorkerCompilesTheLongestFirstAndThenChecks) {
  KernelWork work(Lowered({2, 3, 2}), NoCalls());
  Backend backend;
  ASSERT_TRUE(work.Finish(backend).ok());
  EXPECT_THAT(backend.done, ElementsAre("compile k1", "compile k0", "compile k2", "check k0",
                                        "check k1", "check k2"));
  EXPECT_FALSE(work.HasTask());
  const std::vector<KernelObject> objects = work.TakeObjects();
  ASSERT_EQ(objects.size(), 3u);
  EXPECT_EQ(objects[2].object, "object of k2");
}

TEST(KernelWorkTest, APlanWithoutKernelsIsDone) {
  KernelWork work({}, NoCalls());
  Backend backend;
  EXPECT_FALSE(work.HasTask());
  EXPECT_TRUE(work.Finish(backend).ok());
  EXPECT_THAT(work.TakeObjects(), IsEmpty());
}

TEST(KernelWorkTest, AnErrorIsTheWorksAndNothingBeginsAfterIt) {
  KernelWork work(Lowered({1, 2, 3}), NoCalls());
  Backend backend([](const std::string& what) {
    return what == "compile k1" ? absl::DataLossError("k1 is wrong") : absl::OkStatus();
  });
  EXPECT_EQ(work.Finish(backend), absl::DataLossError("k1 is wrong"));
  EXPECT_THAT(backend.done, ElementsAre("compile k2", "compile k1"));
  EXPECT_FALSE(work.HasTask());
  work.DoTask(backend);
  EXPECT_EQ(backend.done.size(), 2u);
}

TEST(KernelWorkTest, StopsBeforeATaskWhenItIsAskedTo) {
  KernelWork::Calls calls = NoCalls();
  int asked = 0;
  calls.stopped = [&] { return ++asked > 2 ? absl::AbortedError("gives way") : absl::OkStatus(); };
  KernelWork work(Lowered({1, 1, 1}), calls);
  Backend backend;
  EXPECT_EQ(work.Finish(backend), absl::AbortedError("gives way"));
  EXPECT_EQ(backend.done.size(), 2u);
}

// A check must not begin while another worker compiles a kernel that it runs.
TEST(KernelWorkTest, AHelperHasATaskOnlyWhereOneCanBegin) {
  KernelWork work(Lowered({1}), NoCalls());
  Backend helper, owner([&](const std::string& what) {
    if (what == "compile k0") {
      EXPECT_FALSE(work.HasTask()) << "its check waits for it";
      work.DoTask(helper);
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(work.Finish(owner).ok());
  EXPECT_THAT(helper.done, IsEmpty());
  EXPECT_THAT(owner.done, ElementsAre("compile k0", "check k0"));
}

TEST(KernelWorkTest, ManyWorkersDoEachTaskOnce) {
  std::vector<int> lengths;
  for (int i = 0; i < 100; ++i) lengths.push_back(i % 7);
  KernelWork::Calls calls = NoCalls();
  std::atomic<int> compiled = 0, changed = 0;
  calls.compiled = [&](int, const KernelObject&) { ++compiled; };
  calls.changed = [&] { ++changed; };
  KernelWork work(Lowered(lengths), calls);
  std::atomic<bool> finished = false;
  std::vector<Backend> backends(4);
  std::vector<std::thread> helpers;
  for (Backend& backend : backends) {
    helpers.emplace_back([&] {
      while (!finished) work.DoTask(backend);
    });
  }
  Backend owner;
  ASSERT_TRUE(work.Finish(owner).ok());
  finished = true;
  for (std::thread& helper : helpers) helper.join();
  std::vector<std::string> done = owner.done;
  for (const Backend& backend : backends) {
    done.insert(done.end(), backend.done.begin(), backend.done.end());
  }
  EXPECT_EQ(done.size(), 200u);
  std::sort(done.begin(), done.end());
  EXPECT_EQ(std::unique(done.begin(), done.end()), done.end());
  EXPECT_EQ(compiled, 100);
  EXPECT_EQ(changed, 200);
  EXPECT_EQ(work.TakeObjects()[99].object, "object of k99");
}

// The helper may have been interrupted, or have lost its child.
TEST(KernelWorkTest, WhatFailsAtAHelperIsDoneAgainByTheOwner) {
  KernelWork work(Lowered({1, 1}), NoCalls());
  Backend helper([](const std::string&) { return absl::UnavailableError("no child"); });
  work.DoTask(helper);
  EXPECT_THAT(helper.done, ElementsAre("compile k0"));
  Backend owner;
  EXPECT_TRUE(work.Finish(owner).ok());
  EXPECT_THAT(owner.done, ElementsAre("compile k0", "compile k1", "check k0", "check k1"));
}

TEST(KernelWorkTest, FinishWaitsForWhatAHelperDoes) {
  KernelWork work(Lowered({1, 1}), NoCalls());
  std::atomic<bool> helps = false, go_on = false;
  Backend helper([&](const std::string&) {
    helps = true;
    while (!go_on) std::this_thread::yield();
    return absl::ResourceExhaustedError("no memory");
  });
  std::thread helping([&] { work.DoTask(helper); });
  while (!helps) std::this_thread::yield();
  Backend owner([&](const std::string& what) {
    go_on = true;
    return what == "compile k0" ? absl::DataLossError("wrong") : absl::OkStatus();
  });
  EXPECT_EQ(work.Finish(owner), absl::DataLossError("wrong"));
  helping.join();
  EXPECT_THAT(owner.done, ElementsAre("compile k1", "compile k0"));
}

// A check begins when the kernels that it runs are compiled, whatever else is being compiled.
TEST(KernelWorkTest, ACheckWaitsForItsOwnKernelsAlone) {
  KernelWork work(Lowered({1, 1, 2}), NoCalls());
  std::atomic<bool> helps = false, go_on = false;
  Backend helper([&](const std::string&) {
    helps = true;
    while (!go_on) std::this_thread::yield();
    return absl::OkStatus();
  });
  std::thread helping([&] { work.DoTask(helper); });  // compiles k2
  while (!helps) std::this_thread::yield();
  Backend owner([&](const std::string& what) {
    if (what == "check k1") go_on = true;
    return absl::OkStatus();
  });
  EXPECT_TRUE(work.Finish(owner).ok());
  helping.join();
  EXPECT_THAT(helper.done, ElementsAre("compile k2"));
  EXPECT_THAT(owner.done,
              ElementsAre("compile k0", "compile k1", "check k0", "check k1", "check k2"));
}

// The object of the first of two kernels with one source serves checks of both.
TEST(KernelWorkTest, KernelsOfOneSourceAndOfAnotherPlan) {
  internal::LowerReply lowered = Lowered({1, 1});
  lowered.mutable_plan()->mutable_kernels(1)->set_source_hash("hash0");
  lowered.mutable_checks(1)->mutable_request()->mutable_plan()->mutable_kernels(0)->set_source_hash(
      "of no kernel of the plan");
  KernelWork work(lowered, NoCalls());
  Backend backend;
  EXPECT_TRUE(work.Finish(backend).ok());
  EXPECT_THAT(backend.done, ElementsAre("compile k0", "compile k1", "check k0", "check k1"));
}

}  // namespace
}  // namespace athanor
