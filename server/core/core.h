// The parts of the server that all RPCs use, and the counts of running calls.
//
//   CallSlot slot(core, context->peer());       // held during a call
//   if (absl::Status s = slot.status(); !s.ok()) ...   // draining, or too many
//
// Parts are destroyed in reverse order: compile workers before the registry they publish to.
#ifndef ATHANOR_SERVER_CORE_CORE_H_
#define ATHANOR_SERVER_CORE_CORE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "server/access/access.h"
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
#include "server/repository/repository.h"
#include "server/shared_memory/shared_regions.h"
#include "server/storage/cache_keys.h"

namespace athanor {

class Tracer;

class ServerCore {
 public:
  // Opens the state directory and restores the plans that served (restore/restore.h); every other
  // stored version gets a compile job. `disk` must outlive the core; null means the machine's disk.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(
      const ServerOptions& options, std::shared_ptr<CompileBackends> backends,
      Disk* disk = nullptr);
  ~ServerCore();

  const ServerOptions& options() const { return options_; }
  std::chrono::system_clock::time_point started() const { return started_; }
  ServerLedger& ledger() { return ledger_; }
  Tracer* tracer() { return tracer_.get(); }  // null: requests are not recorded
  Metrics& metrics() { return metrics_; }
  const MemoryReturn& memory_return() const { return memory_return_; }
  Registry& registry() { return *registry_; }
  CompileWorkers& workers() { return *workers_; }
  Repository* repository() { return repository_.get(); }  // null without --model_repository
  CompileBackends& backends() { return *backends_; }
  // The devices that execute models, as they are now.
  std::vector<v1::Device> Devices();
  // Return whether calls for models of a device, or of any, can be answered: not while draining,
  // nor on a lost device; of any, not before the models of --model_repository are loaded either.
  bool serves(const std::string& device) { return !draining() && backends_->loss(device).ok(); }
  bool serves();
  // Reports whether models of --model_repository are still being loaded for the first time.
  bool loading() const { return repository_ != nullptr && !repository_->ready(); }
  Timer& timer() { return timer_; }
  // An empty cache if plans are not kept.
  Cache& cache() { return no_cache_ != nullptr ? *no_cache_ : *backends_->cache(); }
  PlanKeeper& keeper() { return *keeper_; }
  // Says who may call; everybody without --auth.
  Access& access() { return *access_; }
  const CacheKeys& cache_keys() const { return cache_keys_; }
  WorkQueue& disk_queue() { return *disk_queue_; }  // calls that write or wait for the disk
  // Commits of ONNX models: importing and hashing takes seconds, and no other call should wait for
  // it.
  WorkQueue& import_queue() { return *import_queue_; }
  // Calls that read the whole cache: they may take long, and no upload should wait for them.
  WorkQueue& cache_queue() { return *cache_queue_; }
  // Messages that inflate to a large size: other calls on gRPC's threads should not wait for that.
  WorkQueue& inflate_queue() { return *inflate_queue_; }
  // Templates and tokens of long texts: other calls on the threads that read should not wait for
  // them.
  WorkQueue& text_queue() { return *text_queue_; }
  RequestQueue& requests() { return *requests_; }  // requests that wait to be run
  RefusalPace& refusals() { return refusals_; }    // pace of answers to refused requests
  SharedRegions& regions() { return regions_; }    // of shared memory

  bool draining() const { return draining_.load(std::memory_order_acquire); }
  // Makes the server refuse new calls.
  void StartDraining() { draining_.store(true, std::memory_order_release); }
  int64_t active_calls() const { return calls_.load() + streams_.load(); }
  int64_t uploads() const { return upload_places_.taken(); }
  UploadPlaces& upload_places() { return upload_places_; }  // imports count too
  ConnectionCalls& connection_calls() { return connection_calls_; }
  RateLimit& upload_rate() { return upload_rate_; }  // of uploads and imports together, in bytes

 private:
  friend class CallSlot;
  ServerCore(const ServerOptions& options, std::shared_ptr<CompileBackends> backends,
             DirectoryLock lock);
  void RestoreVersions();
  // Looks every second whether --auth's file has changed.
  void WatchIdentities();
  void TellHeldBack();

  const ServerOptions options_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  const std::shared_ptr<CompileBackends> backends_;
  const std::unique_ptr<Cache> no_cache_;  // set if the backends have no cache
  DirectoryLock lock_;
  Disk machine_disk_;
  CacheKeys cache_keys_;
  std::unique_ptr<Access> access_;
  Metrics metrics_;
  std::unique_ptr<Tracer> tracer_;  // null: off; its last spans are sent behind all that has any
  MemoryReturn memory_return_;      // the ledger reports to it
  ServerLedger ledger_;
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> streams_{0};
  PeerShares stream_shares_;
  ConnectionCalls connection_calls_;
  UploadPlaces upload_places_;
  RateLimit upload_rate_;
  RefusalPace refusals_;
  SharedRegions regions_;
  std::atomic<bool> reading_identities_{false};
  std::unique_ptr<WorkQueue> identity_queue_;  // null without --auth; the timer submits to it
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
  std::unique_ptr<WorkQueue> text_queue_;
  std::unique_ptr<Repository> repository_;
};

// Streams last as long as their watchers stay, so they have a limit of their own and do not
// displace requests.
enum class CallKind : uint8_t { kCall, kStream };

// Counts one call while it is being answered.
class CallSlot {
 public:
  // `peer` as gRPC writes it; empty: the call belongs to no connection.
  explicit CallSlot(ServerCore& core, absl::string_view peer = "", CallKind kind = CallKind::kCall);
  ~CallSlot();
  CallSlot(const CallSlot&) = delete;
  CallSlot& operator=(const CallSlot&) = delete;

  // Returns UNAVAILABLE while draining, RESOURCE_EXHAUSTED above --max_pending or, for streams,
  // above --max_streams or the peer's share of it. Counts refusals: call it once.
  absl::Status status() const;

 private:
  std::atomic<int64_t>& counter() const {
    return kind_ == CallKind::kStream ? core_.streams_ : core_.calls_;
  }

  ServerCore& core_;
  const CallKind kind_;
  const int port_;
  const std::string host_;  // of a stream
  const bool in_share_;
  const int64_t count_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CORE_CORE_H_
