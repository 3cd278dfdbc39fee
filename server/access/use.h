// Counts what an identity uses, against its quotas: calls a second, calls at once, upload bytes.
//
//   ASSIGN_OR_RETURN(...)  use->BeginCall("team-a", quotas, now);   // RESOURCE_EXHAUSTED: later
//   use->EndCall();
//   pause = use->TakeUpload(bytes, quotas, now);
//
// Outlives the file in which the identity stands: a file that is read again resets no count.
// Thread-safe.
#ifndef ATHANOR_SERVER_ACCESS_USE_H_
#define ATHANOR_SERVER_ACCESS_USE_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// 0: no limit.
struct Quotas {
  int64_t calls_per_second = 0;
  int64_t concurrent_calls = 0;
  int64_t upload_rate = 0;  // bytes per second
  int64_t max_models = 0;   // names
};

class IdentityUse {
 public:
  using Clock = std::chrono::steady_clock;

  // Counts a call of `name`, unless it is one too many. A second's calls may come at once.
  absl::Status BeginCall(absl::string_view name, const Quotas& quotas, Clock::time_point now);
  // For each BeginCall that was OK.
  void EndCall();
  // Returns how long to wait before more is read; an hour at most.
  Clock::duration TakeUpload(int64_t bytes, const Quotas& quotas, Clock::time_point now);

  int64_t calls() const;

 private:
  mutable Mutex mu_;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  // The times at which all calls, and all bytes, would have come at the allowed rate.
  Clock::time_point calls_paid_ ABSL_GUARDED_BY(mu_) = Clock::time_point::min();
  Clock::time_point bytes_paid_ ABSL_GUARDED_BY(mu_) = Clock::time_point::min();
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_ACCESS_USE_H_
