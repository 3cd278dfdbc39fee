#include "server/tuner/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "seccomp: name this architecture's AUDIT_ARCH constant"
#endif

constexpr uint32_t kFail = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kMissing = SECCOMP_RET_ERRNO | ENOSYS;
constexpr uint32_t kEnd = SECCOMP_RET_KILL_PROCESS;

// A program for the kernel's system call filter: rules in order, the first that fits decides.
class Filter {
 public:
  Filter() {
    Load(offsetof(seccomp_data, arch));
    Add(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
    Return(kEnd);
    Load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    // The x32 numbers would go round every rule.
    Add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
    Return(kEnd);
#endif
  }

  void Deny(uint32_t action, std::initializer_list<long> calls) {
    for (long call : calls) {
      Add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1);
      Return(action);
    }
  }
  // Unless the low half of the argument equals `value`.
  void DenyUnlessEqual(uint32_t action, long call, int argument, uint32_t value) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 4);
    LoadArgument(argument);
    Add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    Return(action);
    Load(offsetof(seccomp_data, nr));
  }
  // If any bit of `mask` is set in it (`wanted` true), or if none is.
  void DenyByBits(uint32_t action, long call, int argument, uint32_t mask, bool wanted) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 4);
    LoadArgument(argument);
    Add(BPF_JMP | BPF_JSET | BPF_K, mask, wanted ? 0 : 1, wanted ? 1 : 0);
    Return(action);
    Load(offsetof(seccomp_data, nr));
  }

  absl::Status Install() {
    Return(SECCOMP_RET_ALLOW);
    sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("system call filter (CONFIG_SECCOMP_FILTER): ", std::strerror(errno)));
  }

 private:
  void Add(int code, uint32_t k, int jt, int jf) {
    code_.push_back(
        {static_cast<uint16_t>(code), static_cast<uint8_t>(jt), static_cast<uint8_t>(jf), k});
  }
  void Load(size_t offset) { Add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset), 0, 0); }
  void LoadArgument(int i) { Load(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(i)); }
  void Return(uint32_t action) { Add(BPF_RET | BPF_K, action, 0, 0); }

  std::vector<sock_filter> code_;
};

absl::Status FilterTunerCalls() {
  Filter filter;
  filter.Deny(kEnd, {SYS_execve,
                     SYS_execveat,
                     SYS_ptrace,
                     SYS_process_vm_readv,
                     SYS_process_vm_writev,
                     SYS_socket,
                     SYS_socketpair,
                     SYS_connect,
                     SYS_bind,
                     SYS_listen,
                     SYS_accept,
                     SYS_accept4,
                     SYS_mount,
                     SYS_umount2,
                     SYS_pivot_root,
                     SYS_chroot,
                     SYS_setns,
                     SYS_unshare,
                     SYS_reboot,
                     SYS_swapon,
                     SYS_swapoff,
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
                     SYS_io_setup,
                     SYS_settimeofday,
                     SYS_clock_settime,
                     SYS_clock_adjtime,
                     SYS_adjtimex,
                     SYS_sethostname,
                     SYS_setdomainname,
                     SYS_acct,
                     SYS_quotactl,
                     SYS_open_by_handle_at,
                     SYS_kcmp,
                     SYS_setuid,
                     SYS_setgid,
                     SYS_setreuid,
                     SYS_setregid,
                     SYS_setresuid,
                     SYS_setresgid,
                     SYS_setgroups,
                     SYS_capset});
  filter.Deny(kMissing, {SYS_io_uring_setup, SYS_pidfd_getfd});
  filter.Deny(kFail,
              {SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_mkdirat, SYS_linkat, SYS_symlinkat,
               SYS_mknodat, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_truncate,
               SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_utimensat});
#if defined(__x86_64__)
  filter.Deny(kFail, {SYS_unlink, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_link, SYS_symlink,
                      SYS_mknod, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes});
#endif
  return filter.Install();
}

absl::Status FilterKernelCalls() {
  Filter filter;
  // Threads, yes; processes, no. clone3 hides its flags: libc falls back on clone.
  filter.Deny(kMissing, {SYS_clone3, SYS_openat2});
  filter.DenyByBits(kEnd, SYS_clone, 0, CLONE_THREAD, false);
  const auto self = static_cast<uint32_t>(getpid());
  for (long call : {SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo}) {
    filter.DenyUnlessEqual(kEnd, call, 0, self);
  }
  filter.Deny(kEnd, {SYS_tkill, SYS_pidfd_send_signal, SYS_setsid, SYS_setpgid});
  // Raising limits; asking for them is fine.
  filter.Deny(kEnd, {SYS_setrlimit});
  filter.DenyUnlessEqual(kEnd, SYS_prlimit64, 2, 0);
  filter.DenyUnlessEqual(kFail, SYS_prctl, 0, PR_SET_NAME);
  constexpr uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
  filter.DenyByBits(kFail, SYS_openat, 2, kWriting, true);
#if defined(__x86_64__)
  filter.Deny(kEnd, {SYS_fork, SYS_vfork});
  filter.Deny(kFail, {SYS_creat});
  filter.DenyByBits(kFail, SYS_open, 1, kWriting, true);
#endif
  return filter.Install();
}

absl::Status DieWith(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::FailedPreconditionError("prctl(PR_SET_PDEATHSIG) fails");
  }
  // It may have died before.
  if (getppid() != parent) return absl::FailedPreconditionError("the parent process is gone");
  return absl::OkStatus();
}

absl::Status Limit(int resource, uint64_t value, bool hard, const char* name) {
  rlimit limit{value, hard ? value : RLIM_INFINITY};
  rlimit now;
  // The hard limit can only go down.
  if (getrlimit(static_cast<__rlimit_resource>(resource), &now) == 0) {
    limit.rlim_max = std::min<rlim_t>(limit.rlim_max, now.rlim_max);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, limit.rlim_max);
  }
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("limit ", name, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status ConfineTuner(const TunerLimits& limits) {
  absl::Status status = DieWith(limits.parent);
  if (status.ok()) status = Limit(RLIMIT_CORE, 0, true, "RLIMIT_CORE");
  if (status.ok()) status = Limit(RLIMIT_FSIZE, limits.file_bytes, true, "RLIMIT_FSIZE");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
  // Sanitizers reserve more address space than any limit has.
  if (status.ok() && limits.memory_bytes > 0) {
    status = Limit(RLIMIT_AS, limits.memory_bytes, false, "RLIMIT_AS");
  }
#endif
#endif
  if (status.ok() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    status = absl::FailedPreconditionError("prctl(PR_SET_NO_NEW_PRIVS) fails");
  }
  return status.ok() ? FilterTunerCalls() : status;
}

absl::Status ConfineKernel(pid_t parent, int64_t cpu_seconds) {
  absl::Status status = DieWith(parent);
  if (status.ok()) status = Limit(RLIMIT_CPU, cpu_seconds, true, "RLIMIT_CPU");
  if (status.ok()) status = Limit(RLIMIT_NOFILE, 32, true, "RLIMIT_NOFILE");
  rlimit free_address_space;
  getrlimit(RLIMIT_AS, &free_address_space);
  free_address_space.rlim_cur = free_address_space.rlim_max;
  setrlimit(RLIMIT_AS, &free_address_space);
  syscall(SYS_close_range, 0u, ~0u, 0u);
  return status.ok() ? FilterKernelCalls() : status;
}

void WidenAddressSpace(int64_t bytes) {
  rlimit limit;
  // As wide as it can be, as a kernel's process is, which may set no limit.
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
