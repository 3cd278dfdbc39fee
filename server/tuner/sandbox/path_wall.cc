#include "server/tuner/sandbox/path_wall.h"

#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/landlock.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// The rights that a ruleset governs, up to the latest version known here; the system's header may
// be older than the kernel (Documentation/userspace-api/landlock.rst). A kernel accepts a longer
// structure than its own if the unknown rest is zero.
struct RulesetAttributes {
  uint64_t files = 0;
  uint64_t ports = 0;   // version 4
  uint64_t scoped = 0;  // version 6
};
constexpr int kFileRights[] = {0, 13, 14, 15, 15, 16};  // by version: number of low bits
constexpr uint64_t kBindAndConnect = 3;
constexpr uint64_t kSocketsAndSignals = 3;

RulesetAttributes Governed(int version) {
  RulesetAttributes attributes;
  const int last = static_cast<int>(std::size(kFileRights)) - 1;
  attributes.files = (uint64_t{1} << kFileRights[std::min(version, last)]) - 1;
  if (version >= 4) attributes.ports = kBindAndConnect;
  if (version >= 6) attributes.scoped = kSocketsAndSignals;
  return attributes;
}

absl::Status Fails(const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat("Landlock: ", what, ": ", std::strerror(errno)));
}

absl::Status AllowReading(int ruleset, const std::string& path) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();  // nothing to allow
  const absl::Cleanup closer = [fd] { close(fd); };
  landlock_path_beneath_attr rule{LANDLOCK_ACCESS_FS_READ_FILE, fd};
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0) {
    return absl::OkStatus();
  }
  return Fails(path.c_str());
}

}  // namespace

int LandlockVersion() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, size_t{0},
                               uint32_t{LANDLOCK_CREATE_RULESET_VERSION});
  return version < 0 ? 0 : static_cast<int>(version);
}

std::vector<std::string> LoadedLibraries() {
  std::vector<std::string> libraries;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        // Skips the program, which has no name here, and the kernel's vDSO, which has no folder.
        char path[PATH_MAX];
        if (info->dlpi_name[0] == '/' && realpath(info->dlpi_name, path) != nullptr) {
          static_cast<std::vector<std::string>*>(found)->push_back(path);
        }
        return 0;
      },
      &libraries);
  return libraries;
}

const std::vector<std::string>& LibraryPaths() {
  static const std::vector<std::string>& paths = *[] {
    auto* found = new std::vector<std::string>;
    for (const std::string& library : LoadedLibraries()) {
      found->push_back(library.substr(0, library.rfind('/') + 1));
    }
    std::sort(found->begin(), found->end());
    found->erase(std::unique(found->begin(), found->end()), found->end());
    std::erase(*found, "/");  // a library in the root folder is no reason to permit everything
    found->push_back("/etc/ld.so.cache");
    return found;
  }();
  return paths;
}

absl::StatusOr<int> WallPaths(const std::vector<std::string>& read) {
  const int version = LandlockVersion();
  if (version == 0) return 0;
  const RulesetAttributes attributes = Governed(version);
  const long created = syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0u);
  if (created < 0) return Fails("creating a ruleset");
  const int ruleset = static_cast<int>(created);
  const absl::Cleanup closer = [ruleset] { close(ruleset); };
  for (const std::string& path : read) {
    RETURN_IF_ERROR(AllowReading(ruleset, path));
  }
  if (syscall(SYS_landlock_restrict_self, ruleset, 0u) != 0) return Fails("closing it");
  return version;
}

}  // namespace athanor
