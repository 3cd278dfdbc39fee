// The command line tool `athanor`; see commands.h.
#include "absl/synchronization/mutex.h"
#include "clients/cpp/commands/commands.h"

int main(int argc, char** argv) {
  // Debian's Abseil checks for deadlocks at every lock, also at gRPC's; this switches it off.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return athanor::client::RunCli(argc, argv);
}
