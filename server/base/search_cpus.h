// Which CPUs searches are on.
#ifndef ATHANOR_SERVER_BASE_SEARCH_CPUS_H_
#define ATHANOR_SERVER_BASE_SEARCH_CPUS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace athanor {

// Takes the first `cores` of the CPUs that this process may use out of its reach, from this thread
// and those that begin in it, and returns them. 0: none are set aside, and all are returned.
// INVALID_ARGUMENT unless one is left to requests.
absl::StatusOr<std::vector<int>> SetSearchCpusAside(int64_t cores);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_SEARCH_CPUS_H_
