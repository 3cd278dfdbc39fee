// Tests the server without gRPC, so that ThreadSanitizer sees every lock: uploads, compile jobs,
// lookups, runs and deletions from several threads at once.
#include <atomic>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "compiler/ir/graph/magnitude.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

// 20 MB of weights are returned; deleting a small model causes no trim.
TEST_F(CoreTest, MemoryOfADeletedModelIsReturned) {
  std::shared_ptr<ModelVersion> small = Store("small", ScaleModel({2}));
  std::shared_ptr<ModelVersion> large =
      Store("large", ScaleModel(std::vector<float>(5 << 20, 1.5f)));
  ASSERT_TRUE(core_->registry().Delete("small", "").ok());
  EXPECT_EQ(core_->memory_return().trims(), 0);
  ASSERT_TRUE(core_->registry().Delete("large", "").ok());
  large.reset();
  // If this never ends, the test fails by its time limit.
  while (core_->memory_return().trims() == 0) std::this_thread::yield();
}

TEST_F(CoreTest, JobsOfDeletedModelsAreForgottenFirst) {
  std::shared_ptr<ModelVersion> kept = Store("kept", ScaleModel({2}));
  const auto first = core_->workers().Start(kept);
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 70; ++i) {
    std::shared_ptr<ModelVersion> passing = Store("passing", ScaleModel({3}));
    const auto job = core_->workers().Start(passing);
    ASSERT_TRUE(job.ok());
    while (!(*job)->finished()) std::this_thread::yield();
    ASSERT_TRUE(core_->registry().Delete("passing", "").ok());
  }
  EXPECT_LT(core_->workers().List("").size(), 65u);
  EXPECT_TRUE(core_->workers().Find((*first)->id()).ok());
}

TEST_F(CoreTest, EverythingAtOnce) {
  std::shared_ptr<ModelVersion> steady = Store("steady", ScaleModel({2}));
  ASSERT_TRUE(core_->workers().Start(steady).ok());
  ASSERT_TRUE(Await(*steady).ok());
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        auto found = core_->registry().Find("steady", "");
        ASSERT_TRUE(found.ok());
        absl::StatusOr<float> y = Run(**found, 3);
        ASSERT_TRUE(y.ok()) << y.status();
        EXPECT_EQ(*y, 6);
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      for (const auto& version : core_->registry().List("")) {
        (void)core_->registry().Describe(*version);
      }
      for (const auto& job : core_->workers().List("")) (void)job->state();
    }
  });
  for (int i = 1; i <= 20; ++i) {
    std::shared_ptr<ModelVersion> version = Store("passing", ScaleModel({static_cast<float>(i)}));
    auto job = core_->workers().Start(version);
    ASSERT_TRUE(job.ok());
    if (i % 4 == 0) core_->workers().Cancel(*job, v1::CompileJob::STOP_CANCELLED);
    const absl::Status ready = Await(*version);
    if (ready.ok()) {
      EXPECT_EQ(Run(*version, 2).value(), 2 * i);
    } else {
      EXPECT_EQ(ready.code(), absl::StatusCode::kFailedPrecondition);
    }
    if (i % 3 == 0) {
      auto deleted = core_->registry().Delete("passing", "");
      ASSERT_TRUE(deleted.ok()) << deleted.status();
      for (const auto& gone : *deleted) core_->workers().CancelFor(*gone);
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// Calls with more sets of taps than there may be tap plans, next to calls without taps, while jobs
// are cancelled and started again, and finally the model is deleted.
TEST_F(CoreTest, TapsOfManyThreads) {
  std::shared_ptr<ModelVersion> version = Store("m", ChainModel({3}));
  ASSERT_TRUE(core_->workers().Start(version).ok());
  ASSERT_TRUE(Await(*version).ok());
  const std::shared_ptr<const ServedPlan> serving = version->plan();
  std::atomic<bool> stop = false;
  std::atomic<int> served = 0;
  auto tap = [&](const std::vector<NodeId>& taps) -> absl::Status {
    auto tapped = core_->workers().Tap(version, taps);
    if (!tapped.ok()) return tapped.status();
    if (absl::Status s = Await((*tapped)->plans.full()); !s.ok()) return s;
    const std::shared_ptr<const ServedPlan> plan = (*tapped)->plans.full().plan();
    for (size_t i = 0; i < taps.size(); ++i) {
      absl::StatusOr<float> value = Run(plan, 2, static_cast<int>(1 + i));
      if (!value.ok()) return value.status();
      EXPECT_EQ(*value, std::vector<float>({2, 3, 6, 12})[taps[i]]);
    }
    ++served;
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<std::vector<NodeId>> sets = {{0}, {1}, {2}, {3}, {0, 1}, {2, 3}};
      for (int i = t; !stop; ++i) {
        const absl::Status s = tap(sets[i % sets.size()]);
        // All tap plans are in use, the job was cancelled, or the model was deleted.
        ASSERT_TRUE(s.ok() || absl::IsResourceExhausted(s) || absl::IsFailedPrecondition(s) ||
                    (stop && absl::IsNotFound(s)))
            << s;
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      EXPECT_EQ(version->plan(), serving);
      EXPECT_EQ(Run(*version, 2).value(), 12);
      EXPECT_EQ(core_->registry().Describe(*version).state(), v1::Model::READY);
    }
  });
  while (served < 60) {
    for (const auto& job : core_->workers().List("m")) {
      (void)job->state();
      if (job->tapped() == nullptr) continue;
      core_->workers().Cancel(job, v1::CompileJob::STOP_CANCELLED);
      break;
    }
    version->taps().ForgetFailed();
  }
  stop = true;
  threads.back().join();
  threads.pop_back();
  auto deleted = core_->registry().Delete("m", "");
  ASSERT_TRUE(deleted.ok());
  core_->workers().CancelFor(*version);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tap({1}).code(), absl::StatusCode::kNotFound);
}

TEST_F(CoreTest, TwoUploadsOfTheSameTensorAtOnce) {
  const TestModel model = ScaleModel({4});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { Store("m" + std::to_string(t), model); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(core_->ledger().used(HeldKind::kParameters), 4);
  for (int t = 0; t < 4; ++t) {
    EXPECT_TRUE(core_->registry().Delete("m" + std::to_string(t), "").ok());
    EXPECT_EQ(core_->ledger().used(HeldKind::kParameters), t < 3 ? 4 : 0);
  }
}

// Magnitudes of parameters are found when they are stored, are part of the compiled graph, and are
// deleted with the version.
TEST_F(CoreTest, AVersionKnowsTheMagnitudesOfItsParameters) {
  const auto magnitude = [](const ModelVersion& version) {
    return MagnitudeOf(version.graph().node(version.graph().ParameterIds()[0]));
  };
  const auto small = Store("m", ScaleModel({4})), large = Store("m", ScaleModel({0x1p30F}));
  const auto infinite = Store("m", ScaleModel({std::numeric_limits<float>::infinity()}));
  const auto again = Store("n", ScaleModel({5}));
  EXPECT_EQ(magnitude(*small), 20);
  EXPECT_EQ(magnitude(*large), 60);
  EXPECT_EQ(magnitude(*infinite), std::nullopt);
  EXPECT_EQ(again->graph_hash(), small->graph_hash());
  EXPECT_NE(small->graph_hash(), large->graph_hash());
  EXPECT_NE(small->graph_hash(), infinite->graph_hash());
  const std::vector<std::string> hashes = {small->graph_hash(), large->graph_hash(),
                                           infinite->graph_hash()};
  // After a restart they are known without reading the contents; if the database lost them, they
  // are found again.
  for (const bool forget : {false, true}) {
    if (forget) {
      ASSERT_TRUE(core_->registry().db().Execute("DELETE FROM tensor_magnitudes").ok());
    }
    core_.reset();
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
    EXPECT_EQ(core_->registry().db().ReadMagnitudes()->size(), 4u);
    for (int v = 1; v <= 3; ++v) {
      const auto version = core_->registry().Find("m", std::to_string(v)).value();
      EXPECT_EQ(version->graph_hash(), hashes[v - 1]) << v << forget;
    }
  }
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  EXPECT_EQ(core_->registry().db().ReadMagnitudes()->size(), 1u);
}

// A tensor that an upload refers to stays even if its last model is deleted.
TEST_F(CoreTest, AnUploadPinsTheTensorsItReliesOn) {
  const TestModel model = ScaleModel({4});
  Store("first", model);
  const auto messages =
      ProvedMessages("second", model, core_->registry().challenges().New(Challenges::Clock::now()));
  Upload upload(&core_->registry(), &core_->ledger(), core_->options());
  ASSERT_TRUE(upload.Take(messages.front()).ok());
  ASSERT_TRUE(core_->registry().Delete("first", "").ok());
  ASSERT_TRUE(upload.Take(messages.back()).ok());
  ASSERT_TRUE(core_->workers().Start(upload.version()).ok());
  ASSERT_TRUE(Await(*upload.version()).ok());
  EXPECT_EQ(Run(*upload.version(), 2).value(), 8);
}

TEST_F(CoreTest, AnAbandonedUploadGivesEverythingBack) {
  const TestModel model = ScaleModel({4, 5});
  {
    Upload upload(&core_->registry(), &core_->ledger(), core_->options());
    const auto messages = UploadMessages("m", model, 4);
    ASSERT_TRUE(upload.Take(messages[0]).ok());
    ASSERT_TRUE(upload.Take(messages[1]).ok());
    EXPECT_EQ(core_->ledger().used(HeldKind::kParameters), 8);
    EXPECT_THAT(std::string(upload.CutOff().message()), HasSubstr("offset 4 of 8"));
  }
  EXPECT_EQ(core_->ledger().used(), 0);
  EXPECT_EQ(core_->registry().TensorBytes(model.tensors.begin()->first), -1);
}

}  // namespace
}  // namespace athanor
