#include "server/tuner/worker/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "proto/athanor/internal/worker.pb.h"
#include "server/child/trial_states.h"
#include "server/child/tuner_channel.h"
#include "server/tuner/run/isolated.h"
#include "server/tuner/sandbox/sandbox.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Longest time to make a context, which takes hundreds of milliseconds.
constexpr std::chrono::milliseconds kStartTimeout{10000};

// The process has no socket: it reads jobs from a pipe and writes replies to another. A size goes
// before each.
bool ReadAll(int fd, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = read(fd, data, bytes);
    if (n <= 0 && errno != EINTR) return false;
    if (n == 0) return false;
    if (n < 0) continue;
    data += n;
    bytes -= n;
  }
  return true;
}

bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) bytes.remove_prefix(n);
  }
  return true;
}

std::string WithSize(const std::string& message) {
  const auto size = static_cast<uint32_t>(message.size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  return bytes + message;
}

internal::WorkerReply ReplyOf(const absl::Status& status) {
  internal::WorkerReply reply;
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
  return reply;
}

struct Pipe {
  int read = -1, write = -1;

  absl::Status Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return absl::UnavailableError("a pipe for the device worker: no descriptor is left");
    }
    read = ends[0], write = ends[1];
    return absl::OkStatus();
  }
  ~Pipe() {
    if (read >= 0) close(read);
    if (write >= 0) close(write);
  }
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

// Holds a process, and the pipes to talk to it.
struct Worker {
  Pipe jobs, replies;
  std::unique_ptr<ForkedProcess> process;
};

// The forked process: makes the device, says so, and serves jobs until one loses it. Each reply has
// the number of its job; the first has none.
void Work(absl::Status status, const KeeperSetup& setup, const Worker& worker) {
  std::vector<int> kept = setup.descriptors;
  kept.push_back(worker.jobs.read);
  kept.push_back(worker.replies.write);
  std::set_new_handler([] { _exit(kTunerExitMemory); });
  if (status.ok()) status = ConfineWorker(std::move(kept));
  if (status.ok()) status = setup.begin();
  const auto tell = [&](const internal::WorkerReply& reply) {
    return WriteAll(worker.replies.write, WithSize(reply.SerializeAsString()));
  };
  if (!tell(ReplyOf(status)) || !status.ok()) _exit(0);
  for (;;) {
    uint32_t size = 0;
    if (!ReadAll(worker.jobs.read, reinterpret_cast<char*>(&size), sizeof(size))) _exit(0);
    std::string bytes(size, '\0');
    if (!ReadAll(worker.jobs.read, bytes.data(), bytes.size())) _exit(0);
    internal::WorkerJob job;
    if (!job.ParseFromString(bytes)) _exit(0);
    bytes.clear();
    internal::WorkerReply drawn;
    drawn.set_number(job.number());
    drawn.set_drawn(true);
    internal::WorkerReply reply = setup.serve(job, [&] {
      if (!tell(drawn)) _exit(0);
    });
    reply.set_number(job.number());
    if (!tell(reply) || reply.lost()) _exit(0);
  }
}

class Keeper {
 public:
  explicit Keeper(const KeeperSetup& setup) : setup_(setup) {}

  // Does a job, whatever becomes of the process.
  internal::WorkerReply Do(const internal::WorkerJob& job, const std::string& bytes);

 private:
  // Forks a process unless there is one. Errors are those of its device.
  absl::Status Start();
  // Sends `bytes`, if any, and returns what the process says to the job of this number, which may
  // be that it has drawn its inputs; an error says how the process was lost.
  absl::StatusOr<internal::WorkerReply> Exchange(absl::string_view what,
                                                 const IsolationLimits& limits, uint64_t number,
                                                 std::string bytes);
  std::optional<ProcessEnd> Send(absl::string_view bytes, Clock::time_point deadline, int64_t most);
  std::optional<ProcessEnd> Receive(char* data, size_t bytes, Clock::time_point deadline,
                                    int64_t most);

  const KeeperSetup& setup_;
  std::unique_ptr<Worker> worker_;
};

absl::Status Keeper::Start() {
  // Replaces one that somebody ended between two jobs, or that has said what no job asked for: it
  // has cost none.
  if (worker_ != nullptr) {
    pollfd fds[2] = {{worker_->process->pidfd(), POLLIN, 0}, {worker_->replies.read, POLLIN, 0}};
    if (poll(fds, 2, 0) == 0) return absl::OkStatus();
    worker_.reset();
  }
  auto worker = std::make_unique<Worker>();
  RETURN_IF_ERROR(worker->jobs.Open());
  RETURN_IF_ERROR(worker->replies.Open());
  ASSIGN_OR_RETURN(worker->process, ForkedProcess::Start([&](absl::Status status) {
                     Work(std::move(status), setup_, *worker);
                   }));
  // The process has its own of these, which its end closes.
  close(std::exchange(worker->jobs.read, -1));
  close(std::exchange(worker->replies.write, -1));
  for (const int fd : {worker->jobs.write, worker->replies.read}) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  worker_ = std::move(worker);
  const absl::StatusOr<internal::WorkerReply> ready =
      Exchange("a device worker that begins", {.timeout = kStartTimeout}, /*number=*/0, "");
  // Says nothing of the kernel that it was begun for.
  if (!ready.ok()) return absl::UnavailableError(ready.status().message());
  if (ready->code() == 0) return absl::OkStatus();
  worker_.reset();
  const auto code = static_cast<absl::StatusCode>(ready->code());
  // A GPU that has no room for a context now says nothing either; one that does not serve is named.
  if (code != absl::StatusCode::kFailedPrecondition) {
    return absl::UnavailableError(ready->message());
  }
  return absl::FailedPreconditionError(ready->message());
}

std::optional<ProcessEnd> Keeper::Send(absl::string_view bytes, Clock::time_point deadline,
                                       int64_t most) {
  while (!bytes.empty()) {
    const ssize_t n = write(worker_->jobs.write, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return ProcessEnd::kItself;
    pollfd room{worker_->jobs.write, POLLOUT, 0};
    constexpr int kMilliseconds = 20;
    if (poll(&room, 1, kMilliseconds) > 0) continue;
    if (Clock::now() >= deadline) return ProcessEnd::kTime;
    if (ResidentBytes(worker_->process->pid()) > most) return ProcessEnd::kMemory;
  }
  return std::nullopt;
}

std::optional<ProcessEnd> Keeper::Receive(char* data, size_t bytes, Clock::time_point deadline,
                                          int64_t most) {
  while (bytes > 0) {
    const ssize_t n = read(worker_->replies.read, data, bytes);
    if (n > 0) {
      data += n;
      bytes -= n;
      continue;
    }
    if (n == 0) return ProcessEnd::kItself;
    if (errno != EAGAIN && errno != EINTR) return ProcessEnd::kItself;
    const std::optional<ProcessEnd> end =
        WatchProcess(*worker_->process, worker_->replies.read, deadline, most);
    if (end.has_value()) return end;
  }
  return std::nullopt;
}

absl::StatusOr<internal::WorkerReply> Keeper::Exchange(absl::string_view what,
                                                       const IsolationLimits& limits,
                                                       uint64_t number, std::string bytes) {
  const Clock::time_point deadline = Clock::now() + limits.timeout;
  const int64_t most =
      std::max<int64_t>(ResidentBytes(worker_->process->pid()), 0) + limits.memory_bytes;
  uint32_t size = 0;
  std::string answer;
  std::optional<ProcessEnd> end;
  if (!bytes.empty()) end = Send(WithSize(bytes), deadline, most);
  if (!end) end = Receive(reinterpret_cast<char*>(&size), sizeof(size), deadline, most);
  const bool fits = size <= kMaxTunerFrame;
  if (!end && fits) {
    answer.resize(size);
    end = Receive(answer.data(), size, deadline, most);
  }
  internal::WorkerReply reply;
  const bool parsed = !end && fits && reply.ParseFromString(answer) && IsStatusCode(reply.code());
  if (parsed && reply.number() == number) return reply;
  const int status = worker_->process->End();
  worker_.reset();
  if (end) return ExplainEnd(what, limits, *end, status);
  return absl::InternalError(absl::StrCat(what, ": the device worker's reply is ",
                                          parsed ? "to another job" : "no reply"));
}

internal::WorkerReply Keeper::Do(const internal::WorkerJob& job, const std::string& bytes) {
  if (absl::Status started = Start(); !started.ok()) return ReplyOf(started);
  const IsolationLimits limits{.timeout = std::chrono::milliseconds(job.timeout_ms()),
                               .memory_bytes = job.memory_bytes()};
  const IsolationLimits drawing{.timeout = limits.timeout / 2, .memory_bytes = limits.memory_bytes};
  absl::StatusOr<internal::WorkerReply> reply =
      Exchange(absl::StrCat("drawing the inputs of ", job.what()), drawing, job.number(), bytes);
  if (reply.ok() && reply->drawn()) {
    reply = Exchange(job.what(), limits, job.number(), "");
    if (reply.ok() && reply->drawn()) {
      worker_.reset();
      reply = absl::InternalError(absl::StrCat(job.what(), ": it began to run twice"));
    }
  } else if (!reply.ok()) {
    // Nothing of what the job is about ran.
    reply = absl::UnavailableError(reply.status().message());
  } else if (reply->code() == 0) {
    worker_.reset();
    reply = absl::UnavailableError(absl::StrCat(job.what(), ": it ended before it began to run"));
  }
  if (!reply.ok()) return ReplyOf(reply.status());
  if (reply->lost()) worker_.reset();
  // A message may quote what a kernel wrote.
  if (!IsValidUtf8(reply->message())) reply->set_message("a message that is no text");
  return *std::move(reply);
}

}  // namespace

int KeepWorker(const KeeperSetup& setup) {
  signal(SIGPIPE, SIG_IGN);  // of a process that has ended
  Keeper keeper(setup);
  for (;;) {
    const absl::StatusOr<std::string> bytes = ReadFrame(setup.socket, kMaxTunerFrame, {});
    if (!bytes.ok()) return absl::IsUnavailable(bytes.status()) ? 0 : 1;
    internal::WorkerJob job;
    internal::WorkerReply reply =
        job.ParseFromString(*bytes)
            ? keeper.Do(job, *bytes)
            : ReplyOf(absl::InvalidArgumentError("a job that does not parse"));
    reply.set_number(job.number());
    if (!WriteFrame(setup.socket, reply, {}).ok()) return 1;
  }
}

}  // namespace athanor
