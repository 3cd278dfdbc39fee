// Runs calls for requests: alone as they are; several with their rows copied together, run once,
// and copied apart.
//
//   Runners runners(&queue, &ledger, /*threads=*/2);
//
// A call for several that fails, for whatever reason, says nothing of which of them is at fault:
// then each runs alone and gets its own status.
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

// Where rows of several requests meet: one block that grows to what its thread has needed. Used by
// one thread.
class Staging {
 public:
  explicit Staging(ServerLedger* ledger) : ledger_(*ledger) {}

  // `bytes` at a multiple of 64, valid until the next call. RESOURCE_EXHAUSTED: not to be had.
  absl::StatusOr<char*> Block(int64_t bytes);

 private:
  ServerLedger& ledger_;
  ServerLedger::Reservation reserved_;
  std::unique_ptr<char[], void (*)(char*)> data_{nullptr, [](char*) {}};
  int64_t bytes_ = 0;
};

// Runs and answers the batch's requests; its context is back before they are answered.
void RunBatch(Batch batch, RequestQueue& queue, Staging& staging);

// Threads that run what is in a queue. Destroyed once what was pushed has been answered.
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
