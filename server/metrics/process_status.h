// What the kernel counts of this process, for the metrics that every Prometheus client has.
//
//   const ProcessStatus status = ReadProcessStatus("/proc").value();
#ifndef ATHANOR_SERVER_METRICS_PROCESS_STATUS_H_
#define ATHANOR_SERVER_METRICS_PROCESS_STATUS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace athanor {

struct ProcessStatus {
  double cpu_seconds = 0;  // user and system time of all threads
  double start_time = 0;   // seconds since 1970
  int64_t virtual_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t threads = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
};

// Reads self/stat, self/fd, self/limits and stat below `proc`, in proc(5)'s format. INTERNAL names
// the file that has another one.
absl::StatusOr<ProcessStatus> ReadProcessStatus(const std::string& proc);

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_PROCESS_STATUS_H_
