// Starts a process athanor-tuner: its arguments, its environment, and the descriptors it has. A
// tuner for a GPU has a device worker beside it, another process of the same binary.
//
//   absl::StatusOr<SpawnedTuner> child = SpawnTuner(FindTuner("").value(), options);
#ifndef ATHANOR_SERVER_CHILD_TUNER_SPAWN_H_
#define ATHANOR_SERVER_CHILD_TUNER_SPAWN_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/child/tuner_process.h"

namespace athanor {

// The descriptors are the caller's to close.
struct SpawnedTuner {
  pid_t pid;
  pid_t worker;  // -1: it has none
  int socket;    // our end
  int words;     // memory file: standard error of both
};

// Returns when both have been spawned. UNAVAILABLE: this process has no descriptors left, or the
// system starts no further one. Thread-safe.
absl::StatusOr<SpawnedTuner> SpawnTuner(const std::string& binary, const TunerOptions& options);

// -1 afterwards, and nothing of -1.
void CloseFd(int* fd);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_TUNER_SPAWN_H_
