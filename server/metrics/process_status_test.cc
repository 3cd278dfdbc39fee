#include "server/metrics/process_status.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A folder like /proc with the files given.
class FakeProc {
 public:
  FakeProc() {
    fs::remove_all(path_);
    fs::create_directories(path_ + "/self/fd");
    for (const char* fd : {"0", "1", "17"}) Write("self/fd/" + std::string(fd), "");
    Write("self/stat",
          "42 (a ) (b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 7 0 1000 123456789 25 1844\n");
    Write("stat", "cpu 1 2\nbtime 1700000000\nprocesses 3\n");
    Write("self/limits",
          "Limit                     Soft Limit           Hard Limit           Units\n"
          "Max open files            1024                 4096                 files\n");
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name, std::ios::trunc) << text;
  }
  std::string Error() { return std::string(ReadProcessStatus(path_).status().message()); }

  const std::string path_ = testing::TempDir() + "/proc";
};

TEST(ProcessStatus, FieldsByHand) {
  FakeProc proc;
  const ProcessStatus status = ReadProcessStatus(proc.path_).value();
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(status.cpu_seconds, 300 / ticks);
  EXPECT_DOUBLE_EQ(status.start_time, 1'700'000'000 + 1000 / ticks);
  EXPECT_EQ(status.virtual_bytes, 123456789);
  EXPECT_EQ(status.resident_bytes, 25 * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(status.threads, 7);
  EXPECT_EQ(status.open_fds, 2);  // without the one that reads the folder
  EXPECT_EQ(status.max_fds, 1024);
  proc.Write("self/limits", "Max open files            unlimited            unlimited   files\n");
  EXPECT_GT(ReadProcessStatus(proc.path_)->max_fds, int64_t{1} << 62);
}

TEST(ProcessStatus, AFileOfAnotherFormIsNamed) {
  for (const std::string name : {"self/stat", "stat", "self/limits"}) {
    for (const std::string& text : {std::string(), std::string("1 (x) S 2"),
                                    std::string("btime soon\nMax open files many\n")}) {
      FakeProc proc;
      proc.Write(name, text);
      EXPECT_THAT(proc.Error(), HasSubstr("/proc/" + name + ": ")) << text;
    }
  }
  EXPECT_FALSE(ReadProcessStatus("/none/such").ok());
}

TEST(ProcessStatus, ThisProcessAgainstOtherCounts) {
  const ProcessStatus before = ReadProcessStatus("/proc").value();
  const int opened[] = {open("/dev/null", O_RDONLY), open("/dev/null", O_RDONLY)};
  const ProcessStatus after = ReadProcessStatus("/proc").value();
  for (int fd : opened) close(fd);
  EXPECT_EQ(after.open_fds, before.open_fds + 2);
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(static_cast<rlim_t>(after.max_fds), limit.rlim_cur);
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const double used = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                      static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  EXPECT_LE(after.cpu_seconds, used + 0.05);
  EXPECT_GE(after.cpu_seconds, before.cpu_seconds);
  EXPECT_LE(after.start_time, static_cast<double>(std::time(nullptr)) + 1);
  EXPECT_GT(after.start_time, static_cast<double>(std::time(nullptr)) - 24 * 3600);
  EXPECT_GT(after.resident_bytes, 1 << 20);
  EXPECT_GE(after.virtual_bytes, after.resident_bytes);
  EXPECT_GE(after.threads, 1);
}

}  // namespace
}  // namespace athanor
