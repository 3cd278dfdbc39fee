// Two uploads share a tensor. While the first moved its file into place, the tensor counted as
// stored, so the second neither wrote it nor waited, and its model failed to load. If the first
// then failed, the second was stored without its bytes.
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/storage/storage_testing.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

class TensorNamedBeforeWrittenTest : public CoreTest {
 protected:
  void SetUp() override {
    options_.state_dir = FreshDirectory();
    core_ = ServerCore::Create(options_, EvaluatorFactory(control_), &disk_).value();
  }

  void TearDown() override {
    second_.reset();
    core_.reset();  // must go before the disk it uses
  }

  std::unique_ptr<Upload> Begin(const std::vector<v1::UploadModelRequest>& messages) {
    auto upload = std::make_unique<Upload>(&core_->registry(), &core_->ledger(), core_->options());
    for (size_t i = 0; i + 1 < messages.size(); ++i) {
      const absl::Status status = upload->Take(messages[i]);
      EXPECT_TRUE(status.ok()) << status;
    }
    return upload;
  }

  // Commits an upload of "first", whose file is moved with the result `end`. An upload of "second"
  // does everything but its commit before that move. Returns the first upload's status.
  absl::Status CommitBeside(absl::Status end) {
    std::unique_ptr<Upload> first = Begin(UploadMessages("first", model_));
    disk_.before = [&] {
      EXPECT_EQ(core_->registry().TensorBytes(hash_), -1);
      EXPECT_FALSE(core_->registry().Pin({hash_}).ok());
      second_ = Begin(UploadMessages("second", model_));
      return end;
    };
    return first->Take(UploadMessages("first", model_).back());
  }

  void ExpectSecondServes() {
    const absl::Status status = second_->Take(UploadMessages("second", model_).back());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(core_->registry().TensorBytes(hash_), sizeof(float));
    EXPECT_TRUE(core_->registry().Map(hash_).ok());
    ASSERT_TRUE(core_->workers().Start(second_->version()).ok());
    const absl::Status ready = Await(*second_->version());
    ASSERT_TRUE(ready.ok()) << ready;
    EXPECT_EQ(Run(*second_->version(), 2).value(), 6);
  }

  PausedDisk disk_;
  const TestModel model_ = ScaleModel({3});
  const std::string hash_ = model_.tensors.begin()->first;
  std::unique_ptr<Upload> second_;
};

TEST_F(TensorNamedBeforeWrittenTest, BothServe) {
  const absl::Status first = CommitBeside(absl::OkStatus());
  EXPECT_TRUE(first.ok()) << first;
  ExpectSecondServes();
}

TEST_F(TensorNamedBeforeWrittenTest, TheSecondServesWhereTheFirstFails) {
  const absl::Status first = CommitBeside(DiskError(ENOSPC, "rename", "tensor"));
  EXPECT_EQ(first.code(), absl::StatusCode::kResourceExhausted) << first;
  EXPECT_EQ(core_->registry().TensorBytes(hash_), -1);
  ExpectSecondServes();
}

}  // namespace
}  // namespace athanor
