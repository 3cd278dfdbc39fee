#include "server/tuner/sandbox/sandbox.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cpu/cpus.h"
#include "server/tuner/run/isolated.h"
#include "server/tuner/sandbox/path_wall.h"
#include "server/tuner/sandbox/sandbox_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

int InThread(int (*code)()) {
  int result = -1;
  std::thread([&] { result = code(); }).join();
  return result;
}

int CanRead(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char byte;
  const bool read_it = fd >= 0 && read(fd, &byte, 1) == 1;
  const int error = errno;
  if (fd >= 0) close(fd);
  return read_it ? 0 : error;
}

int MemoryFile() {
  const int fd = memfd_create("test", MFD_CLOEXEC);
  if (fd < 0 || write(fd, "\xc3", 1) != 1) return -1;
  return fd;
}

// Each returns 0 if it works.
const struct Need {
  const char* name;
  int (*run)();
  bool of_kernels = true;  // else needed by tuners only
} kNeeds[] = {
    {"a thread", [] { return InThread([] { return 0; }); }},
    {"a CPU for a thread",
     [] { return InThread([] { return UseCpus({UsableCpus().front()}) ? 0 : 1; }); }},
    {"a name for a thread",
     [] { return InThread([] { return pthread_setname_np(pthread_self(), "me"); }); }},
    {"a library from the disk", [] { return dlopen("libmvec.so.1", RTLD_NOW) != nullptr ? 0 : 1; }},
    {"code from a memory file",
     [] {
       void* code = mmap(nullptr, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, MemoryFile(), 0);
       if (code == MAP_FAILED) return errno;
       return 0;
     }},
    {"a memory file by its path",
     [] { return CanRead(absl::StrCat("/proc/self/fd/", MemoryFile())); }},
    {"a memory file's size", [] { return ftruncate(MemoryFile(), 1 << 20) == 0 ? 0 : errno; }},
    {"its own size", [] { return CanRead("/proc/self/statm"); }},
    {"its own maps", [] { return CanRead("/proc/self/maps"); }},
    {"sleep",
     [] {
       const timespec moment{0, 1000};
       return nanosleep(&moment, nullptr);
     }},
    {"memory that moves",
     [] {
       void* const data = std::malloc(1 << 20);
       void* const moved = std::realloc(data, 1 << 28);
       std::free(moved);
       return moved == nullptr ? 1 : 0;
     }},
    {"its limits",
     [] {
       rlimit limit;
       return getrlimit(RLIMIT_AS, &limit);
     }},
    {"a pipe by its path",
     [] {
       int ends[2];
       if (pipe2(ends, O_CLOEXEC) != 0) return errno;
       const int fd = open(absl::StrCat("/proc/self/fd/", ends[1]).c_str(),
                           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
       char byte = 0;
       return fd >= 0 && fd != ends[1] && write(fd, "x", 1) == 1 && read(ends[0], &byte, 1) == 1 &&
                      byte == 'x'
                  ? 0
                  : 1;
     },
     false},
    {"a process, and its size",
     [] {
       const pid_t pid = fork();
       if (pid == 0) {
         prctl(PR_SET_PDEATHSIG, SIGKILL);
         for (;;) pause();
       }
       const int error = CanRead(absl::StrCat("/proc/", pid, "/statm"));
       return pid < 0 ? errno : error;
     },
     false},
    {"a signal to itself", [] { return raise(SIGURG); }, false},
    {"less priority",
     [] {
       return InThread([] {
         const sched_param none{};
         return setpriority(PRIO_PROCESS, 0, 19) + sched_setscheduler(0, SCHED_IDLE, &none);
       });
     },
     false},
    {"what the system says of its processors",
     [] { return CanRead("/sys/devices/system/cpu/online"); }, false},
};

TEST(SandboxTest, WhatTheyNeedWorks) {
  for (const Walls& walls : kAllWalls) {
    for (Level level : kAllLevels) {
      for (const Need& need : kNeeds) {
        if (level != kTuner && !need.of_kernels) continue;
        SCOPED_TRACE(ToString(level, walls) + ": " + need.name);
        const Confined result = RunConfined(level, walls, need.run);
        EXPECT_EQ(result.ended_by, 0);
        EXPECT_EQ(result.value, 0) << result.walls;
      }
    }
  }
}

// Returns the fields of this process's state that begin with `fields`, on one line.
std::string State(const char* fields) {
  std::ifstream status("/proc/self/status");
  std::string found;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(fields)) absl::StrAppend(&found, line, ";");
  }
  return found;
}

TEST(SandboxTest, NoPrivilegeStays) {
  // In a container, a process of root may not be permitted to drop its bounding set.
  const bool all = prctl(PR_CAPBSET_DROP, 40, 0, 0, 0) == 0;
  std::vector<Walls> rows(std::begin(kAllWalls), std::end(kAllWalls));
  rows.push_back({.driver = true});
  for (const Walls& walls : rows) {
    for (Level level : kAllLevels) {
      SCOPED_TRACE(ToString(level, walls));
      const Confined result = RunConfined(level, walls, [all] {
        const std::string sets[] = {State("CapInh"), State("CapPrm"), State("CapEff"),
                                    State("CapAmb"), all ? State("CapBnd") : "CapInh:\t0"};
        for (const std::string& set : sets) {
          if (set.empty() || set.find_first_of("123456789abcdef", 8) != set.npos) return 1;
        }
        if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0) return 2;
        return State("NoNewPrivs") == "NoNewPrivs:\t1;" ? 0 : 3;
      });
      EXPECT_EQ(result.value, 0);
    }
  }
}

TEST(SandboxTest, ItSaysWhichWallsStand) {
  const auto words = [](Walls walls) {
    return std::string(RunConfined(kTuner, walls, [] { return 0; }).walls);
  };
  EXPECT_THAT(words({}), HasSubstr("system calls of a list, no file to write"));
  EXPECT_THAT(words({.paths = false}), HasSubstr("no Landlock"));
  EXPECT_THAT(words({.user = false}), HasSubstr(absl::StrCat("user ", getuid(), " ")));
  if (LandlockVersion() > 0) {
    EXPECT_THAT(words({}), HasSubstr(absl::StrCat("(Landlock ", LandlockVersion(), ")")));
  }
}

TEST(SandboxTest, AKernelsProcessHasNoDescriptor) {
  const int inherited = open("/dev/null", O_RDONLY);
  const Confined result = RunConfined(kKernel, {}, [] {
    for (int fd = 0; fd < 1024; ++fd) {
      if (fcntl(fd, F_GETFD) != -1) return fd + 1;
    }
    return 0;
  });
  close(inherited);
  EXPECT_EQ(result.value, 0);
}

TEST(SandboxTest, AWorkersProcessHasTheDescriptorsOfItsJobs) {
  const int first = open("/dev/null", O_RDONLY), between = open("/dev/null", O_RDONLY),
            last = open("/dev/null", O_RDONLY);
  for (const bool driver : {true, false}) {
    const Confined result = RunConfined(kTuner, {.driver = driver}, [&] {
      const absl::StatusOr<std::unique_ptr<ForkedProcess>> process =
          ForkedProcess::Start([&](absl::Status status) {
            if (!status.ok() || !ConfineWorker({last, first}).ok()) _exit(1);
            for (int fd = 0; fd < 1024; ++fd) {
              const bool wanted = fd == first || fd == last || (driver && fd <= 2);
              if ((fcntl(fd, F_GETFD) != -1) != wanted) _exit(2);
            }
            _exit(0);
          });
      if (!process.ok()) return 3;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      WatchProcess(**process, -1, end, int64_t{1} << 40);
      const int status = (*process)->End();
      return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
    });
    EXPECT_EQ(result.value, 0) << result.walls;
  }
  for (const int fd : {first, between, last}) close(fd);
}

// A driver opens devices, and makes calls that no list has.
TEST(SandboxTest, ADriverMayWriteAndCall) {
  for (Level level : {kTuner, kWorker}) {
    const Confined result = RunConfined(level, {.driver = true}, [] {
      if (open("/dev/null", O_RDWR) < 0) return 1;
      return syscall(SYS_socket, 1, 1, 0) >= 0 ? 0 : 2;
    });
    EXPECT_EQ(result.ended_by, 0);
    EXPECT_EQ(result.value, 0) << result.walls;
    EXPECT_THAT(std::string(result.walls), HasSubstr("without capabilities"));
  }
}

// Makes `call` fail as on a system without it.
bool TakeAway(uint32_t call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SandboxTest, AProcessThatKeepsItsDescriptorsRunsNoKernel) {
  const Confined result = RunConfined(kTuner, {}, [] {
    const auto kernel = [] { return absl::OkStatus(); };
    if (!RunIsolated("a kernel", {}, kernel).ok()) return 1;
    if (!TakeAway(SYS_close_range)) return 2;
    const absl::Status refused = RunIsolated("a kernel", {}, kernel);
    if (!absl::IsFailedPrecondition(refused)) return 3;
    return absl::StrContains(refused.message(), "keep its descriptors: close_range") ? 0 : 4;
  });
  EXPECT_EQ(result.ended_by, 0);
  EXPECT_EQ(result.value, 0) << result.walls;
}

// A crash is the kernel's fault; a kernel ended by somebody else gets no verdict.
TEST(SandboxTest, AKernelThatSomebodyEndsIsNoVerdict) {
  using Pid = std::atomic<pid_t>;
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create(sizeof(Pid));
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (int signal : {SIGTERM, SIGKILL, SIGSEGV}) {
    Pid* const kernel = new (memory->data()) Pid(0);
    const pid_t killer = fork();
    if (killer == 0) {
      while (*kernel == 0) std::this_thread::yield();
      _exit(kill(*kernel, signal) == 0 ? 0 : 1);
    }
    const Confined result = RunConfined(kTuner, {}, [kernel] {
      return static_cast<int>(RunIsolated("a kernel", {}, [kernel] {
                                *kernel = getpid();
                                while (*kernel != 0) std::this_thread::yield();
                                return absl::OkStatus();
                              }).code());
    });
    if (*kernel == 0) kill(killer, SIGKILL);  // it would wait for ever
    int killed = 0;
    waitpid(killer, &killed, 0);
    ASSERT_EQ(killed, 0);
    const auto expected =
        signal == SIGSEGV ? absl::StatusCode::kInternal : absl::StatusCode::kUnavailable;
    EXPECT_EQ(result.value, static_cast<int>(expected));
  }
}

TEST(SandboxTest, AbortEnds) {
  EXPECT_EQ(RunConfined(kTuner, {},
                        [] {
                          std::abort();
                          return 0;
                        })
                .ended_by,
            SIGABRT);
  // The kernel may raise no signal, so abort() ends by an instruction; a sanitizer turns that into
  // an exit.
  const Confined kernel = RunConfined(kKernel, {}, [] {
    std::abort();
    return 0;
  });
  EXPECT_EQ(kernel.value, -1);
}

}  // namespace
}  // namespace athanor
