#include "tests/gpu/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace athanor {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Pipe {
  int read = -1, write = -1;
};
bool Make(Pipe* pipe) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  *pipe = {ends[0], ends[1]};
  return true;
}
void Close(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

}  // namespace

std::string Child::End() const {
  if (stays) return absl::StrCat("nothing: it is still there ", kReapSeconds, " s after its kill");
  if (timed_out) return absl::StrCat("killed after ", static_cast<int>(seconds), " s");
  if (exit >= 0) return absl::StrCat("exit ", exit);
  return signal != 0 ? absl::StrCat("signal ", signal) : output;
}

RunningChild::RunningChild(const std::vector<std::string>& arguments) : started_(Now()) {
  Pipe in, out;
  if (!Make(&in) || !Make(&out)) {
    child_.output = absl::StrCat("pipe: ", std::strerror(errno));
    Close(&in.read);
    Close(&in.write);
    return;
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.write, STDOUT_FILENO);
  std::vector<char*> argv = {const_cast<char*>("athanor-gpu")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, "/proc/self/exe", &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  Close(&in.read);
  Close(&out.write);
  to_ = in.write;
  from_ = out.read;
  if (error != 0) {
    pid_ = -1;
    child_.output = absl::StrCat("starting a child: ", std::strerror(error));
  }
}

RunningChild::~RunningChild() {
  Close(&to_);
  Close(&from_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  Reap();
}

// Reads what comes next; returns false at the end of the output. Sets timed_out if nothing came.
bool RunningChild::Read(double seconds) {
  pollfd readable = {from_, POLLIN, 0};
  int ready = -1;
  for (const double until = Now() + seconds; ready < 0;) {
    const double left = std::min(until - Now(), 1e6);
    ready = left <= 0 ? 0 : poll(&readable, 1, std::max(1, static_cast<int>(left * 1000)));
    if (ready < 0 && errno != EINTR) return false;
  }
  child_.timed_out = ready == 0;
  char bytes[4096];
  const ssize_t n = ready > 0 ? read(from_, bytes, sizeof(bytes)) : 0;
  if (n > 0 && child_.output.empty()) first_output_ = Now();
  if (n > 0) child_.output.append(bytes, n);
  return n > 0;
}

// Waits for the process's end, kReapSeconds at most; a process stuck in a driver may never end.
bool RunningChild::Reap() {
  for (const double until = Now() + kReapSeconds; Now() < until;) {
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) break;
    if (ended != pid_) {
      usleep(1000);
      continue;
    }
    pid_ = -1;
    if (WIFEXITED(status)) child_.exit = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) child_.signal = WTERMSIG(status);
    return true;
  }
  return false;
}

bool RunningChild::WaitForOutput(double seconds) {
  if (pid_ >= 0 && child_.output.empty()) Read(seconds);
  return pid_ >= 0 && !child_.output.empty();
}

Child RunningChild::Finish(double seconds, double after_output_seconds) {
  if (pid_ < 0) return child_;
  Close(&to_);
  const double until = Now() + seconds;
  // The pipe's end is the child's, unless it left a process of its own behind.
  while (Read(std::min(until, first_output_ + after_output_seconds) - Now())) {
  }
  Close(&from_);
  double killed = Now();
  if (child_.timed_out) kill(pid_, SIGKILL);
  if (!Reap() && !child_.timed_out) {  // it closed its output and goes on
    child_.timed_out = true;
    killed = Now();
    kill(pid_, SIGKILL);
    Reap();
  }
  child_.stays = pid_ >= 0;
  pid_ = -1;
  child_.seconds = Now() - started_;
  if (child_.timed_out) child_.kill_seconds = Now() - killed;
  return child_;
}

Child RunChild(const std::vector<std::string>& arguments, double seconds,
               double after_output_seconds) {
  return RunningChild(arguments).Finish(seconds, after_output_seconds);
}

void DieWithParent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

}  // namespace athanor
