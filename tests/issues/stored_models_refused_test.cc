// A model accepted under wide limits did not serve after a start under narrower ones: stored models
// were checked against --max_nodes again, and against the default for the largest tensors.
#include <memory>

#include "gtest/gtest.h"
#include "server/testing/core_testing.h"

namespace athanor {
namespace {

class StoredModelsRefusedTest : public CoreTest {};

TEST_F(StoredModelsRefusedTest, WhatWasTakenServesUnderNarrowerLimits) {
  Store("m", ScaleModel({2}));
  core_.reset();
  options_.max_nodes = 1;
  options_.max_tensor_bytes = 1;
  core_ = ServerCore::Create(options_, EvaluatorFactory(control_)).value();
  const auto version = core_->registry().Find("m", "");
  ASSERT_TRUE(version.ok()) << version.status();
  ASSERT_TRUE(Await(**version).ok());
  EXPECT_EQ(Run(**version, 3).value(), 6);
  // New models are checked against them.
  Upload upload(&core_->registry(), &core_->ledger(), core_->options());
  EXPECT_EQ(upload.Take(UploadMessages("n", ScaleModel({2}))[0]).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace athanor
