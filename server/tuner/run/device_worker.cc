#include "server/tuner/run/device_worker.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/child/trial_states.h"
#include "server/child/tuner_channel.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

internal::SharedBytes ToMessage(SharedMemory::Place place, size_t bytes) {
  internal::SharedBytes message;
  message.set_fd(place.fd);
  message.set_offset(place.offset);
  message.set_bytes(static_cast<int64_t>(bytes));
  return message;
}

absl::Status Validate(const internal::SharedBytes& message) {
  const bool known = message.fd() == kScratchFd || message.fd() == kWorkerMemoryFd;
  if (known && message.offset() >= 0 && message.bytes() >= 0 && message.bytes() <= kScratchBytes &&
      message.offset() <= kScratchBytes - message.bytes()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a job of ", message.bytes(), " bytes at ",
                                                 message.offset(), " of descriptor ", message.fd(),
                                                 ": that is no shared memory"));
}

}  // namespace

absl::StatusOr<internal::WorkerReply> DeviceWorker::Run(absl::string_view what,
                                                        const IsolationLimits& limits,
                                                        internal::WorkerJob* job) {
  job->set_what(std::string(what));
  job->set_timeout_ms(limits.timeout.count());
  job->set_memory_bytes(limits.memory_bytes);
  uint64_t number = 0;
  // Nobody who has not read the job can know it.
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) number = job->number() + 1;
  job->set_number(number);
  const absl::Status sent = WriteFrame(fd_, *job, {});
  if (absl::IsInvalidArgument(sent)) return sent;  // too large
  const absl::StatusOr<std::string> bytes = ReadFrame(fd_, kMaxTunerFrame, {});
  if (absl::IsUnavailable(bytes.status())) _exit(kTunerExitWorker);
  internal::WorkerReply reply;
  if (!bytes.ok() || !reply.ParseFromString(*bytes) || !IsStatusCode(reply.code())) {
    return absl::InternalError(absl::StrCat(what, ": the device worker's reply is no reply"));
  }
  if (reply.number() != number) {
    return absl::InternalError(absl::StrCat(what, ": the device worker's reply is to another job"));
  }
  if (reply.code() == 0) return reply;
  if (reply.short_of_memory()) return ShortOfMemory(reply.message());
  return absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message());
}

internal::SharedBytes ToMessage(const GuardedBytes& bytes) {
  return ToMessage(bytes.place(), bytes.bytes());
}

internal::SharedBytes ToMessage(const SharedMemory& memory) {
  return ToMessage(memory.place(), memory.bytes());
}

absl::StatusOr<GuardedBytes> GuardedFrom(const internal::SharedBytes& message) {
  RETURN_IF_ERROR(Validate(message));
  return GuardedBytes::Again({message.fd(), message.offset()}, message.bytes());
}

absl::StatusOr<SharedMemory> SharedFrom(const internal::SharedBytes& message) {
  RETURN_IF_ERROR(Validate(message));
  std::optional<SharedMemory> memory =
      SharedMemory::OfFile(message.fd(), message.offset(), std::max<int64_t>(message.bytes(), 1));
  if (memory.has_value()) return *std::move(memory);
  return absl::ResourceExhaustedError(
      absl::StrCat("memory for a job: ", message.bytes(), " bytes"));
}

}  // namespace athanor
