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

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::string Child::End() const {
  if (timed_out) return absl::StrCat("killed after ", static_cast<int>(seconds), " s");
  if (exit >= 0) return absl::StrCat("exit ", exit);
  return signal != 0 ? absl::StrCat("signal ", signal) : output;
}

Child RunChild(const std::vector<std::string>& arguments, double seconds, double after_output) {
  Child child;
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    child.output = absl::StrCat("pipe: ", std::strerror(errno));
    return child;
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, pipe_ends[1], STDOUT_FILENO);
  std::vector<char*> argv = {const_cast<char*>("athanor-gpu")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const Clock::time_point begin = Clock::now();
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(pipe_ends[1]);
  if (error != 0) {
    close(pipe_ends[0]);
    child.output = absl::StrCat("starting a child: ", std::strerror(error));
    return child;
  }
  // The pipe's end is the child's, unless it left a process of its own behind.
  for (bool open = true; open;) {
    const double left = seconds - Since(begin);
    pollfd readable = {pipe_ends[0], POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&readable, 1, std::max(1, int(left * 1000)));
    if (ready < 0 && errno == EINTR) continue;
    char bytes[4096];
    const ssize_t n = ready > 0 ? read(pipe_ends[0], bytes, sizeof(bytes)) : 0;
    if (n > 0 && child.output.empty()) seconds = std::min(seconds, Since(begin) + after_output);
    if (n > 0) child.output.append(bytes, n);
    open = n > 0;
    child.timed_out = ready == 0;
  }
  close(pipe_ends[0]);
  const Clock::time_point end = Clock::now();
  if (child.timed_out) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  child.seconds = Since(begin);
  if (child.timed_out) child.kill_seconds = Since(end);
  if (WIFEXITED(status)) child.exit = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.signal = WTERMSIG(status);
  return child;
}

void DieWithParent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

}  // namespace athanor
