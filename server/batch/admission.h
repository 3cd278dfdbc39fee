// Decides which requests may wait in a RequestQueue: counts those that wait by model and client, so
// that each client has its share of a model's queue, and refuses waits that would be too long.
//
//   if (absl::Status s = admission.CheckWait(ticket, ahead, cost); !s.ok()) return s;
//   absl::StatusOr<std::optional<std::string>> evicted = admission.MakeRoom(ticket);
//   ... answer the newest request of that client with EvictedError, and Remove it ...
//   admission.Add(ticket);
//
// Not thread-safe: the queue locks.
#ifndef ATHANOR_SERVER_BATCH_ADMISSION_H_
#define ATHANOR_SERVER_BATCH_ADMISSION_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/batch/queued_request.h"

namespace athanor {

struct QueueOptions {
  int64_t max_queue = 256;          // most waiting requests of one model
  int64_t max_client_percent = 50;  // share of it for one client while others wait too
  // Longest predicted wait of an admitted request; 0: no limit.
  std::chrono::microseconds max_delay{0};
  std::chrono::microseconds batch_delay{0};  // longest time that a request waits for others to join
  int threads = 1;                           // number of runner threads
};

class Admission {
 public:
  // Runs of its own that a client may have queued, however long they take.
  static constexpr int kMostRuns = 4;

  // Microseconds of runs before a ticket's own, as if on one thread.
  struct Ahead {
    double all = 0;
    double apart = 0;  // the same if no other client's runs came between those of its client
    // Says that runs of the ticket's model were timed, so that predictions of them can be told.
    bool measured = false;
  };

  explicit Admission(const QueueOptions& options) : options_(options) {}

  // Count a request that begins to wait, and one that waits no more.
  void Add(const Ticket& ticket);
  void Remove(const Ticket& ticket);
  bool waits(const std::string& model) const { return held_.contains(model); }

  // Returns RESOURCE_EXHAUSTED, with the numbers and when to come again
  // (server/base/retry_after.h), if the predicted wait exceeds `max_delay`, which must be set.
  // `cost`: predicted microseconds of the ticket's own run.
  absl::Status CheckWait(const Ticket& ticket, const Ahead& ahead, double cost) const;
  // Returns the client whose newest request is to be refused to make room, nullopt if there is
  // room. RESOURCE_EXHAUSTED, with the numbers: the model's queue is full and no client has more
  // requests in it, or the client has its share of it.
  absl::StatusOr<std::optional<std::string>> MakeRoom(const Ticket& ticket) const;
  // Notes in a refusal by MakeRoom, or in EvictedError, when the runs ahead of it will be done.
  absl::Status Later(absl::Status refusal, const Ahead& ahead) const;
  // Returns the error of a request that was refused to make room.
  absl::Status EvictedError(const std::string& model) const;

 private:
  struct Held {  // waiting requests of one model, at all priorities
    int64_t requests = 0;
    absl::flat_hash_map<std::string, int64_t> by_client;
  };

  const QueueOptions options_;
  absl::flat_hash_map<std::string, Held> held_;  // by model
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_ADMISSION_H_
