// A device worker whose jobs are answered by a test: kernels are not run, and nothing is forked.
//
//   FakeWorker worker([&](const internal::WorkerJob& job, internal::WorkerReply* reply) {
//     reply->set_code(...);   // 0 and the job's number as it comes
//   });
//   CheckPlan(request, worker.limits());
#ifndef ATHANOR_SERVER_TUNER_RUN_DEVICE_WORKER_TESTING_H_
#define ATHANOR_SERVER_TUNER_RUN_DEVICE_WORKER_TESTING_H_

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "proto/athanor/internal/worker.pb.h"
#include "server/child/tuner_channel.h"
#include "server/tuner/run/device_worker.h"
#include "server/tuner/run/isolated.h"
#include "server/tuner/run/scratch.h"

namespace athanor {

class FakeWorker {
 public:
  // Runs on a thread of its own, for one job after the other.
  using Answer = std::function<void(const internal::WorkerJob& job, internal::WorkerReply* reply)>;

  explicit FakeWorker(Answer answer) : answer_(std::move(answer)) {
    const int memory = memfd_create("fake-worker", MFD_CLOEXEC);
    constexpr int64_t kBytes = int64_t{1} << 30;
    EXPECT_EQ(ftruncate(memory, kBytes), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    worker_ = std::make_unique<DeviceWorker>(ends_[0], Scratch::Open(memory, /*least=*/0));
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeWorker() {
    shutdown(ends_[0], SHUT_RDWR);
    thread_.join();
    for (const int end : ends_) close(end);
  }
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  DeviceWorker& get() { return *worker_; }
  IsolationLimits limits() { return {.worker = worker_.get()}; }

  // Finds what a job describes, in this process.
  static GuardedBytes Bytes(const internal::SharedBytes& message) {
    return GuardedBytes::Again({message.fd(), message.offset()}, message.bytes()).value();
  }
  static SharedMemory Memory(const internal::SharedBytes& message) {
    return SharedMemory::OfFile(message.fd(), message.offset(), message.bytes()).value();
  }

 private:
  void Serve() {
    for (;;) {
      const absl::StatusOr<std::string> bytes = ReadFrame(ends_[1], kMaxTunerFrame, {});
      if (!bytes.ok()) return;
      internal::WorkerJob job;
      EXPECT_TRUE(job.ParseFromString(*bytes));
      internal::WorkerReply reply;
      reply.set_number(job.number());
      answer_(job, &reply);
      EXPECT_TRUE(WriteFrame(ends_[1], reply, {}).ok());
    }
  }

  const Answer answer_;
  int ends_[2] = {-1, -1};
  std::unique_ptr<DeviceWorker> worker_;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_DEVICE_WORKER_TESTING_H_
