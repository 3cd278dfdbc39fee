// A device of a server, with what is its own: memory and its limit, pools of weights, child
// processes, what it reaches, and the target that plans are made for.
//
//   auto device = TunerDevice::Create(OpenDevice("cuda:0", threads, gpus).value(), tuner_options,
//                                     options.nvrtc, shared, [] { Tell(); }).value();
//   device->Load(graph, plan, objects, parameters, &ledger);
#ifndef ATHANOR_SERVER_SEARCH_TUNER_DEVICE_H_
#define ATHANOR_SERVER_SEARCH_TUNER_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/cache/cache.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/model.pb.h"
#include "runtime/memory/prepared_pool.h"
#include "server/base/traffic.h"
#include "server/child/tuner_process.h"
#include "server/memory/server_ledger.h"
#include "server/plans/compile_backend.h"
#include "server/plans/turns.h"
#include "server/search/machine_limits.h"
#include "server/search/open_device.h"

namespace athanor {

// Thread-safe. Outlives the plans it loads.
class TunerDevice {
 public:
  // What all devices of a server share; outlives them.
  struct Shared {
    Cache* cache = nullptr;
    Traffic* traffic = nullptr;
    const Searches* searches = nullptr;
    std::string machine_id, tuner_id;  // by what the cache knows the host and the compiler
    int64_t threads = 1;               // of the CPU
  };

  // `tuner` is for its child processes, which compile with `nvrtc` if it is a GPU. `lost` is called
  // once if it is lost, on any thread.
  static absl::StatusOr<std::unique_ptr<TunerDevice>> Create(OpenedDevice opened,
                                                             TunerOptions tuner,
                                                             const std::string& nvrtc,
                                                             Shared shared,
                                                             std::function<void()> lost);

  const std::string& name() const { return opened_.name; }  // "cuda:0"
  v1::Device Describe();
  absl::Status loss() const {
    return opened_.gpu != nullptr ? opened_.gpu->loss() : absl::OkStatus();
  }
  MachineLimits* limits() { return &limits_; }
  // Counts kernels compiled for it.
  std::atomic<int64_t>* compiled() { return &compiled_; }

  // Returns a child process for it, started by its first call or, with `now`, here.
  absl::StatusOr<std::unique_ptr<TunerProcess>> NewTuner(bool now = false);
  // Returns what is known of the machine without a child process.
  std::optional<internal::TargetReply> known();
  // Asks `tuner` once: what the cache knows is believed as long as no child runs.
  absl::StatusOr<internal::TargetReply> Target(TunerProcess& tuner);

  // As CompileBackends has them.
  absl::StatusOr<std::shared_ptr<PlanRunner>> Load(
      const Graph& graph, const v1::Plan& plan, absl::Span<const KernelObject> objects,
      absl::Span<const std::shared_ptr<const MappedTensor>> parameters, MemoryLedger* ledger);
  PreparedPool* pool(MemoryLedger* ledger);

 private:
  TunerDevice(OpenedDevice opened, TunerOptions tuner, Shared shared)
      : opened_(std::move(opened)),
        tuner_(std::move(tuner)),
        shared_(std::move(shared)),
        turns_(static_cast<int>(shared_.threads), shared_.searches) {}
  absl::Status UseGpu(const std::string& nvrtc, std::function<void()> lost);
  // Adds what is this device's to what a child says.
  void Complete(internal::TargetReply* reply) const;

  const OpenedDevice opened_;
  TunerOptions tuner_;
  Shared shared_;
  Turns turns_;
  // A GPU's: what children do not say of the machine, and the memory that it may hold.
  std::optional<v1::Target> target_of_gpu_;
  std::string driver_;
  std::unique_ptr<ServerLedger> memory_;
  MachineLimits limits_;
  std::atomic<int64_t> compiled_{0};
  std::atomic<size_t> started_{0};
  Mutex mu_;
  std::map<MemoryLedger*, std::unique_ptr<PreparedPool>> pools_ ABSL_GUARDED_BY(mu_);
  std::optional<internal::TargetReply> target_ ABSL_GUARDED_BY(mu_);
  bool asked_ ABSL_GUARDED_BY(mu_) = false;  // a child of this server said so
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_TUNER_DEVICE_H_
