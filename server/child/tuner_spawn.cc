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
#include "runtime/cuda/cublaslt.h"
#include "server/child/child_reaper.h"
#include "server/child/tuner_channel.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

// Nothing of the server's environment is the kernels' business.
constexpr const char* kPassedOn[] = {"LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS",
                                     "TSAN_OPTIONS"};
// Says which GPU a number is, how its driver is reached, where its library of products lies, and
// where python3 has it and the compiler.
constexpr const char* kPassedOnForGpu[] = {"CUDA_VISIBLE_DEVICES",    "CUDA_DEVICE_ORDER",
                                           "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
                                           kCublasltVariable,         "PATH"};

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

// Descriptors of a child by what they become there; -1: none.
struct Descriptors {
  int words = -1;   // standard error
  int socket = -1;  // kTunerFd
  int traffic = -1;
  int scratch = -1;
  int worker = -1;
  int memory = -1;
};

// Spawning is not forking: nothing of a threaded process may run between fork and exec.
absl::StatusOr<pid_t> SpawnChild(const std::vector<std::string>& args,
                                 std::vector<std::string> environment, const Descriptors& given) {
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
  // Every number is taken: the child has none that it was not given.
  for (const auto& [from, to] :
       {std::pair(given.words, 2), std::pair(given.socket, kTunerFd),
        std::pair(given.traffic, kTrafficFd), std::pair(given.scratch, kScratchFd),
        std::pair(given.worker, kWorkerFd), std::pair(given.memory, kWorkerMemoryFd)}) {
    if (from >= 0) {
      posix_spawn_file_actions_adddup2(&files, from, to);
    } else {
      posix_spawn_file_actions_addopen(&files, to, "/dev/null", O_RDONLY, 0);
    }
  }
  posix_spawn_file_actions_addclosefrom_np(&files, kLastTunerFd + 1);
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
int CopyUp(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, kLastTunerFd + 1); }

int MoveUp(int fd) {
  if (fd < 0) return -1;
  const int moved = CopyUp(fd);
  close(fd);
  return moved;
}

// Gives a file as many bytes as scratch has, or as files may have.
bool Extend(int fd) {
  rlimit most{};
  // Beyond a limit on files, growing one would be a signal.
  return getrlimit(RLIMIT_FSIZE, &most) == 0 &&
         ftruncate(fd, static_cast<off_t>(std::min<rlim_t>(most.rlim_cur, kScratchBytes))) == 0;
}

// -1: the folder's file system has no files without names, or is memory itself.
int OpenScratch(const std::string& folder) {
  if (folder.empty()) return -1;
  int fd = MoveUp(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  struct statfs system{};
  if (fd >= 0 && fstatfs(fd, &system) == 0 && system.f_type != TMPFS_MAGIC && Extend(fd)) return fd;
  CloseFd(&fd);
  return -1;
}

// -1: there is no room. Takes memory only as it is used.
int OpenWorkerMemory() {
  int fd = MoveUp(memfd_create("athanor-device-worker", MFD_CLOEXEC));
  if (fd >= 0 && !Extend(fd)) CloseFd(&fd);
  return fd;
}

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
  const bool gpu = options.gpu >= 0;
  int ends[2], worker_ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::UnavailableError(
        absl::StrCat("socket pair for the tuner: ", std::strerror(errno)));
  }
  if (gpu) socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, worker_ends);
  Descriptors tuner;
  tuner.socket = MoveUp(ends[1]);
  tuner.words = MoveUp(memfd_create("athanor-tuner-stderr", MFD_CLOEXEC));
  tuner.traffic = options.traffic == nullptr ? -1 : CopyUp(options.traffic->fd());
  tuner.scratch = OpenScratch(options.scratch_folder);
  Descriptors worker = tuner;
  if (gpu) {
    tuner.worker = MoveUp(worker_ends[0]);
    worker.socket = MoveUp(worker_ends[1]);
    tuner.memory = worker.memory = OpenWorkerMemory();
  }
  absl::Cleanup closer = [&] {
    if (gpu) CloseFd(&worker.socket);
    for (int* fd : {&tuner.socket, &tuner.traffic, &tuner.scratch, &tuner.worker, &tuner.memory}) {
      CloseFd(fd);
    }
  };
  std::vector<std::string> args = Arguments(binary, options, tuner.traffic, tuner.scratch);
  SpawnedTuner spawned = {-1, -1, ends[0], tuner.words};
  absl::StatusOr<pid_t> pid = absl::UnavailableError("descriptors for the tuner: none left");
  if (tuner.socket >= 0 && tuner.words >= 0 && (tuner.traffic >= 0 || options.traffic == nullptr) &&
      (!gpu || (tuner.worker >= 0 && worker.socket >= 0 && tuner.memory >= 0))) {
    pid = SpawnChild(args, Environment(gpu), tuner);
    if (pid.ok()) spawned.pid = *pid;
    if (pid.ok() && gpu) {
      args.push_back("--worker");
      pid = SpawnChild(args, Environment(gpu), worker);
      if (pid.ok()) spawned.worker = *pid;
    }
  }
  if (pid.ok()) return spawned;
  // Without its worker, a tuner ends as its socket closes.
  CloseFd(&spawned.socket);
  CloseFd(&spawned.words);
  if (spawned.pid >= 0) ChildReaper(spawned.pid).End();
  return pid.status();
}

}  // namespace athanor
