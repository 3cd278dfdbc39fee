#include "server/tuner/sandbox/sandbox.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/sandbox/allowed_calls.h"
#include "server/tuner/sandbox/path_wall.h"
#include "server/tuner/sandbox/privileges.h"

namespace athanor {
namespace {

// Read by the compiler and by those who watch processes.
constexpr const char* kSystemPaths[] = {"/proc", "/sys/devices/system/cpu"};
// Set if this tuner process has restricted its paths; read by the processes that it forks.
bool paths_are_walled = false;
// Set if a GPU's driver runs in the processes that this one forks.
bool a_driver_runs = false;

absl::Status CloseRange(unsigned first, unsigned last) {
  if (syscall(SYS_close_range, first, last, 0u) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a kernel's process would keep its descriptors: close_range (Linux 5.9): ",
                   std::strerror(errno)));
}

// Closes all but these.
absl::Status CloseOthers(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = 0;
  for (const int fd : kept) {
    const auto next = static_cast<unsigned>(fd);
    if (next > first) RETURN_IF_ERROR(CloseRange(first, next - 1));
    first = next + 1;
  }
  return CloseRange(first, ~0u);
}

absl::Status Limit(int resource, uint64_t value, bool hard, const char* name) {
  rlimit limit{value, hard ? value : RLIM_INFINITY};
  rlimit now;
  // The hard limit can only be lowered.
  if (getrlimit(static_cast<__rlimit_resource>(resource), &now) == 0) {
    limit.rlim_max = std::min<rlim_t>(limit.rlim_max, now.rlim_max);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, limit.rlim_max);
  }
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("limit ", name, ": ", std::strerror(errno)));
}

// Sets the soft limit a second below the hard one: SIGXCPU tells the reason, SIGKILL does not.
absl::Status LimitCpu(int64_t seconds) {
  absl::Status status = Limit(RLIMIT_CPU, seconds + 1, true, "RLIMIT_CPU");
  rlimit limit;
  if (!status.ok() || getrlimit(RLIMIT_CPU, &limit) != 0) return status;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, seconds);
  setrlimit(RLIMIT_CPU, &limit);  // only lowers the limit, so it never fails
  return status;
}

// Lets threads of yielding work (yielding.h) return to this process's own priority without the
// capability.
void AllowOwnPriority() {
  const int nice = getpriority(PRIO_PROCESS, 0);
  const auto most = static_cast<rlim_t>(20 - nice);
  const rlimit limit{most, most};
  setrlimit(RLIMIT_NICE, &limit);  // fails for most users: then they do not
}

// Drops what a GPU's driver does without. Keeps the user, by whom CUDA's multi-process service
// knows its clients.
absl::StatusOr<std::string> ConfineDriver(pid_t parent) {
  ASSIGN_OR_RETURN(std::string who, DropPrivileges(/*another_user=*/false));
  RETURN_IF_ERROR(DieWith(parent));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return absl::FailedPreconditionError("prctl(PR_SET_NO_NEW_PRIVS) fails");
  }
  return absl::StrCat(who, "; a GPU's driver makes calls that more would forbid");
}

// Limits what a forked process may open, call and map.
absl::Status WallForkedProcess() {
  RETURN_IF_ERROR(Limit(RLIMIT_NOFILE, 32, true, "RLIMIT_NOFILE"));
  rlimit free_address_space;
  getrlimit(RLIMIT_AS, &free_address_space);
  free_address_space.rlim_cur = free_address_space.rlim_max;
  setrlimit(RLIMIT_AS, &free_address_space);
  if (paths_are_walled) {
    std::vector<std::string> paths = LibraryPaths();
    paths.push_back("/proc/self/");
    RETURN_IF_ERROR(WallPaths(paths).status());
  }
  return FilterKernelCalls();
}

}  // namespace

absl::Status DieWith(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::FailedPreconditionError("prctl(PR_SET_PDEATHSIG) fails");
  }
  // The parent may have died before prctl.
  if (getppid() != parent) return absl::FailedPreconditionError("the parent process is gone");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ConfineTuner(const TunerLimits& limits) {
  absl::Status status = Limit(RLIMIT_CORE, 0, true, "RLIMIT_CORE");
  a_driver_runs = limits.gpu_driver;
  if (a_driver_runs) return status.ok() ? ConfineDriver(limits.parent) : status;
  if (status.ok()) status = Limit(RLIMIT_FSIZE, limits.file_bytes, true, "RLIMIT_FSIZE");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
  // Sanitizers reserve more address space than any limit allows.
  if (status.ok() && limits.memory_bytes > 0) {
    status = Limit(RLIMIT_AS, limits.memory_bytes, false, "RLIMIT_AS");
  }
#endif
#endif
  // Tests now, before there is a kernel, whether kernels could be confined.
  if (status.ok()) status = CloseRange(~0u, ~0u);
  if (!status.ok()) return status;
  AllowOwnPriority();
  ASSIGN_OR_RETURN(std::string who, DropPrivileges(limits.another_user));
  // Not earlier: a change of user resets both.
  if (status = DieWith(limits.parent); !status.ok()) return status;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return absl::FailedPreconditionError("prctl(PR_SET_NO_NEW_PRIVS) fails");
  }
  absl::StatusOr<int> landlock = 0;
  if (limits.wall_paths) {
    std::vector<std::string> paths = LibraryPaths();
    paths.insert(paths.end(), std::begin(kSystemPaths), std::end(kSystemPaths));
    landlock = WallPaths(paths);
  }
  if (!landlock.ok()) return landlock.status();
  paths_are_walled = *landlock > 0;
  // A kernel's process has the same user; Landlock or this keeps it from reading its parent's
  // memory.
  if (!paths_are_walled && prctl(PR_SET_DUMPABLE, 0) != 0) {
    return absl::FailedPreconditionError("prctl(PR_SET_DUMPABLE) fails");
  }
  if (status = FilterTunerCalls(); !status.ok()) return status;
  return absl::StrCat(
      "system calls of a list, no file to write, ", who, ", ",
      paths_are_walled ? absl::StrCat("reads libraries and system files (Landlock ", *landlock, ")")
                       : "reads what that user may: this kernel has no Landlock");
}

absl::Status ConfineKernel(int64_t cpu_seconds) {
  RETURN_IF_ERROR(LimitCpu(cpu_seconds));
  RETURN_IF_ERROR(CloseOthers({}));
  return WallForkedProcess();
}

absl::Status ConfineWorker(std::vector<int> descriptors) {
  // A driver's words must not go to what it opens.
  if (a_driver_runs) descriptors.insert(descriptors.end(), {0, 1, 2});
  RETURN_IF_ERROR(CloseOthers(std::move(descriptors)));
  return a_driver_runs ? absl::OkStatus() : WallForkedProcess();
}

void WidenAddressSpace(int64_t bytes) {
  rlimit limit;
  // Already as wide as possible, as in a kernel's process, which may set no limit.
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur + bytes, limit.rlim_max);
  setrlimit(RLIMIT_AS, &limit);
}

void LimitCpuFromNow(int64_t seconds) {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  rlimit limit;
  getrlimit(RLIMIT_CPU, &limit);
  limit.rlim_cur =
      std::min<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1 + seconds, limit.rlim_max);
  setrlimit(RLIMIT_CPU, &limit);
}

}  // namespace athanor
