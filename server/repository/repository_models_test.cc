#include "server/repository/repository_models.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "server/repository/repository_testing.h"

namespace athanor {
namespace {

using Look = RepositoryModels::Look;

// Looks when a test says so: no thread does.
class RepositoryModelsTest : public RepositoryTest {
 protected:
  void SetUp() override {
    RepositoryTest::SetUp();
    ServerOptions without = options_;
    without.model_repository.clear();
    core_ = ServerCore::Create(without, EvaluatorFactory(control_)).value();
    options_.model_control = "poll";
    models_.emplace(
        options_,
        RepositoryParts{core_->registry(), core_->workers(), core_->requests(), core_->ledger()},
        RepositoryFolder::Open(folder_).value(), stopping_,
        [](const std::shared_ptr<ModelVersion>&, Look) {});
  }
  void Rename(const std::string& from, const std::string& to) const {
    std::filesystem::rename(folder_ + "/" + from, folder_ + "/" + to);
  }
  bool IsLoaded(const std::string& name) const { return !models_->Loaded(name).empty(); }

  const std::atomic<bool> stopping_{false};
  std::optional<RepositoryModels> models_;
};

TEST_F(RepositoryModelsTest, AFolderIsGoneOnceTwoPollsInARowMissIt) {
  WriteScale("m/1", 3);
  WriteScale("n/1", 5);
  models_->LookAtAll(Look::kFirst);
  for (int i = 0; i < 2; ++i) {
    Rename("m", ".m");
    models_->LookAtAll(Look::kPoll);
    EXPECT_TRUE(IsLoaded("m"));
    Rename(".m", "m");
    models_->LookAtAll(Look::kPoll);
    EXPECT_TRUE(IsLoaded("m"));
  }
  Rename("m", ".m");
  models_->LookAtAll(Look::kPoll);
  models_->LookAtAll(Look::kPoll);
  EXPECT_FALSE(IsLoaded("m"));
  EXPECT_TRUE(IsLoaded("n"));
}

TEST_F(RepositoryModelsTest, AFailedVersionIsCompiledAgainWhenItsFilesChange) {
  control_->FailCompiles(absl::InternalError("no compiler"));
  WriteScale("m/1", 3);
  models_->LookAtAll(Look::kFirst);
  EXPECT_FALSE(Await(*Find("m")).ok());
  control_->FailCompiles(absl::OkStatus());
  models_->LookAtAll(Look::kPoll);
  EXPECT_FALSE(Await(*Find("m")).ok());
  WriteScale("m/1", 3);  // the same bytes
  models_->LookAtAll(Look::kPoll);
  EXPECT_FALSE(Await(*Find("m")).ok());
  models_->LookAtAll(Look::kPoll);
  EXPECT_EQ(Answer("m"), 6);
}

}  // namespace
}  // namespace athanor
