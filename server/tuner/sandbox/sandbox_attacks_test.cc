// Tests what a compromised tuner or a kernel may try, in both sandboxes and with each set of
// restrictions: no call succeeds, and calls that no library makes by itself end the process.
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/tuner/sandbox/sandbox_testing.h"

namespace athanor {
namespace {

// System calls that the C library's header may not have yet; their numbers are the same on all
// architectures.
constexpr long kFchmodat2 = 452, kMountSetattr = 442, kProcessMrelease = 448, kSetxattrat = 463;

enum Outcome {
  kEnds,       // SIGSYS
  kRefused,    // EPERM, EACCES or ENOSYS; the process lives
  kOwnMatter,  // works, and affects only the process itself
};

struct Attack {
  const char* name;
  int (*run)();
  Outcome tuner;
  Outcome kernel;
};

// A file of the test's user that everybody may read, and its path in /proc while it is open.
std::string victim, open_victim;
int victim_fd = -1;

int OpenAndWrite(const char* path, int flags) {
  const int fd = open(path, flags, 0600);
  // EBADF counts as refused; so does a duplicate that is read-only.
  if (fd < 0) return errno == EBADF ? EACCES : errno;
  return write(fd, "x", 1) == 1 ? 0 : EACCES;
}

template <long call>
int Bare() {
  return Try(call, -1L, 0L, 0L, 0L, 0L, 0L);
}

template <int64_t which, int64_t who>
int Priority() {
  return Try(SYS_setpriority, which, who, 19L);
}

long Parent() { return getppid(); }

const Attack kAttacks[] = {
    // Other processes.
    {"ptrace", [] { return Try(SYS_ptrace, 16L, Parent(), 0L, 0L); }, kEnds, kEnds},
    {"process_vm_readv", [] { return Try(SYS_process_vm_readv, Parent(), 0L, 0L, 0L, 0L, 0L); },
     kEnds, kEnds},
    {"process_vm_writev", [] { return Try(SYS_process_vm_writev, Parent(), 0L, 0L, 0L, 0L, 0L); },
     kEnds, kEnds},
    {"process_madvise", Bare<SYS_process_madvise>, kRefused, kRefused},
    {"process_mrelease", Bare<kProcessMrelease>, kRefused, kRefused},
    {"kcmp", [] { return Try(SYS_kcmp, Parent(), Parent(), 0L, 0L, 0L); }, kEnds, kEnds},
    {"kill of the parent", [] { return Try(SYS_kill, Parent(), 0L); }, kEnds, kEnds},
    {"kill of the group", [] { return Try(SYS_kill, 0L, 0L); }, kEnds, kEnds},
    {"kill of all", [] { return Try(SYS_kill, -1L, 0L); }, kEnds, kEnds},
    {"tgkill of the parent", [] { return Try(SYS_tgkill, Parent(), Parent(), 0L); }, kRefused,
     kRefused},
    {"tkill of the parent", [] { return Try(SYS_tkill, Parent(), 0L); }, kEnds, kEnds},
    {"rt_sigqueueinfo", [] { return Try(SYS_rt_sigqueueinfo, Parent(), 0L, 0L); }, kEnds, kEnds},
    {"pidfd_send_signal", Bare<SYS_pidfd_send_signal>, kEnds, kEnds},
    {"pidfd_getfd", Bare<SYS_pidfd_getfd>, kEnds, kEnds},
    {"signals by fcntl", [] { return Try(SYS_fcntl, 1L, long{F_SETOWN}, Parent()); }, kRefused,
     kRefused},
    {"signals by ioctl", [] { return Try(SYS_ioctl, 1L, long{FIOASYNC}, 0L); }, kRefused, kRefused},
    {"prlimit of the parent",
     [] { return Try(SYS_prlimit64, Parent(), long{RLIMIT_NOFILE}, 0L, 0L); }, kEnds, kEnds},
    {"prlimit of its own",
     [] {
       rlimit limit{16, 16};
       return Try(SYS_prlimit64, 0L, long{RLIMIT_NOFILE}, &limit, 0L);
     },
     kOwnMatter, kEnds},
    {"sched_setaffinity of the parent",
     [] {
       cpu_set_t all;
       sched_getaffinity(0, sizeof(all), &all);
       return Try(SYS_sched_setaffinity, Parent(), sizeof(all), &all);
     },
     kRefused, kRefused},
    {"sched_setscheduler of the parent",
     [] {
       const sched_param none{};
       return Try(SYS_sched_setscheduler, Parent(), long{SCHED_OTHER}, &none);
     },
     kRefused, kRefused},
    {"sched_setattr of the parent", [] { return Try(SYS_sched_setattr, Parent(), 0L, 0L); },
     kRefused, kRefused},
    {"setpriority of the parent",
     [] { return Try(SYS_setpriority, long{PRIO_PROCESS}, Parent(), 19L); }, kRefused, kRefused},
    {"setpriority of the group", Priority<PRIO_PGRP, 0>, kRefused, kRefused},
    {"setpriority of the user", Priority<PRIO_USER, 0>, kRefused, kRefused},
    {"ioprio_set", [] { return Try(SYS_ioprio_set, 1L, Parent(), 0L); }, kRefused, kRefused},
    {"move_pages", [] { return Try(SYS_move_pages, Parent(), 0L, 0L, 0L, 0L, 0L); }, kRefused,
     kRefused},
    {"migrate_pages", [] { return Try(SYS_migrate_pages, Parent(), 0L, 0L, 0L); }, kRefused,
     kRefused},
    {"setpgid", Bare<SYS_setpgid>, kEnds, kEnds},
    {"setsid", Bare<SYS_setsid>, kEnds, kEnds},
    // Programs and processes.
    {"execve", [] { return Try(SYS_execve, "/bin/true", 0L, 0L); }, kEnds, kEnds},
    {"execveat", Bare<SYS_execveat>, kEnds, kEnds},
    {"a process", [] { return Try(SYS_clone, long{SIGCHLD}, 0L, 0L, 0L, 0L) == 0 ? 0 : errno; },
     kOwnMatter, kEnds},
    {"a process in a namespace",
     [] { return Try(SYS_clone, long{SIGCHLD | CLONE_NEWUSER}, 0L, 0L, 0L, 0L); }, kEnds, kEnds},
    {"a thread in a namespace",
     [] { return Try(SYS_clone, long{CLONE_THREAD | CLONE_NEWNS}, 0L, 0L, 0L, 0L); }, kEnds, kEnds},
    {"clone3", [] { return Try(SYS_clone3, 0L, 0L); }, kRefused, kRefused},
    {"personality", [] { return Try(SYS_personality, 0xffffffffL); }, kRefused, kRefused},
    {"setns", Bare<SYS_setns>, kEnds, kEnds},
    {"unshare", [] { return Try(SYS_unshare, 0L); }, kEnds, kEnds},
    {"chroot", [] { return Try(SYS_chroot, 0L); }, kEnds, kEnds},
    {"setuid", [] { return Try(SYS_setuid, long{getuid()}); }, kEnds, kEnds},
    {"setresuid", [] { return Try(SYS_setresuid, -1L, -1L, -1L); }, kEnds, kEnds},
    {"setgroups", [] { return Try(SYS_setgroups, 0L, 0L); }, kEnds, kEnds},
    {"capset", [] { return Try(SYS_capset, 0L, 0L); }, kEnds, kEnds},
    {"prctl: readable memory", [] { return Try(SYS_prctl, long{PR_SET_DUMPABLE}, 1L, 0L, 0L, 0L); },
     kRefused, kRefused},
    {"prctl: a tracer", [] { return Try(SYS_prctl, long{PR_SET_PTRACER}, -1L, 0L, 0L, 0L); },
     kRefused, kRefused},
    {"prctl: outliving its parent",
     [] { return Try(SYS_prctl, long{PR_SET_PDEATHSIG}, 0L, 0L, 0L, 0L); }, kOwnMatter, kRefused},
    {"seccomp", [] { return Try(SYS_seccomp, 0L, 0L, 0L); }, kRefused, kRefused},
    // The kernel.
    {"bpf", Bare<SYS_bpf>, kEnds, kEnds},
    {"userfaultfd", Bare<SYS_userfaultfd>, kEnds, kEnds},
    {"perf_event_open", Bare<SYS_perf_event_open>, kEnds, kEnds},
    {"io_uring_setup", Bare<SYS_io_uring_setup>, kRefused, kRefused},
    {"io_uring_enter", Bare<SYS_io_uring_enter>, kRefused, kRefused},
    {"io_setup", Bare<SYS_io_setup>, kRefused, kRefused},
    {"keyctl", Bare<SYS_keyctl>, kEnds, kEnds},
    {"add_key", Bare<SYS_add_key>, kEnds, kEnds},
    {"request_key", Bare<SYS_request_key>, kEnds, kEnds},
    {"init_module", Bare<SYS_init_module>, kEnds, kEnds},
    {"finit_module", Bare<SYS_finit_module>, kEnds, kEnds},
    {"kexec_load", Bare<SYS_kexec_load>, kEnds, kEnds},
    {"reboot", Bare<SYS_reboot>, kEnds, kEnds},
    {"clock_settime", Bare<SYS_clock_settime>, kEnds, kEnds},
    {"syslog", Bare<SYS_syslog>, kRefused, kRefused},
    {"shmget", Bare<SYS_shmget>, kRefused, kRefused},
    {"msgget", Bare<SYS_msgget>, kRefused, kRefused},
    {"mq_open", Bare<SYS_mq_open>, kRefused, kRefused},
    {"inotify_init1", Bare<SYS_inotify_init1>, kRefused, kRefused},
    {"fanotify_init", Bare<SYS_fanotify_init>, kRefused, kRefused},
    {"timer_create", Bare<SYS_timer_create>, kRefused, kRefused},
    {"not invented yet", Bare<5000>, kRefused, kRefused},
    // The network.
    {"socket", [] { return Try(SYS_socket, 2L, 1L, 0L); }, kEnds, kEnds},
    {"socketpair", [] { return Try(SYS_socketpair, 1L, 1L, 0L, 0L); }, kEnds, kEnds},
    {"connect", Bare<SYS_connect>, kEnds, kEnds},
    {"bind", Bare<SYS_bind>, kEnds, kEnds},
    {"accept4", Bare<SYS_accept4>, kEnds, kEnds},
    {"sendmsg", Bare<SYS_sendmsg>, kRefused, kRefused},
    {"recvmsg", Bare<SYS_recvmsg>, kRefused, kRefused},
    {"TIOCSTI", [] { return Try(SYS_ioctl, 0L, long{TIOCSTI}, "x"); }, kRefused, kRefused},
    // File systems.
    {"mount", Bare<SYS_mount>, kEnds, kEnds},
    {"umount2", Bare<SYS_umount2>, kEnds, kEnds},
    {"pivot_root", Bare<SYS_pivot_root>, kEnds, kEnds},
    {"open_tree", Bare<SYS_open_tree>, kEnds, kEnds},
    {"move_mount", Bare<SYS_move_mount>, kEnds, kEnds},
    {"fsopen", Bare<SYS_fsopen>, kEnds, kEnds},
    {"fsconfig", Bare<SYS_fsconfig>, kRefused, kRefused},
    {"fsmount", Bare<SYS_fsmount>, kRefused, kRefused},
    {"fspick", Bare<SYS_fspick>, kRefused, kRefused},
    {"mount_setattr", Bare<kMountSetattr>, kRefused, kRefused},
    {"quotactl", Bare<SYS_quotactl>, kRefused, kRefused},
    {"open_by_handle_at", Bare<SYS_open_by_handle_at>, kEnds, kEnds},
    {"name_to_handle_at", Bare<SYS_name_to_handle_at>, kRefused, kRefused},
    // Files.
    {"fchmod", [] { return Try(SYS_fchmod, long{victim_fd}, 0777L); }, kRefused, kRefused},
    {"fchmodat", [] { return Try(SYS_fchmodat, -1L, victim.c_str(), 0777L); }, kRefused, kRefused},
    {"fchmodat2", [] { return Try(kFchmodat2, -1L, victim.c_str(), 0777L, 0L); }, kRefused,
     kRefused},
    {"fchown", [] { return Try(SYS_fchown, long{victim_fd}, 0L, 0L); }, kRefused, kRefused},
    {"fchownat", [] { return Try(SYS_fchownat, -1L, victim.c_str(), 0L, 0L, 0L); }, kRefused,
     kRefused},
    {"fsetxattr", Bare<SYS_fsetxattr>, kRefused, kRefused},
    {"setxattrat", Bare<kSetxattrat>, kRefused, kRefused},
    {"utimensat", [] { return Try(SYS_utimensat, -1L, victim.c_str(), 0L, 0L); }, kRefused,
     kRefused},
    {"unlinkat", [] { return Try(SYS_unlinkat, -1L, victim.c_str(), 0L); }, kRefused, kRefused},
    {"renameat2", [] { return Try(SYS_renameat2, -1L, victim.c_str(), -1L, "/tmp/a", 0L); },
     kRefused, kRefused},
    {"linkat", [] { return Try(SYS_linkat, -1L, victim.c_str(), -1L, (victim + "2").c_str(), 0L); },
     kRefused, kRefused},
    {"symlinkat", [] { return Try(SYS_symlinkat, "/", -1L, (victim + "3").c_str()); }, kRefused,
     kRefused},
    {"mkdirat", [] { return Try(SYS_mkdirat, -1L, (victim + "4").c_str(), 0700L); }, kRefused,
     kRefused},
    {"mknodat", [] { return Try(SYS_mknodat, -1L, (victim + "5").c_str(), 0600L, 0L); }, kRefused,
     kRefused},
    {"truncate", [] { return Try(SYS_truncate, victim.c_str(), 0L); }, kRefused, kRefused},
    {"opening to write", [] { return OpenAndWrite(victim.c_str(), O_WRONLY); }, kRefused, kRefused},
    {"opening to empty",
     [] { return Try(SYS_openat, -1L, victim.c_str(), long{O_RDONLY | O_TRUNC}); }, kRefused,
     kRefused},
    {"opening to create", [] { return OpenAndWrite((victim + "6").c_str(), O_RDWR | O_CREAT); },
     kRefused, kRefused},
    {"opening without a name", [] { return OpenAndWrite("/tmp", O_RDWR | O_TMPFILE); }, kRefused,
     kRefused},
    {"opening again to write", [] { return OpenAndWrite(open_victim.c_str(), O_RDWR); }, kRefused,
     kRefused},
    {"opening another process's descriptor",
     [] { return OpenAndWrite(("/proc/" + std::to_string(Parent()) + "/fd/0").c_str(), O_RDWR); },
     kRefused, kRefused},
    {"openat2", [] { return Try(SYS_openat2, -1L, victim.c_str(), 0L, 0L); }, kRefused, kRefused},
#if defined(__x86_64__)
    {"the system calls of x32", Bare<0x40000000 | SYS_getpid>, kEnds, kEnds},
    {"fork", [] { return Try(SYS_fork) == 0 ? 0 : errno; }, kRefused, kEnds},
    {"chmod", [] { return Try(SYS_chmod, victim.c_str(), 0777L); }, kRefused, kRefused},
    {"chown", [] { return Try(SYS_chown, victim.c_str(), 0L, 0L); }, kRefused, kRefused},
    {"unlink", [] { return Try(SYS_unlink, victim.c_str()); }, kRefused, kRefused},
    {"creat", [] { return Try(SYS_creat, (victim + "7").c_str(), 0600L); }, kRefused, kRefused},
    {"open to write", [] { return Try(SYS_open, victim.c_str(), long{O_RDWR}); }, kRefused,
     kRefused},
    {"ioperm", [] { return Try(SYS_ioperm, 0L, 0L, 0L); }, kRefused, kRefused},
    {"modify_ldt", [] { return Try(SYS_modify_ldt, 0L, 0L, 0L); }, kRefused, kRefused},
#endif
};

class SandboxAttacksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    victim = ::testing::TempDir() + "/victim";
    std::ofstream(victim) << "mine";
    victim_fd = open(victim.c_str(), O_RDONLY);
    ASSERT_GE(victim_fd, 0);
    open_victim = "/proc/self/fd/" + std::to_string(victim_fd);
    // As the server is on a system without Landlock.
    prctl(PR_SET_DUMPABLE, 0);
  }
  void TearDown() override { close(victim_fd); }
};

void Expect(Outcome wanted, const Confined& result) {
  switch (wanted) {
    case kEnds:
      EXPECT_EQ(result.ended_by, SIGSYS) << result.value;
      break;
    case kRefused:
      EXPECT_EQ(result.ended_by, 0);
      EXPECT_TRUE(result.value == EPERM || result.value == EACCES || result.value == ENOSYS)
          << strerror(result.value);
      break;
    case kOwnMatter:
      EXPECT_EQ(result.ended_by, 0);
      EXPECT_EQ(result.value, 0);
      break;
  }
}

TEST_F(SandboxAttacksTest, NoneGetsThrough) {
  for (const Walls& walls : kAllWalls) {
    for (Level level : kAllLevels) {
      for (const Attack& attack : kAttacks) {
        SCOPED_TRACE(ToString(level, walls) + ": " + attack.name);
        Expect(level == kTuner ? attack.tuner : attack.kernel,
               RunConfined(level, walls, attack.run));
      }
    }
  }
  std::string content;
  std::ifstream(victim) >> content;
  EXPECT_EQ(content, "mine");
  for (int i = 2; i <= 7; ++i) EXPECT_NE(access((victim + std::to_string(i)).c_str(), F_OK), 0);
}

#if defined(__x86_64__)
TEST_F(SandboxAttacksTest, SystemCallsOf32BitProgramsEndTheProcess) {
  for (Level level : kAllLevels) {
    const Confined result = RunConfined(level, {}, [] {
      int value = 20;  // getpid
      asm volatile("int $0x80" : "+a"(value) : : "memory");
      return 0;
    });
    // SIGSEGV if the kernel has no 32-bit calls.
    EXPECT_TRUE(result.ended_by == SIGSYS || result.ended_by == SIGSEGV) << result.ended_by;
  }
}
#endif

TEST_F(SandboxAttacksTest, FilesStayClosed) {
  const std::string key = ::testing::TempDir() + "/key.pem";
  std::ofstream(key) << "secret";
  ASSERT_EQ(chmod(key.c_str(), 0600), 0);
  const bool root = geteuid() == 0;
  enum When { kAlways, kByLandlockOrUser, kByLandlock };
  const struct {
    const char* path;  // % stands for the parent's process id
    When closed;
  } rows[] = {
      {"/proc/%/mem", kAlways},
      {"/proc/%/environ", kAlways},
      {"/proc/%/maps", kAlways},
      {"/proc/%/fd", kByLandlockOrUser},
      {"/etc/shadow", root ? kByLandlockOrUser : kAlways},
      {"/dev/kmsg", kByLandlock},
      {key.c_str(), root ? kByLandlockOrUser : kByLandlock},
      {victim.c_str(), kByLandlock},
      {open_victim.c_str(), kByLandlock},
      {"/etc/passwd", kByLandlock},
      {"/etc", kByLandlock},
      {"/", kByLandlock},
      {"/proc/self/root/etc/passwd", kByLandlock},
      {"/proc/self/cwd", kByLandlock},
  };
  for (const Walls& walls : kAllWalls) {
    for (Level level : kAllLevels) {
      for (const auto& row : rows) {
        SCOPED_TRACE(ToString(level, walls) + ": " + row.path);
        std::string path = row.path;
        const Confined result = RunConfined(level, walls, [&] {
          if (const size_t at = path.find('%'); at != path.npos) {
            path.replace(at, 1, std::to_string(Parent()));
          }
          return Try(SYS_openat, -1L, path.c_str(), long{O_RDONLY});
        });
        EXPECT_EQ(result.ended_by, 0);
        const std::string stand = result.walls;
        const bool landlock = stand.find("Landlock ") != stand.npos;
        const bool nobody = stand.find("user 65534 ") != stand.npos;
        if (row.closed == kAlways || (row.closed == kByLandlockOrUser && nobody) || landlock) {
          EXPECT_NE(result.value, 0) << stand;
        }
      }
    }
  }
}

}  // namespace
}  // namespace athanor
