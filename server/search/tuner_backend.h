// Compiling for real: a tuner process lowers, it or the cache gives the objects, the tuner
// checks them, the runtime's executor runs the plan.
//
//   std::shared_ptr<TunerBackends> backends = TunerBackends::Create(options).value();
//   std::unique_ptr<CompileBackend> backend = backends->New();
//
// Each backend owns one child process for each device that it worked for, started when it is
// needed. What they share (devices, cache, the page of running requests) lives here and outlives
// them.
#ifndef ATHANOR_SERVER_SEARCH_TUNER_BACKEND_H_
#define ATHANOR_SERVER_SEARCH_TUNER_BACKEND_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "runtime/memory/prepared_pool.h"
#include "server/base/options.h"
#include "server/base/traffic.h"
#include "server/child/measuring_turns.h"
#include "server/child/tuner_process.h"
#include "server/plans/compile_backend.h"
#include "server/plans/turns.h"
#include "server/search/tuner_device.h"

namespace athanor {

class TunerBackends final : public CompileBackends {
 public:
  // Opens the devices of --device. Starts the first child unless the cache knows what it would say
  // of the machine: somebody will wait for it. Each child's background work begins at another of
  // `tuner.search_cpus`. FAILED_PRECONDITION if there is no tuner binary.
  static absl::StatusOr<std::shared_ptr<TunerBackends>> Create(const ServerOptions& options,
                                                               TunerOptions tuner = {});

  std::unique_ptr<CompileBackend> New() override;
  absl::StatusOr<std::shared_ptr<PlanRunner>> Load(
      const std::string& device, const Graph& graph, const v1::Plan& plan,
      absl::Span<const KernelObject> objects,
      absl::Span<const std::shared_ptr<const MappedTensor>> parameters,
      MemoryLedger* ledger) override;
  // Of a child of its own where none was ever asked.
  absl::StatusOr<std::vector<std::string>> RuleNames() override;
  std::optional<internal::TargetReply> known_machine(const std::string& device) override;
  Cache* cache() override { return cache_.get(); }
  std::vector<std::string> DeviceNames() const override;
  std::vector<v1::Device> Devices() override;
  std::optional<internal::MachineReply> Limits(const std::string& device) override;
  absl::Status loss(const std::string& device) override;
  void OnLoss(std::function<void()> call) override;
  // Where the plans that are charged to `ledger` share their weights; all of a GPU's share there.
  PreparedPool* pool(const std::string& device, MemoryLedger* ledger) override;

  // Returns the device of this name, the first for an empty one. FAILED_PRECONDITION names those
  // that there are.
  absl::StatusOr<TunerDevice*> Find(const std::string& device) const;
  Traffic* traffic() { return traffic_.get(); }
  Searches* searches() { return &searches_; }

 private:
  TunerBackends() = default;
  void Lost();

  std::unique_ptr<Traffic> traffic_;
  Searches searches_;
  MeasuringTurns turns_;  // of the devices together: all measure beside the host's threads
  std::unique_ptr<Cache> cache_;
  Mutex loss_mu_;  // held during the call, so that nobody is told after OnLoss(nullptr)
  std::function<void()> on_loss_ ABSL_GUARDED_BY(loss_mu_);
  std::vector<std::unique_ptr<TunerDevice>> devices_;  // at least one; as --device names them
  Mutex mu_;
  std::unique_ptr<TunerProcess> first_ ABSL_GUARDED_BY(mu_);  // of the first device
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_TUNER_BACKEND_H_
