// Tests the model repository with the evaluator in place of the compiler.
#include "server/repository/repository.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/repository/repository_testing.h"
#include "server/testing/onnx_testing.h"
#include "server/testing/waiters_testing.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBounds[] =
    "parameters { key: \"athanor.dims\" value { string_value: \"b=1:64\" } }";

TEST_F(RepositoryTest, LoadsAtStartWhatThePolicyWants) {
  WriteScale("latest/1", 3);
  WriteScale("latest/4", 5);
  WriteScale("all/1", 3);
  WriteScale("all/2", 7);
  Write("all/config.pbtxt", "version_policy { all { } }");
  Write("onnx/config.pbtxt", kBounds);
  Write("onnx/1/model.onnx", OnnxModelOf({{"w", {1, 2, 3}}}).model.SerializeAsString());
  Begin();
  EXPECT_THAT(Index(), ElementsAre("all/1 READY", "all/2 READY", "latest/4 READY", "onnx/1 READY"));
  EXPECT_EQ(Answer("latest"), 10);
  EXPECT_EQ(Answer("latest", "4"), 10);
  EXPECT_EQ(Answer("all", "1"), 6);
  EXPECT_EQ(Answer("all"), 14);
}

TEST_F(RepositoryTest, ARestartFindsEverythingStored) {
  WriteScale("m/3", 5);
  Begin();
  const int64_t created = Find("m")->row().created_us;
  Begin();
  EXPECT_EQ(Find("m")->row().created_us, created);
  // The same bytes with other times are the same version too.
  WriteScale("m/3", 5);
  Begin();
  EXPECT_EQ(Find("m", "3")->row().created_us, created);
  EXPECT_EQ(Answer("m"), 10);
  Remove("m");
  Begin();  // which waits for the repository's versions, not for others that are stored
  EXPECT_TRUE(Await(*Find("m")).ok());
  EXPECT_THAT(Index(), ElementsAre("m/3 READY"));  // an empty folder may be one that is not mounted
  WriteScale("other/1", 2);
  Begin();
  EXPECT_THAT(Index(), ElementsAre("other/1 READY"));
}

TEST_F(RepositoryTest, BrokenModelsCostNothingButThemselves) {
  WriteScale("good/1", 3);
  Write("cut/1/model.athanor", BundleOf(ScaleModel({1, 2, 3})).substr(0, 120));
  std::string flipped = BundleOf(ScaleModel({1, 2, 3}));
  flipped.back() ^= 1;
  Write("flipped/1/model.athanor", flipped);
  Write("garbage/1/model.onnx", "no protobuf at all");
  Write("empty/1/README", "");
  Write("nothing/config.pbtxt", "");
  Write("typo/config.pbtxt", "max_batchsize: 8");
  WriteScale("typo/1", 1);
  WriteScale("renamed/1", 1);
  Write("renamed/config.pbtxt", "name: \"good\"");
  WriteScale("two/1", 1);
  Write("two/1/model.onnx", "x");
  WriteScale("other/1", 1);
  Write("other/config.pbtxt", "backend: \"python\"");
  WriteScale("fits/1", 1);
  Write("fits/config.pbtxt", "input { name: \"z\" data_type: TYPE_FP32 dims: [ 1 ] }");
  WriteScale("bad\nname/1", 1);
  WriteScale("bad\xff/1", 1);
  Write("open/1/model.onnx", OnnxModelOf({}).model.SerializeAsString());
  WriteScale("odd/01", 1);
  WriteScale("odd/x", 1);
  Begin();
  EXPECT_EQ(Answer("good"), 6);
  EXPECT_EQ(core_->registry().versions().count(), 1);
  const std::map<std::string, std::string> reasons = {
      {"cut", "ends inside"},
      {"flipped", "SHA-256"},
      {"empty", "there is no model.onnx"},
      {"nothing", "no folder of a version"},
      {"typo", "max_batchsize"},
      {"renamed", "its folder is \"renamed\""},
      {"two", "there are model.onnx and model.athanor"},
      {"other", "\"python\" is not served here"},
      {"fits", "input \"z\": the model has none of this name"},
      {"bad\nname", "control character"},
      {"bad\\xff", "not UTF-8"},
      {"open", "b=1:64"},
      {"odd", "no folder of a version"}};
  for (const auto& [name, reason] : reasons) EXPECT_THAT(ReasonOf(name), HasSubstr(reason)) << name;
  EXPECT_NE(ReasonOf("garbage"), "it is not unavailable");
  EXPECT_EQ(core_->repository()->unavailable().size(), reasons.size() + 1);
}

TEST_F(RepositoryTest, APollLoadsUnloadsAndReplaces) {
  WriteScale("m/1", 3);
  Begin("poll");
  EXPECT_EQ(Answer("m"), 6);
  WriteScale("n/1", 7);
  Until([&] { return Index() == std::vector<std::string>{"m/1 READY", "n/1 READY"}; });
  WriteScale("m/2", 5);  // the first goes once this one serves
  Until([&] { return Index() == std::vector<std::string>{"m/2 READY", "n/1 READY"}; });
  EXPECT_EQ(Answer("m"), 10);
  const std::shared_ptr<ModelVersion> before = Find("m");
  WriteScale("m/2", 11);
  Until([&] { return Find("m") != before && Find("m")->plan() != nullptr; });
  EXPECT_EQ(Answer("m"), 22);
  EXPECT_EQ(before->plan(), nullptr);
  Remove("n");
  Until([&] { return Index() == std::vector<std::string>{"m/2 READY"}; });
  EXPECT_TRUE(core_->repository()->unavailable().empty());
}

TEST_F(RepositoryTest, NoMoreIsAskedThanAFewHundredLoads) {
  constexpr int kMost = 256, kRefused = 3;
  WriteScale("m/1", 3);
  Begin("explicit");
  Repository& repository = *core_->repository();
  std::atomic<int> done = 0, refused = 0;
  const auto answer = [&](const absl::Status& status) {
    if (absl::IsResourceExhausted(status)) ++refused;
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    ++done;
  };
  control_->HoldCompiles();
  for (int i = 0; i < kMost; ++i) repository.Load("m", answer);
  EXPECT_EQ(done, 0);
  for (int i = 0; i < kRefused; ++i) {
    if (i % 2 == 0) repository.Unload("m", answer);
    if (i % 2 == 1) repository.Load("m", answer);
    EXPECT_EQ(refused, i + 1);
  }
  control_->ReleaseCompiles();
  Until([&] { return done == kMost + kRefused; });
  EXPECT_EQ(refused, kRefused);
  // Each has given its place back, and one that fails does too.
  for (int i = 0; i <= kMost; ++i) {
    ASSERT_EQ(Load("none").code(), absl::StatusCode::kNotFound);
  }
  EXPECT_TRUE(Unload("m").ok());
}

TEST_F(RepositoryTest, WhatIsBrokenTakesNothingAwayAndIsTriedAgain) {
  WriteScale("m/1", 3);
  Begin("poll");
  Write("m/2/model.athanor", "ATHANOR1");
  Until([&] { return ReasonOf("m").find("ends inside") != std::string::npos; });
  EXPECT_EQ(Answer("m"), 6);
  EXPECT_THAT(Index(), ElementsAre("m/1 READY", "m/2 UNAVAILABLE"));
  Write("m/config.pbtxt", "nonsense: 1");
  Until([&] { return ReasonOf("m").find("nonsense") != std::string::npos; });
  EXPECT_EQ(Answer("m"), 6);
  Remove("m/config.pbtxt");
  WriteScale("m/2", 5);
  Until([&] { return Index() == std::vector<std::string>{"m/2 READY"}; });
  // A change in place that is broken leaves what was loaded.
  Write("m/2/model.athanor", "ATHANOR1");
  Until(
      [&] { return ReasonOf("m").find("as it was before its last change") != std::string::npos; });
  EXPECT_EQ(Answer("m", "2"), 10);
}

TEST_F(RepositoryTest, CallsLoadAndUnload) {
  WriteScale("m/1", 3);
  WriteScale("n/1", 7);
  Write("n/2/model.athanor", "ATHANOR1");
  Begin("explicit");
  EXPECT_THAT(Index(), ElementsAre("m/ UNAVAILABLE", "n/ UNAVAILABLE"));
  EXPECT_THAT(ReasonOf("m"), HasSubstr("it is not loaded"));
  ASSERT_TRUE(Load("m").ok());
  EXPECT_EQ(Answer("m"), 6);
  EXPECT_EQ(Load("none").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Load("").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Load("../m").code(), absl::StatusCode::kNotFound);
  const absl::Status broken = Load("n");
  EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("model \"n\", version 2: bundle: ends"));
  WriteScale("m/2", 5);
  ASSERT_TRUE(Load("m").ok());
  EXPECT_THAT(Index(), ElementsAre("m/2 READY", "n/2 UNAVAILABLE"));
  // Changed files do not unload what calls have loaded.
  WriteScale("m/2", 11);
  Begin("explicit");
  EXPECT_EQ(Answer("m"), 10);
  ASSERT_TRUE(Unload("m").ok());
  EXPECT_FALSE(core_->registry().versions().Find("m", "").ok());
  EXPECT_TRUE(Unload("m").ok());
  EXPECT_EQ(Unload("").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Unload("none").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Load("m").ok());
  EXPECT_EQ(Answer("m"), 22);
}

TEST_F(RepositoryTest, AFailedVersionIsCompiledAgainByALoad) {
  WriteScale("m/1", 3);
  Begin("explicit");
  control_->FailCompiles(absl::InternalError("no compiler"));
  EXPECT_THAT(std::string(Load("m").message()), HasSubstr("no compiler"));
  EXPECT_FALSE(Load("m").ok());
  control_->FailCompiles(absl::OkStatus());
  EXPECT_TRUE(Load("m").ok());
  EXPECT_EQ(Answer("m"), 6);
}

TEST_F(RepositoryTest, ALoadTellsOfWhatIsWantedByThen) {
  WriteScale("m/1", 3);
  Begin("explicit");
  control_->FailCompiles(absl::InternalError("no compiler"));
  EXPECT_FALSE(Load("m").ok());
  control_->FailCompiles(absl::OkStatus());
  WriteScale("m/2", 5);
  EXPECT_TRUE(Load("m").ok());  // the first has failed, and is not wanted any more
  EXPECT_THAT(Index(), ElementsAre("m/2 READY"));
  control_->HoldCompiles();
  WriteScale("m/2", 7);
  std::thread first([&] { EXPECT_TRUE(Load("m").ok()); });
  Until([&] { return Find("m")->plan() == nullptr; });
  const std::shared_ptr<ModelVersion> held = Find("m");
  AwaitWaiters(held->serving(), 2);  // the repository and its call
  WriteScale("m/2", 9);
  std::thread second([&] { EXPECT_TRUE(Load("m").ok()); });
  Until([&] { return Find("m") != held; });
  control_->ReleaseCompiles();
  first.join();
  second.join();
  EXPECT_EQ(Answer("m"), 18);
}

TEST_F(RepositoryTest, TheIndexOfUnloadedModelsLooksNow) {
  WriteScale("m/1", 3);
  Begin("explicit");
  WriteScale("n/1", 5);
  EXPECT_THAT(Index(), ElementsAre("m/ UNAVAILABLE", "n/ UNAVAILABLE"));
  Remove("m");
  EXPECT_THAT(Index(), ElementsAre("n/ UNAVAILABLE"));
  Write("n/2/model.athanor", "ATHANOR1");
  EXPECT_FALSE(Load("n").ok());
  EXPECT_THAT(Index(), ElementsAre("n/2 UNAVAILABLE"));
  Remove("n");
  EXPECT_TRUE(Index().empty());
}

TEST_F(RepositoryTest, CallsAreRefusedUnlessControlIsExplicit) {
  WriteScale("m/1", 3);
  Begin("poll");
  EXPECT_EQ(Load("m").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Unload("m").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RepositoryTest, ParametersOfCallsAreRefusedByName) {
  WriteScale("m/1", 3);
  Begin("explicit");
  using Kind = RepositoryCall::Kind;
  const auto refusal = [&](const RepositoryCall& call, Repository* repository) {
    std::string message = "not answered at once";
    AnswerRepositoryCall(repository, call, [&](const absl::Status& status) {
      message = std::string(status.message());
    });
    return message;
  };
  Repository* repository = core_->repository();
  EXPECT_THAT(refusal({Kind::kLoad, "m", {"config"}}, repository), HasSubstr("\"config\""));
  EXPECT_THAT(refusal({Kind::kLoad, "m", {"file:1/model.onnx"}}, repository),
              HasSubstr("what its folder holds"));
  EXPECT_THAT(refusal({Kind::kUnload, "m", {"unload_dependents", "x"}}, repository),
              HasSubstr("there is no parameter \"x\""));
  EXPECT_THAT(refusal({Kind::kUnload, "m", {}}, nullptr), HasSubstr("no --model_repository"));
}

TEST_F(RepositoryTest, UploadsAndTheRepositoryDoNotShareNames) {
  WriteScale("m/1", 3);
  Begin();
  absl::Status status;
  {
    Upload upload(&core_->registry(), &core_->ledger(), core_->options());
    for (const auto& message : UploadMessages("m", ScaleModel({4}))) {
      if (status.ok()) status = upload.Take(message);
    }
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is one of --model_repository"));
  EXPECT_FALSE(core_->registry().CheckUploaded("m").ok());
  Store("uploaded", ScaleModel({4}));
  WriteScale("uploaded/1", 3);
  Begin();
  EXPECT_THAT(ReasonOf("uploaded"), HasSubstr("was uploaded"));
  EXPECT_EQ(Answer("uploaded"), 8);
  // Without the repository, its versions are as good as uploaded ones.
  const std::string folder = std::exchange(options_.model_repository, "");
  Begin();
  EXPECT_TRUE(core_->registry().CheckUploaded("m").ok());
  EXPECT_EQ(Store("m", ScaleModel({4}))->version(), 2);
  // And are once one is uploaded beside them, so that calls may delete them.
  options_.model_repository = folder;
  Begin("poll");
  EXPECT_THAT(ReasonOf("m"), HasSubstr("was uploaded"));
  EXPECT_EQ(Answer("m", "1"), 6);
  ASSERT_TRUE(core_->registry().CheckUploaded("m").ok());
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  Until([&] { return core_->registry().versions().Find("m", "1").ok(); });
  EXPECT_EQ(Answer("m"), 6);
}

TEST_F(RepositoryTest, DimsAndTheBatchComeFromTheConfiguration) {
  Write("m/1/model.onnx", OnnxModelOf({}).model.SerializeAsString());
  Write("m/config.pbtxt",
        "max_batch_size: 8 dynamic_batching { } input { name: \"x\" data_type: TYPE_FP32 dims: [ ] "
        "}");
  Begin();
  const v1::Model model = Find("m")->ToProto(true);
  ASSERT_EQ(model.dims_size(), 1) << ReasonOf("m");
  EXPECT_EQ(model.dims(0).name(), "b");
  EXPECT_EQ(model.dims(0).max(), 8);
  EXPECT_EQ(model.batching().dim(), "b");
  // Another configuration is another version.
  Write("m/config.pbtxt", "input { name: \"x\" data_type: TYPE_FP32 dims: [ 4 ] }");
  Begin();
  EXPECT_TRUE(Find("m")->ToProto(true).dims().empty());
  EXPECT_THAT(Find("m")->ToProto(true).inputs(0).shape(), ElementsAre("4"));
}

TEST_F(RepositoryTest, AFolderThatIsGoneIsNoReasonToUnload) {
  WriteScale("m/1", 3);
  Begin("poll");
  fs::rename(folder_, folder_ + ".away");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(Answer("m"), 6);
  fs::rename(folder_ + ".away", folder_);
  options_.model_repository = folder_ + "/none";
  core_.reset();
  EXPECT_EQ(ServerCore::Create(options_, EvaluatorFactory(control_)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RepositoryTest, LimitsHoldAsForUploads) {
  WriteScale("a/1", 3);
  WriteScale("b/1", 3);
  options_.max_models = 1;
  Begin("poll");
  EXPECT_THAT(Index(), ElementsAre("a/1 READY", "b/1 UNAVAILABLE"));
  EXPECT_THAT(ReasonOf("b"), HasSubstr("--max_models"));
  const std::shared_ptr<ModelVersion> before = Find("a");
  WriteScale("a/1", 5);  // takes the place of what it replaces
  Until([&] { return Find("a") != before; });
  EXPECT_EQ(Answer("a"), 10);
}

TEST_F(RepositoryTest, ManyFoldersAreLookedAtWhileCallsRun) {
  for (int i = 0; i < 200; ++i) WriteScale("m" + std::to_string(i) + "/1", static_cast<float>(i));
  Begin("explicit");
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (int i = t; i < 24; i += 4) {
        const std::string name = "m" + std::to_string(i);
        EXPECT_TRUE(Load(name).ok());
        core_->repository()->unavailable();
        if (i % 2 == 1) EXPECT_TRUE(Unload(name).ok());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(core_->registry().versions().count(), 12);
  EXPECT_EQ(core_->repository()->unavailable().size(), 200u - 12u);
  // Calls under way are answered when the server stops.
  Mutex mu;
  int answered = 0;
  for (int i = 30; i < 60; ++i) {
    core_->repository()->Load("m" + std::to_string(i), [&](const absl::Status&) {
      MutexLock lock(mu);
      ++answered;
    });
  }
  core_->repository()->Stop();
  core_->workers().Stop();
  MutexLock lock(mu);
  EXPECT_EQ(answered, 30);
}

}  // namespace
}  // namespace athanor
