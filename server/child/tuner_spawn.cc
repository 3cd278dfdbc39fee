#include "server/child/tuner_spawn.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/child/tuner_channel.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

// Nothing of the server's environment is the kernels' business.
constexpr const char* kPassedOn[] = {"LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS",
                                     "TSAN_OPTIONS"};
// Says which GPU a number is, how its driver is reached, and where python3 has its compiler.
constexpr const char* kPassedOnForGpu[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                                           "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
                                           "PATH"};

std::vector<std::string> Environment(bool gpu) {
  std::vector<std::string> environment;
  const auto pass = [&](const char* name) {
    if (const char* value = std::getenv(name)) {
      environment.push_back(absl::StrCat(name, "=", value));
    }
  };
  for (const char* name : kPassedOn) pass(name);
  if (!gpu) return environment;
  for (const char* name : kPassedOnForGpu) pass(name);
  return environment;
}

// Spawning is not forking: nothing of a threaded process may run between fork and exec.
// `traffic` and `scratch` may be -1.
absl::StatusOr<pid_t> SpawnChild(const std::vector<std::string>& args,
                                 std::vector<std::string> environment, int socket, int words,
                                 int traffic, int scratch) {
  std::vector<char*> argv, envp;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  };
  // All are above the targets (MoveUp), so that none overwrites another.
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, words, 2);
  posix_spawn_file_actions_adddup2(&files, socket, kTunerFd);
  // Every number is taken: the child has none that it was not given.
  for (const auto& [from, to] : {std::pair(traffic, kTrafficFd), std::pair(scratch, kScratchFd)}) {
    if (from >= 0) {
      posix_spawn_file_actions_adddup2(&files, from, to);
    } else {
      posix_spawn_file_actions_addopen(&files, to, "/dev/null", O_RDONLY, 0);
    }
  }
  posix_spawn_file_actions_addclosefrom_np(&files, kScratchFd + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // A group of its own: a terminal's Ctrl-C is the server's to handle.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, args[0].c_str(), &files, &attributes, argv.data(), envp.data());
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("starting ", args[0], ": ", std::strerror(error)));
  }
  return pid;
}

// The same file, close-on-exec, with a number that the child's fixed ones cannot meet.
int CopyUp(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, kScratchFd + 1); }

int MoveUp(int fd) {
  if (fd < 0) return -1;
  const int moved = CopyUp(fd);
  close(fd);
  return moved;
}

// -1: the folder's file system has no files without names, or is memory itself.
int OpenScratch(const std::string& folder) {
  if (folder.empty()) return -1;
  int fd = MoveUp(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  struct statfs system{};
  rlimit most{};
  // Beyond a limit on files, growing one would be a signal.
  if (fd >= 0 && fstatfs(fd, &system) == 0 && system.f_type != TMPFS_MAGIC &&
      getrlimit(RLIMIT_FSIZE, &most) == 0 &&
      ftruncate(fd, static_cast<off_t>(std::min<rlim_t>(most.rlim_cur, kScratchBytes))) == 0) {
    return fd;
  }
  CloseFd(&fd);
  return -1;
}

// `traffic` and `scratch` may be -1.
std::vector<std::string> Arguments(const std::string& binary, const TunerOptions& options,
                                   int traffic, int scratch) {
  const auto seconds = [](milliseconds t) { return std::chrono::ceil<std::chrono::seconds>(t); };
  std::vector<std::string> args = {
      binary,
      absl::StrCat("--parent=", getpid()),
      absl::StrCat("--memory_limit=", options.memory_limit),
      absl::StrCat("--compile_seconds=", seconds(options.compile_timeout).count() + 1),
      absl::StrCat("--kernel_ms=", options.check_timeout.count() / 2),
      absl::StrCat("--max_reply_bytes=", options.max_reply_bytes)};
  if (traffic >= 0) args.push_back("--traffic");
  if (scratch >= 0) args.push_back("--scratch");
  if (options.gpu >= 0) {
    args.push_back(absl::StrCat("--gpu=", options.gpu));
    args.push_back(absl::StrCat("--nvrtc=", options.nvrtc));
  }
  if (!options.search_cpus.empty()) {
    args.push_back(absl::StrCat("--search_cpus=", absl::StrJoin(options.search_cpus, ",")));
  }
  return args;
}

}  // namespace

void CloseFd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

absl::StatusOr<SpawnedTuner> SpawnTuner(const std::string& binary, const TunerOptions& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::UnavailableError(
        absl::StrCat("socket pair for the tuner: ", std::strerror(errno)));
  }
  int child_end = MoveUp(ends[1]);
  int words = MoveUp(memfd_create("athanor-tuner-stderr", MFD_CLOEXEC));
  int traffic = options.traffic == nullptr ? -1 : CopyUp(options.traffic->fd());
  int scratch = OpenScratch(options.scratch_folder);
  absl::Cleanup closer = [&] {
    CloseFd(&child_end);
    CloseFd(&traffic);
    CloseFd(&scratch);
  };
  absl::StatusOr<pid_t> pid = absl::UnavailableError("descriptors for the tuner: none left");
  if (child_end >= 0 && words >= 0 && (traffic >= 0 || options.traffic == nullptr)) {
    pid = SpawnChild(Arguments(binary, options, traffic, scratch), Environment(options.gpu >= 0),
                     child_end, words, traffic, scratch);
  }
  if (!pid.ok()) {
    close(ends[0]);
    CloseFd(&words);
    return pid.status();
  }
  return SpawnedTuner{*pid, ends[0], words};
}

}  // namespace athanor
