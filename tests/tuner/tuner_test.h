// Starts a child process athanor-tuner for a test, and describes the machine as the child sees it.
#ifndef ATHANOR_TESTS_TUNER_TUNER_TEST_H_
#define ATHANOR_TESTS_TUNER_TUNER_TEST_H_

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_process.h"

namespace athanor {

class TunerTest : public ::testing::Test {
 protected:
  void SetUp() override { StartTuner("server/athanor-tuner"); }

  void StartTuner(const std::string& binary) {
    TunerOptions options;
    options.binary = binary;
    auto tuner = TunerProcess::Start(options);
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    tuner_ = *std::move(tuner);
    auto machine = tuner_->Target();
    ASSERT_TRUE(machine.ok()) << machine.status();
    machine_ = *std::move(machine);
    machine_.mutable_target()->set_threads(2);
    target_ = machine_.target();
  }

  std::unique_ptr<TunerProcess> tuner_;
  internal::TargetReply machine_;
  v1::Target target_;
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_TUNER_TUNER_TEST_H_
