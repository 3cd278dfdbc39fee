#include "server/tuner/run/device_worker.h"

#include <cstdint>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner/run/device_worker_testing.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

TEST(DeviceWorkerTest, AReplyToAnotherJobIsNone) {
  uint64_t told = 0, last = 0;
  FakeWorker worker([&](const internal::WorkerJob& job, internal::WorkerReply* reply) {
    last = job.number();
    if (told != 0) reply->set_number(told);
  });
  const auto run = [&](uint64_t number) {
    told = number;
    internal::WorkerJob job;
    return worker.get().Run("a job", {}, &job).status();
  };
  EXPECT_TRUE(run(0).ok());
  // Numbers of the job before, of the next by counting, of none.
  for (const uint64_t number : {last, last + 1, last + 2, uint64_t{1}}) {
    const absl::Status refused = run(number);
    EXPECT_EQ(refused.code(), Code::kInternal) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("a job: the device worker's reply is to another job"));
  }
  EXPECT_TRUE(run(0).ok());
}

TEST(DeviceWorkerTest, NumbersAreDrawn) {
  std::set<uint64_t> numbers;
  FakeWorker worker([&](const internal::WorkerJob& job, internal::WorkerReply*) {
    EXPECT_TRUE(numbers.insert(job.number()).second);
    EXPECT_EQ(job.what(), "a job");
  });
  internal::WorkerJob job;  // run again, it is another
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(worker.get().Run("a job", {}, &job).ok());
  // Not one after the other: 20 draws lie that close once in 2^59 times.
  EXPECT_GT(*numbers.rbegin() - *numbers.begin(), uint64_t{1} << 32);
}

TEST(DeviceWorkerTest, ErrorsAreTheReplys) {
  Code code = Code::kOk;
  bool short_of_memory = false;
  FakeWorker worker([&](const internal::WorkerJob&, internal::WorkerReply* reply) {
    reply->set_code(static_cast<int>(code));
    reply->set_message("why");
    reply->set_short_of_memory(short_of_memory);
  });
  const auto run = [&](Code wanted) {
    code = wanted;
    internal::WorkerJob job;
    return worker.get().Run("a job", {}, &job).status();
  };
  EXPECT_EQ(run(Code::kDataLoss), absl::DataLossError("why"));
  EXPECT_EQ(run(Code::kResourceExhausted), absl::ResourceExhaustedError("why"));
  EXPECT_FALSE(IsShortOfMemory(run(Code::kUnavailable)));
  EXPECT_EQ(run(static_cast<Code>(99)).code(), Code::kInternal);
  short_of_memory = true;
  const absl::Status status = run(Code::kUnavailable);
  EXPECT_TRUE(IsShortOfMemory(status)) << status;
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "why");
}

}  // namespace
}  // namespace athanor
