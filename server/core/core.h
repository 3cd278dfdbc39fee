// What every RPC works on: the server's parts and how many calls it has taken.
//
//   CallSlot slot(core, context->peer());       // for the time of a call
//   if (absl::Status s = slot.status(); !s.ok()) ...   // draining, or too many
//
// Parts are destroyed in reverse order: compile workers before the registry they publish to.
#ifndef ATHANOR_SERVER_CORE_CORE_H_
#define ATHANOR_SERVER_CORE_CORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "server/base/disk.h"
#include "server/base/options.h"
#include "server/base/timer.h"
#include "server/base/work_queue.h"
#include "server/batch/batch_run.h"
#include "server/batch/refusal_pace.h"
#include "server/batch/request_queue.h"
#include "server/jobs/compile_workers.h"
#include "server/keeper/plan_keeper.h"
#include "server/memory/memory_return.h"
#include "server/memory/server_ledger.h"
#include "server/metrics/metrics.h"
#include "server/models/plan_loader.h"
#include "server/models/registry.h"
#include "server/net/peers.h"
#include "server/net/rate_limit.h"
#include "server/net/upload_places.h"
#include "server/storage/cache_keys.h"

namespace athanor {

class ServerCore {
 public:
  // Opens the state directory and restores what served (restore/restore.h); every other stored
  // version has a compile job. `disk` outlives the core; null means the machine's.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(
      const ServerOptions& options, std::shared_ptr<CompileBackends> backends,
      Disk* disk = nullptr);
  ~ServerCore();

  const ServerOptions& options() const { return options_; }
  ServerLedger& ledger() { return ledger_; }
  Metrics& metrics() { return metrics_; }
  const MemoryReturn& memory_return() const { return memory_return_; }
  Registry& registry() { return *registry_; }
  CompileWorkers& workers() { return *workers_; }
  CompileBackends& backends() { return *backends_; }
  Timer& timer() { return timer_; }
  // One that holds nothing where plans are not kept.
  Cache& cache() { return no_cache_ != nullptr ? *no_cache_ : *backends_->cache(); }
  PlanKeeper& keeper() { return *keeper_; }
  const CacheKeys& cache_keys() const { return cache_keys_; }
  WorkQueue& disk_queue() { return *disk_queue_; }  // calls that write or wait for the disk
  // Commits of ONNX models: what they import and hash takes seconds, and no other call waits for
  // it.
  WorkQueue& import_queue() { return *import_queue_; }
  // Calls that look at the whole cache: they may take long, and no upload waits for them.
  WorkQueue& cache_queue() { return *cache_queue_; }
  // Messages that inflate to much: other calls do not wait for that on gRPC's threads.
  WorkQueue& inflate_queue() { return *inflate_queue_; }
  RequestQueue& requests() { return *requests_; }  // that wait for a run
  RefusalPace& refusals() { return refusals_; }    // of requests that may not

  bool draining() const { return draining_.load(std::memory_order_acquire); }
  // New calls are refused from here on.
  void StartDraining() { draining_.store(true, std::memory_order_release); }
  int64_t active_calls() const { return calls_.load() + streams_.load(); }
  int64_t uploads() const { return upload_places_.taken(); }
  UploadPlaces& upload_places() { return upload_places_; }  // imports count too
  ConnectionCalls& connection_calls() { return connection_calls_; }
  RateLimit& upload_rate() { return upload_rate_; }  // of uploads and imports, in bytes

 private:
  friend class CallSlot;
  ServerCore(const ServerOptions& options, std::shared_ptr<CompileBackends> backends,
             DirectoryLock lock);
  void RestoreVersions();

  const ServerOptions options_;
  const std::shared_ptr<CompileBackends> backends_;
  const std::unique_ptr<Cache> no_cache_;  // where the backends have none
  DirectoryLock lock_;
  Disk machine_disk_;
  CacheKeys cache_keys_;
  Metrics metrics_;
  MemoryReturn memory_return_;  // told by the ledger
  ServerLedger ledger_;
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> streams_{0};
  PeerShares stream_shares_;
  ConnectionCalls connection_calls_;
  UploadPlaces upload_places_;
  RateLimit upload_rate_;
  RefusalPace refusals_;
  Timer timer_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<PlanKeeper> keeper_;
  std::unique_ptr<PlanLoader> loader_;
  std::unique_ptr<CompileWorkers> workers_;
  std::unique_ptr<RequestQueue> requests_;
  std::unique_ptr<Runners> runners_;
  std::unique_ptr<WorkQueue> disk_queue_;
  std::unique_ptr<WorkQueue> import_queue_;
  std::unique_ptr<WorkQueue> cache_queue_;
  std::unique_ptr<WorkQueue> inflate_queue_;
};

// Streams live as long as who watches: they may not keep requests out.
enum class CallKind : uint8_t { kCall, kStream };

// One call being answered.
class CallSlot {
 public:
  // `peer` as gRPC has it; without one, of no connection.
  explicit CallSlot(ServerCore& core, absl::string_view peer = "", CallKind kind = CallKind::kCall);
  ~CallSlot();
  CallSlot(const CallSlot&) = delete;
  CallSlot& operator=(const CallSlot&) = delete;

  // UNAVAILABLE while draining, RESOURCE_EXHAUSTED above --max_pending or, of streams,
  // --max_streams and the peer's share of them. Counts what it refuses: to be asked once.
  absl::Status status() const;

 private:
  std::atomic<int64_t>& counter() const {
    return kind_ == CallKind::kStream ? core_.streams_ : core_.calls_;
  }

  ServerCore& core_;
  const CallKind kind_;
  const int port_;
  const std::string host_;  // of streams
  const bool in_share_;
  const int64_t count_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CORE_CORE_H_
