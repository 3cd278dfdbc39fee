// The tools of a compile worker: lowering, kernel objects and their checks, searching. Each thread
// has a backend of its own, which other threads use for Interrupt only: one to build with, and one
// to search with for as long as there is something to search. CompileBackends holds what all of
// them share and what needs no compiler.
//
//   internal::LowerReply lowered = backend->Lower(graph, /*plain=*/false).value();
//   KernelObject object = backend->CompileKernel(lowered.plan(), 0).value();
//   std::shared_ptr<PlanRunner> runner = backends->Load(graph, plan, objects, ...).value();
//
// The one that serves is over the tuner process and the kernel store (tuner_backend.h); tests of
// the server put the reference evaluator in its place.
#ifndef ATHANOR_SERVER_PLANS_COMPILE_BACKEND_H_
#define ATHANOR_SERVER_PLANS_COMPILE_BACKEND_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/cache/cache.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/memory/prepared_pool.h"
#include "server/plans/plan_runner.h"
#include "server/plans/plan_search.h"
#include "server/storage/tensor_store.h"

namespace athanor {

class CompileBackend {
 public:
  virtual ~CompileBackend() = default;

  // Works from now on for this of the server's devices (ModelVersion::device); searches that were
  // begun stay with theirs. Not while another call runs.
  virtual void Use(const std::string& device) {}
  // The machine that plans are made for; asks a compiler where nobody has asked one yet.
  // UNIMPLEMENTED: plans are not kept here.
  virtual absl::StatusOr<internal::TargetReply> Machine() = 0;
  // The baseline plan for the full range of the dims; `plain`: made the simplest way, each op by
  // itself, for where a kernel of the other turned out wrong.
  virtual absl::StatusOr<internal::LowerReply> Lower(const Graph& graph, bool plain) = 0;
  // plan.kernels(index) as the runtime loads it. A crash of the compiler costs one more try.
  virtual absl::StatusOr<KernelObject> CompileKernel(const v1::Plan& plan, int index) = 0;
  // Compares a kernel of the plan with the reference evaluator, unless it is known to have passed.
  // `objects`, by plan.kernels, need only hold those that the check runs. DATA_LOSS: it is wrong.
  virtual absl::Status CheckKernel(const v1::Plan& plan, const internal::KernelCheck& check,
                                   absl::Span<const KernelObject> objects) = 0;
  // Compares a plan that a search once found, and of which kernels were compiled again, as a whole
  // with the baseline and with f64. DATA_LOSS: it is wrong.
  virtual absl::Status Verify(const Graph& graph, const CompiledPlan& plan) = 0;
  // A search for a plan of `graph` that is faster than `serving`.
  virtual absl::StatusOr<std::unique_ptr<PlanSearch>> NewSearch(
      const Graph& graph, CompiledPlan serving, const PlanSearchOptions& options) = 0;
  // Searches that it holds: one more pushes out another, which then begins again.
  virtual size_t most_searches() const = 0;
  // From any thread: what runs ends soon with CANCELLED, and so does what follows until
  // ClearInterrupt.
  virtual void Interrupt() = 0;
  virtual void ClearInterrupt() = 0;
};

// Makes backends, and does what all of them share. Outlives them and the plans it loads.
// Thread-safe.
class CompileBackends {
 public:
  virtual ~CompileBackends() = default;

  // Starts no compiler: the first call that needs one does.
  virtual std::unique_ptr<CompileBackend> New() = 0;
  // `parameters` are in the order of graph.ParameterIds(). Runs `prepare`; needs no compiler. The
  // plan accounts for its memory of the host at `ledger`, which outlives it, and for that of a
  // device at the device's own. FAILED_PRECONDITION: there is no such device.
  virtual absl::StatusOr<std::shared_ptr<PlanRunner>> Load(
      const std::string& device, const Graph& graph, const v1::Plan& plan,
      absl::Span<const KernelObject> objects,
      absl::Span<const std::shared_ptr<const MappedTensor>> parameters, MemoryLedger* ledger) = 0;
  // Returns the pool in which a device's plans loaded for `ledger` share prepared weights; null:
  // they do not.
  virtual PreparedPool* pool(const std::string& device, MemoryLedger* ledger) { return nullptr; }
  // Names of the rules and of their families.
  virtual absl::StatusOr<std::vector<std::string>> RuleNames() = 0;
  // The machine with one of its devices, as far as it is known without a compiler: asked before, or
  // by a server before this one.
  virtual std::optional<internal::TargetReply> known_machine(const std::string& device) = 0;
  // Returns the cache of kernels and plans; null: there is none.
  virtual Cache* cache() = 0;
  // Returns the names of the devices that execute plans, the one of versions that name none first.
  virtual std::vector<std::string> DeviceNames() const = 0;
  // Describes them as they are now. Those whose memory is the host's say nothing of it.
  virtual std::vector<v1::Device> Devices() = 0;
  // Returns what a device reaches; nullopt: not known yet.
  virtual std::optional<internal::MachineReply> Limits(const std::string& device) = 0;
  // Returns the error that ended a device's use, or that there is none of this name; OK while it is
  // usable.
  virtual absl::Status loss(const std::string& device) = 0;
  // Sets what is called once a device is lost, on any thread; null: nothing.
  virtual void OnLoss(std::function<void()> call) = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_COMPILE_BACKEND_H_
