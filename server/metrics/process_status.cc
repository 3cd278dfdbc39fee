#include "server/metrics/process_status.h"

#include <dirent.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Places of fields behind the command's name, which may hold spaces and brackets itself: field 3
// of proc(5) is 0.
enum StatField { kUserTicks = 11, kSystemTicks, kThreads = 17, kStartTicks = 19, kVirtual, kPages };

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status Wrong(const std::string& path) {
  return absl::InternalError(absl::StrCat(path, ": not as proc(5) describes it"));
}

absl::StatusOr<double> BootTime(const std::string& path) {
  for (absl::string_view line : absl::StrSplit(TextOf(path), '\n')) {
    int64_t seconds = 0;
    if (!absl::ConsumePrefix(&line, "btime ")) continue;
    if (absl::SimpleAtoi(line, &seconds)) return static_cast<double>(seconds);
  }
  return Wrong(path);
}

absl::StatusOr<int64_t> MaxFds(const std::string& path) {
  for (absl::string_view line : absl::StrSplit(TextOf(path), '\n')) {
    if (!absl::ConsumePrefix(&line, "Max open files")) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t most = 0;
    if (!fields.empty() && fields[0] == "unlimited") return std::numeric_limits<int64_t>::max();
    if (!fields.empty() && absl::SimpleAtoi(fields[0], &most)) return most;
  }
  return Wrong(path);
}

absl::StatusOr<int64_t> OpenFds(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return Wrong(path);
  int64_t open = -1;  // the one that reads this folder
  while (const dirent* entry = readdir(folder.get())) open += entry->d_name[0] != '.' ? 1 : 0;
  return open;
}

}  // namespace

absl::StatusOr<ProcessStatus> ReadProcessStatus(const std::string& proc) {
  const std::string path = absl::StrCat(proc, "/self/stat");
  const std::string text = TextOf(path);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return Wrong(path);
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(name_end + 1), ' ', absl::SkipEmpty());
  std::vector<int64_t> numbers(kPages + 1);
  if (fields.size() <= kPages) return Wrong(path);
  for (int field : {kUserTicks, kSystemTicks, kThreads, kStartTicks, kVirtual, kPages}) {
    if (!absl::SimpleAtoi(fields[field], &numbers[field])) return Wrong(path);
  }
  ASSIGN_OR_RETURN(const double booted, BootTime(absl::StrCat(proc, "/stat")));
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessStatus status;
  status.cpu_seconds = static_cast<double>(numbers[kUserTicks] + numbers[kSystemTicks]) / ticks;
  status.start_time = booted + static_cast<double>(numbers[kStartTicks]) / ticks;
  status.virtual_bytes = numbers[kVirtual];
  status.resident_bytes = numbers[kPages] * sysconf(_SC_PAGESIZE);
  status.threads = numbers[kThreads];
  ASSIGN_OR_RETURN(status.open_fds, OpenFds(absl::StrCat(proc, "/self/fd")));
  ASSIGN_OR_RETURN(status.max_fds, MaxFds(absl::StrCat(proc, "/self/limits")));
  return status;
}

}  // namespace athanor
