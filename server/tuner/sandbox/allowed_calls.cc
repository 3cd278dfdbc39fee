#include "server/tuner/sandbox/allowed_calls.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/sandbox/call_filter.h"

namespace athanor {
namespace {

constexpr uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
constexpr uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                 CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// Allows calls that do not reach beyond the process and change nothing but its memory and
// descriptors.
void AllowOwnMatters(CallFilter* filter) {
  filter->Allow({SYS_futex,     SYS_read,       SYS_write,        SYS_mmap,         SYS_munmap,
                 SYS_mprotect,  SYS_madvise,    SYS_mremap,       SYS_brk,          SYS_close,
                 SYS_fstat,     SYS_newfstatat, SYS_pread64,      SYS_pwrite64,     SYS_readv,
                 SYS_writev,    SYS_lseek,      SYS_memfd_create, SYS_pipe2,        SYS_ftruncate,
                 SYS_fadvise64, SYS_statx,      SYS_statfs,       SYS_fstatfs,      SYS_readlinkat,
                 SYS_faccessat, SYS_faccessat2, SYS_getcwd,       SYS_close_range,  SYS_dup,
                 SYS_mincore,   SYS_membarrier, SYS_mbind,        SYS_get_mempolicy});
  filter->Allow({SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending,
                 SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_restart_syscall});
  filter->Allow({SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep,
                 SYS_gettimeofday, SYS_times, SYS_getrusage, SYS_sched_yield, SYS_getcpu,
                 SYS_sched_getaffinity, SYS_sched_getscheduler, SYS_sched_getparam,
                 SYS_sched_getattr, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
                 SYS_getpriority});
  filter->Allow({SYS_set_robust_list, SYS_set_tid_address, SYS_rseq, SYS_futex_waitv, SYS_exit,
                 SYS_exit_group, SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid,
                 SYS_getgid, SYS_getegid, SYS_getrlimit, SYS_uname, SYS_sysinfo, SYS_getrandom,
                 SYS_ppoll});
  // Excludes the commands that send signals to other processes.
  filter->AllowIf(
      SYS_fcntl,
      {Argument(1).OneOf({F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC})}, kRefuse);
  filter->AllowIf(SYS_ioctl, {Argument(1).OneOf({TCGETS})}, kRefuse);  // isatty
  filter->AllowIf(SYS_sched_setaffinity, {Argument(0).OneOf({0})}, kRefuse);
#if defined(__x86_64__)
  filter->Allow({SYS_stat, SYS_lstat, SYS_access, SYS_pipe, SYS_readlink, SYS_poll, SYS_pause,
                 SYS_time, SYS_arch_prctl});
#endif
}

// Ends processes that make calls which no library makes by itself: attacks.
void EndAttackers(CallFilter* filter) {
  filter->Refuse(kEndProcess, {SYS_execve,
                               SYS_execveat,
                               SYS_ptrace,
                               SYS_process_vm_readv,
                               SYS_process_vm_writev,
                               SYS_pidfd_getfd,
                               SYS_pidfd_send_signal,
                               SYS_socket,
                               SYS_socketpair,
                               SYS_connect,
                               SYS_bind,
                               SYS_listen,
                               SYS_accept,
                               SYS_accept4,
                               SYS_mount,
                               SYS_umount2,
                               SYS_move_mount,
                               SYS_open_tree,
                               SYS_fsopen,
                               SYS_pivot_root,
                               SYS_chroot,
                               SYS_setns,
                               SYS_unshare,
                               SYS_reboot,
                               SYS_init_module,
                               SYS_finit_module,
                               SYS_delete_module,
                               SYS_kexec_load,
                               SYS_bpf,
                               SYS_perf_event_open,
                               SYS_userfaultfd,
                               SYS_keyctl,
                               SYS_add_key,
                               SYS_request_key,
                               SYS_clock_settime,
                               SYS_settimeofday,
                               SYS_open_by_handle_at,
                               SYS_kcmp,
                               SYS_setuid,
                               SYS_setgid,
                               SYS_setreuid,
                               SYS_setregid,
                               SYS_setresuid,
                               SYS_setresgid,
                               SYS_setgroups,
                               SYS_capset,
                               SYS_setsid,
                               SYS_setpgid,
                               SYS_tkill,
                               SYS_rt_sigqueueinfo,
                               SYS_rt_tgsigqueueinfo});
}

// Returns a duplicate of the descriptor whose path in /proc/self/fd is `path`, or a negative errno.
int OpenOwnDescriptor(const char* path) {
  constexpr char kFolder[] = "/proc/self/fd/";
  if (std::strncmp(path, kFolder, sizeof(kFolder) - 1) != 0) return -EACCES;
  int fd = 0;
  const char* digit = path + sizeof(kFolder) - 1;
  for (; *digit >= '0' && *digit <= '9' && fd < 1'000'000; ++digit) fd = 10 * fd + (*digit - '0');
  if (*digit != '\0' || digit[-1] == '/') return -EACCES;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return copy >= 0 ? copy : -errno;
}

// Handles SIGSYS in place of a call that would have opened a file for writing.
void AnswerOpen(int, siginfo_t* info, void* context) {
  const int before = errno;
  mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto path = machine.gregs[info->si_syscall == SYS_open ? REG_RDI : REG_RSI];
  machine.gregs[REG_RAX] = OpenOwnDescriptor(reinterpret_cast<const char*>(path));
#else
  machine.regs[0] = OpenOwnDescriptor(reinterpret_cast<const char*>(machine.regs[1]));
#endif
  errno = before;
}

absl::Status HandleOpens() {
  struct sigaction action{};
  action.sa_sigaction = AnswerOpen;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, nullptr) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("handler of SIGSYS: ", std::strerror(errno)));
}

void AllowReading(CallFilter* filter, uint32_t otherwise) {
  filter->AllowIf(SYS_openat, {Argument(2).HasNoneOf(kWriting)}, otherwise);
#if defined(__x86_64__)
  filter->AllowIf(SYS_open, {Argument(1).HasNoneOf(kWriting)}, otherwise);
#endif
}

}  // namespace

absl::Status FilterTunerCalls() {
  RETURN_IF_ERROR(HandleOpens());
  const auto self = static_cast<uint32_t>(getpid());
  CallFilter filter;
  AllowOwnMatters(&filter);
  AllowReading(&filter, kAskHandler);
  filter.Allow({SYS_recvfrom, SYS_sendto, SYS_wait4, SYS_waitid, SYS_pidfd_open, SYS_fallocate});
  filter.AllowIf(SYS_clone, {Argument(0).HasNoneOf(kNamespaces)}, kEndProcess);
  // A process forked from this one has another id and may raise no signal: there, libc's abort()
  // ends the process by an instruction.
  filter.AllowIf(SYS_tgkill, {Argument(0).OneOf({self})}, kRefuse);
  filter.AllowIf(SYS_kill, {Argument(0).OneOf({self})}, kEndProcess);
  filter.AllowIf(SYS_prlimit64, {Argument(0).OneOf({0, self})}, kEndProcess);
  filter.AllowIf(SYS_setpriority, {Argument(0).OneOf({PRIO_PROCESS}), Argument(1).OneOf({0})},
                 kRefuse);
  filter.AllowIf(SYS_sched_setscheduler, {Argument(0).OneOf({0})}, kRefuse);
  filter.AllowIf(SYS_sched_setattr, {Argument(0).OneOf({0})}, kRefuse);
  // A kernel's process confines itself with the last two, and with Landlock.
  filter.AllowIf(SYS_prctl,
                 {Argument(0).OneOf({PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, PR_SET_TIMERSLACK,
                                     PR_SET_PDEATHSIG, PR_SET_SECCOMP})},
                 kRefuse);
  filter.Allow({SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self});
  EndAttackers(&filter);
  return filter.Install();
}

absl::Status FilterKernelCalls() {
  CallFilter filter;
  AllowOwnMatters(&filter);
  AllowReading(&filter, kRefuse);
  // Allows threads but not processes. clone3, which hides its flags, fails with ENOSYS: libc falls
  // back on clone.
  filter.AllowIf(SYS_clone,
                 {Argument(0).HasOneOf(CLONE_THREAD), Argument(0).HasNoneOf(kNamespaces)},
                 kEndProcess);
  // Denies setting limits; querying them is allowed.
  filter.AllowIf(SYS_prlimit64, {Argument(0).OneOf({0}), Argument(2).Null()}, kEndProcess);
  filter.AllowIf(SYS_prctl, {Argument(0).OneOf({PR_SET_NAME, PR_GET_NAME, PR_SET_VMA})}, kRefuse);
  filter.Refuse(kRefuse, {SYS_tgkill});
  filter.Refuse(kEndProcess, {SYS_kill, SYS_setrlimit});
#if defined(__x86_64__)
  filter.Refuse(kEndProcess, {SYS_fork, SYS_vfork});
#endif
  EndAttackers(&filter);
  return filter.Install();
}

}  // namespace athanor
