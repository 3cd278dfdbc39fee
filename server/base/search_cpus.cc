#include "server/base/search_cpus.h"

#include "absl/strings/str_cat.h"
#include "runtime/cpu/cpus.h"

namespace athanor {

absl::StatusOr<std::vector<int>> SetSearchCpusAside(int64_t cores) {
  std::vector<int> cpus = UsableCpus();
  if (cores == 0) return cpus;
  if (cores >= static_cast<int64_t>(cpus.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--search_cores=", cores, ": this process may use ", cpus.size(),
                     cpus.size() == 1 ? " core" : " cores",
                     ", and requests need at least one; give at most ", cpus.size() - 1));
  }
  const std::vector<int> requests(cpus.begin() + cores, cpus.end());
  cpus.resize(cores);
  if (!UseCpus(requests)) {
    return absl::FailedPreconditionError(
        "--search_cores: the system refuses to keep this process off cores; start it with 0, and "
        "confined from outside");
  }
  return cpus;
}

}  // namespace athanor
