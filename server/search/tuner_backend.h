// Compiling for real: a tuner process lowers, it or the cache gives the objects, the tuner
// checks them, the runtime's executor runs the plan.
//
//   std::shared_ptr<TunerBackends> backends = TunerBackends::Create(options).value();
//   std::unique_ptr<CompileBackend> backend = backends->New();
//
// Each backend owns one child process, started when it is needed. What they share (device, cache,
// the machine's target, the page of running requests) lives here and outlives them.
#ifndef ATHANOR_SERVER_SEARCH_TUNER_BACKEND_H_
#define ATHANOR_SERVER_SEARCH_TUNER_BACKEND_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "runtime/cuda/device.h"
#include "runtime/device.h"
#include "runtime/prepared_pool.h"
#include "server/base/options.h"
#include "server/base/traffic.h"
#include "server/child/measuring_turns.h"
#include "server/child/tuner_process.h"
#include "server/memory/server_ledger.h"
#include "server/plans/compile_backend.h"
#include "server/search/machine_limits.h"

namespace athanor {

class TunerBackends final : public CompileBackends {
 public:
  // Starts the first child unless the cache knows what it would say of the machine: somebody will
  // wait for it. Each child's background work begins at another of `tuner.search_cpus`.
  // FAILED_PRECONDITION if there is no tuner binary.
  static absl::StatusOr<std::shared_ptr<TunerBackends>> Create(const ServerOptions& options,
                                                               TunerOptions tuner = {});

  std::unique_ptr<CompileBackend> New() override;
  absl::StatusOr<std::shared_ptr<PlanRunner>> Load(
      const Graph& graph, const v1::Plan& plan, absl::Span<const KernelObject> objects,
      absl::Span<const std::shared_ptr<const MappedTensor>> parameters,
      MemoryLedger* ledger) override;
  // Of a child of its own where none was ever asked.
  absl::StatusOr<std::vector<std::string>> RuleNames() override;
  std::optional<internal::TargetReply> known_machine() override;
  Cache* cache() override { return cache_.get(); }
  std::vector<v1::Device> Devices() override;
  std::optional<internal::MachineReply> Limits() override { return limits_.known(); }
  absl::Status loss() override;
  void OnLoss(std::function<void()> call) override;

  // The machine, asked of `tuner` once: what the cache knows is believed as long as no child runs.
  absl::StatusOr<internal::TargetReply> Target(TunerProcess& tuner);
  // What it reaches with the serving threads.
  MachineLimits* limits() { return &limits_; }
  Device* device() { return device_.get(); }
  const std::string& device_name() const { return device_name_; }  // "cpu" or "cuda:0"
  // Where the plans that are charged to `ledger` share their weights; all of a GPU's share there.
  PreparedPool* pool(MemoryLedger* ledger) override;
  Traffic* traffic() { return traffic_.get(); }

 private:
  TunerBackends() = default;

  // Opens --device.
  absl::Status MakeDevice(const ServerOptions& options);
  // Adds what is this server's to what a child says.
  void Complete(internal::TargetReply* reply) const;
  TunerOptions NextOptions();

  int64_t threads_ = 1;
  std::unique_ptr<Traffic> traffic_;
  TunerOptions tuner_options_;
  // What the cache knows a machine and its compiler by (restore/machine_id.h).
  std::string machine_id_, tuner_id_;
  std::atomic<size_t> started_ = 0;
  Mutex loss_mu_;  // held during the call, so that nobody is told after OnLoss(nullptr)
  std::function<void()> on_loss_ ABSL_GUARDED_BY(loss_mu_);
  std::unique_ptr<Device> device_;
  std::string device_name_;
  // A GPU's: what children do not say of the machine, and the memory that it may hold.
  CudaDevice* cuda_ = nullptr;
  std::optional<v1::Target> gpu_;
  std::string driver_;
  std::unique_ptr<ServerLedger> gpu_memory_;
  std::unique_ptr<Cache> cache_;
  MachineLimits limits_;
  MeasuringTurns turns_;
  Mutex mu_;
  std::map<MemoryLedger*, std::unique_ptr<PreparedPool>> pools_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<TunerProcess> first_ ABSL_GUARDED_BY(mu_);
  std::optional<internal::TargetReply> target_ ABSL_GUARDED_BY(mu_);
  bool asked_ ABSL_GUARDED_BY(mu_) = false;  // a child of this server said so
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_TUNER_BACKEND_H_
