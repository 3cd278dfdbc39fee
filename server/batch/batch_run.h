// Runs calls for requests. A request alone is run as it is. For several, copies their rows
// together, runs one call and copies the results apart.
//
//   Runners runners(&queue, &ledger, /*threads=*/2);
//
// If a call for several requests fails, it is unknown which of them caused it. Then each runs alone
// and gets its own status.
#ifndef ATHANOR_SERVER_BATCH_BATCH_RUN_H_
#define ATHANOR_SERVER_BATCH_BATCH_RUN_H_

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/batch/request_queue.h"
#include "server/memory/server_ledger.h"

namespace athanor {

// Memory in which rows of several requests are joined: one block that grows to the most its thread
// has needed. Used by one thread.
class Staging {
 public:
  explicit Staging(ServerLedger* ledger) : ledger_(*ledger) {}

  // Returns `bytes` aligned to 64, valid until the next call. Returns RESOURCE_EXHAUSTED if the
  // ledger or the allocator refuses.
  absl::StatusOr<char*> Block(int64_t bytes);

 private:
  ServerLedger& ledger_;
  ServerLedger::Reservation reserved_;
  std::unique_ptr<char[], void (*)(char*)> data_{nullptr, [](char*) {}};
  int64_t bytes_ = 0;
};

// Runs and answers the batch's requests. Returns its context before answering them.
void RunBatch(Batch batch, RequestQueue& queue, Staging& staging);

// Threads that run the requests of a queue. The destructor returns once all pushed requests have
// been answered.
class Runners {
 public:
  Runners(RequestQueue* queue, ServerLedger* ledger, int threads);
  ~Runners();
  Runners(const Runners&) = delete;
  Runners& operator=(const Runners&) = delete;

 private:
  RequestQueue& queue_;
  std::vector<std::thread> threads_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BATCH_BATCH_RUN_H_
