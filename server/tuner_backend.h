// Compiling for real: a tuner process lowers, it or the cache gives the objects, the tuner
// checks them, the runtime's executor runs the plan.
//
//   std::unique_ptr<TunerBackends> backends = TunerBackends::Create(options).value();
//   CompileBackendFactory factory = [&](MemoryLedger* ledger) { return backends->New(ledger); };
//
// Each backend owns one child process. What they share (device, cache, the machine's target,
// the page of running requests) lives here and outlives them.
#ifndef ATHANOR_SERVER_TUNER_BACKEND_H_
#define ATHANOR_SERVER_TUNER_BACKEND_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cache/cache.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "runtime/cpu/device.h"
#include "runtime/prepared_pool.h"
#include "server/compile_backend.h"
#include "server/machine_limits.h"
#include "server/measuring_turns.h"
#include "server/options.h"
#include "server/traffic.h"
#include "server/tuner_process.h"

namespace athanor {

class TunerBackends {
 public:
  // Starts the first child. Each child's background work begins at another of `tuner.search_cpus`.
  // FAILED_PRECONDITION if there is no tuner binary.
  static absl::StatusOr<std::unique_ptr<TunerBackends>> Create(const ServerOptions& options,
                                                               TunerOptions tuner = {});

  std::unique_ptr<CompileBackend> New(MemoryLedger* ledger);

  // The machine, asked of `tuner` once.
  absl::StatusOr<internal::TargetReply> Target(TunerProcess& tuner);
  // Names of the rules and families of its search; of a child of its own where none was asked yet.
  absl::StatusOr<std::vector<std::string>> RuleNames();
  // What it reaches with the serving threads.
  MachineLimits* limits() { return &limits_; }
  Device* device() { return device_.get(); }
  // Where the plans that are charged to `ledger` share their prepared weights.
  PreparedPool* pool(MemoryLedger* ledger);
  Traffic* traffic() { return traffic_.get(); }
  Cache& cache() { return *cache_; }

 private:
  TunerBackends() = default;

  TunerOptions NextOptions();

  int64_t threads_ = 1;
  std::unique_ptr<Traffic> traffic_;
  TunerOptions tuner_options_;
  std::atomic<size_t> started_ = 0;
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Cache> cache_;
  MachineLimits limits_;
  MeasuringTurns turns_;
  Mutex mu_;
  std::map<MemoryLedger*, std::unique_ptr<PreparedPool>> pools_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<TunerProcess> first_ ABSL_GUARDED_BY(mu_);
  std::optional<internal::TargetReply> target_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_BACKEND_H_
