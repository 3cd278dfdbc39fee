// Sets CPUs aside for searches.
#ifndef ATHANOR_SERVER_BASE_SEARCH_CPUS_H_
#define ATHANOR_SERVER_BASE_SEARCH_CPUS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace athanor {

// Removes the first `cores` of the CPUs that this process may use from the affinity mask of this
// thread and of those it starts later, and returns them. If `cores` is 0, sets none aside and
// returns all. Returns INVALID_ARGUMENT unless at least one CPU is left for requests.
absl::StatusOr<std::vector<int>> SetSearchCpusAside(int64_t cores);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_SEARCH_CPUS_H_
