#include "server/search/tuner_backend.h"

#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "compiler/ir/rows/paged_sizes.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/cpus.h"
#include "runtime/cuda/driver.h"
#include "server/base/disk.h"
#include "server/base/log.h"
#include "server/base/machine_id.h"
#include "server/child/tuner_channel.h"
#include "server/search/kernel_maker.h"
#include "server/search/open_device.h"
#include "server/search/plan_verifier.h"
#include "server/search/tuner_plan_search.h"

namespace athanor {
namespace {

// The nodes that a kernel computes, as a message begins with them.
std::string AboutKernel(const v1::Plan& plan, uint32_t kernel) {
  for (const v1::Step& step : plan.run()) {
    if (step.kernel() != kernel) continue;
    if (!step.label().empty()) return absl::StrCat(step.label(), ": ");
  }
  return "";
}

using Sizes = google::protobuf::RepeatedPtrField<internal::Sizes>;

// Returns the sizes at which a plan that no search has made is compared: the smallest and the
// largest of its dims, or those of calls of a language model.
Sizes ComparedSizes(Graph graph, const v1::Plan& plan) {
  Sizes sizes;
  std::vector<Dim> dims;
  internal::Sizes least, most;
  for (const v1::DimRange& range : plan.dims()) {
    dims.push_back({range.name(), range.min(), range.max()});
    least.add_values(range.min());
    most.add_values(range.max());
    for (Dim& dim : graph.dims) {
      if (dim.name == range.name()) dim = dims.back();
    }
  }
  if (const std::optional<PagedSizes> paged = PagedSizes::Of(graph); paged.has_value()) {
    for (const PagedCall& call : paged->Compared()) {
      const std::vector<int64_t> values = paged->At(call, dims);
      sizes.Add()->mutable_values()->Assign(values.begin(), values.end());
    }
  } else {
    *sizes.Add() = std::move(least);
    *sizes.Add() = std::move(most);
  }
  if (sizes[0].SerializeAsString() == sizes[1].SerializeAsString()) sizes.RemoveLast();
  return sizes;
}

// What builds and loads plans counts as a request: somebody waits for it, so searches give way to
// it and measure beside none of it.
class TunerBackend final : public CompileBackend {
 public:
  // `first`: a child of the first device that runs already; null: there is none.
  TunerBackend(TunerBackends* shared, std::unique_ptr<TunerProcess> first) : shared_(*shared) {
    TunerDevice* const device = *shared_.Find("");
    if (first != nullptr) owned_.push_back(std::make_unique<Owned>(*device, std::move(first)));
    Use("");
  }

  void Use(const std::string& name) override {
    const absl::StatusOr<TunerDevice*> device = shared_.Find(name);
    used_ = device.status();
    own_ = nullptr;
    if (!device.ok()) return;
    MutexLock lock(mu_);
    for (const std::unique_ptr<Owned>& owned : owned_) {
      if (&owned->device == *device) own_ = owned.get();
    }
    if (own_ != nullptr) return;
    owned_.push_back(std::make_unique<Owned>(**device, (*device)->NewTuner()));
    own_ = owned_.back().get();
    if (interrupted_ && own_->tuner.ok()) (*own_->tuner)->Interrupt();
  }

  absl::StatusOr<internal::TargetReply> Machine() override {
    RETURN_IF_ERROR(used_);
    if (auto known = own_->device.known()) return *std::move(known);
    RETURN_IF_ERROR(LearnMachine());
    return own_->machine;
  }

  absl::StatusOr<internal::LowerReply> Lower(const Graph& graph, bool plain) override {
    const Traffic::Request waited_for(shared_.traffic());
    RETURN_IF_ERROR(LearnMachine());
    const auto lower = [&] {
      return tuner()->Lower(graph, own_->machine.target(), /*exact=*/false, plain);
    };
    absl::StatusOr<internal::LowerReply> lowered = lower();
    // What the pipeline finds itself, the next child finds as well.
    if (WorthRetrying(lowered.status()) && tuner()->pid() < 0) {
      LogWarn("graph lowered once more",
              {{"graph", graph.name}, {"error", lowered.status().message()}});
      lowered = lower();
      if (WorthRetrying(lowered.status())) {
        return absl::Status(lowered.status().code(),
                            absl::StrCat(lowered.status().message(),
                                         "; that was the second try, StartCompile makes another"));
      }
    }
    if (lowered.ok() && !lowered->plain_because().empty()) {
      LogWarn("a baseline is made plain",
              {{"graph", graph.name}, {"error", lowered->plain_because()}});
    }
    return lowered;
  }

  absl::StatusOr<KernelObject> CompileKernel(const v1::Plan& plan, int index) override {
    const Traffic::Request waited_for(shared_.traffic());
    RETURN_IF_ERROR(LearnMachine());
    absl::StatusOr<KernelObject> object = Maker().Compile(plan.kernels(index));
    if (!object.ok()) return Prefixed(AboutKernel(plan, index), object.status());
    return object;
  }

  absl::Status CheckKernel(const v1::Plan& plan, const internal::KernelCheck& check,
                           absl::Span<const KernelObject> objects) override {
    const Traffic::Request waited_for(shared_.traffic());
    RETURN_IF_ERROR(LearnMachine());
    KernelMaker maker = Maker();
    internal::CheckRequest request = check.request();
    for (const v1::Kernel& kernel : check.request().plan().kernels()) {
      const auto same = std::find_if(
          plan.kernels().begin(), plan.kernels().end(),
          [&](const v1::Kernel& other) { return other.source_hash() == kernel.source_hash(); });
      if (same != plan.kernels().end()) {
        request.add_objects(objects[same - plan.kernels().begin()].object);
        continue;
      }
      ASSIGN_OR_RETURN(KernelObject compiled, maker.Compile(kernel));
      request.add_objects(std::move(compiled.object));
    }
    const int kernel = static_cast<int>(check.kernel());
    absl::Status passed = maker.Check(request, plan.kernels(kernel));
    if (!passed.ok()) return Prefixed(AboutKernel(plan, kernel), passed);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<PlanSearch>> NewSearch(const Graph& graph, CompiledPlan serving,
                                                        const PlanSearchOptions& options) override {
    // The plan may have been lowered by another worker.
    RETURN_IF_ERROR(LearnMachine());
    return std::make_unique<TunerPlanSearch>(++searches_, graph, std::move(serving), Maker(),
                                             tuner(), own_->machine, own_->device.limits(), options,
                                             shared_.searches());
  }

  absl::Status Verify(const Graph& graph, const CompiledPlan& plan) override {
    const Traffic::Request waited_for(shared_.traffic());
    RETURN_IF_ERROR(LearnMachine());
    constexpr uint64_t kSeed = 1;
    PlanVerifier verifier(graph, Maker(), tuner(), own_->machine.target(), kSeed,
                          plan.how.approximate());
    for (bool prepared = false; !prepared;) {
      ASSIGN_OR_RETURN(prepared, verifier.Prepare());
    }
    return verifier.Verify(plan, ComparedSizes(graph, plan.plan));
  }

  size_t most_searches() const override { return kMaxTunerSearches; }

  void Interrupt() override {
    MutexLock lock(mu_);
    interrupted_ = true;
    for (const std::unique_ptr<Owned>& owned : owned_) {
      if (owned->tuner.ok()) (*owned->tuner)->Interrupt();
    }
  }
  void ClearInterrupt() override {
    MutexLock lock(mu_);
    interrupted_ = false;
    for (const std::unique_ptr<Owned>& owned : owned_) {
      if (owned->tuner.ok()) (*owned->tuner)->ClearInterrupt();
    }
  }

 private:
  // Holds what this backend has of a device. Searches refer to it for as long as they live.
  struct Owned {
    Owned(TunerDevice& of, absl::StatusOr<std::unique_ptr<TunerProcess>> own)
        : device(of), tuner(std::move(own)) {}
    TunerDevice& device;
    const absl::StatusOr<std::unique_ptr<TunerProcess>> tuner;
    internal::TargetReply machine;  // see LearnMachine
  };

  TunerProcess* tuner() { return own_->tuner->get(); }

  // Once a device. The error of one that there is not, or that has no child process.
  absl::Status LearnMachine() {
    RETURN_IF_ERROR(used_);
    if (!own_->tuner.ok()) return own_->tuner.status();
    if (own_->machine.has_target()) return absl::OkStatus();
    ASSIGN_OR_RETURN(own_->machine, own_->device.Target(*tuner()));
    return absl::OkStatus();
  }

  KernelMaker Maker() {
    return KernelMaker(shared_.cache(), tuner(), own_->machine, own_->device.compiled());
  }

  TunerBackends& shared_;
  absl::Status used_;     // why there is no `own_`
  Owned* own_ = nullptr;  // of the device in use
  uint64_t searches_ = 0;
  Mutex mu_;
  bool interrupted_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Owned>> owned_ ABSL_GUARDED_BY(mu_);
};

// Children of the same user could read this process's memory. Landlock, where there is any, lets
// none of them look beyond itself; without it this process gives up core dumps, and debuggers of
// its own user.
void HideMemory() {
  const long landlock = syscall(SYS_landlock_create_ruleset, nullptr, size_t{0},
                                uint32_t{LANDLOCK_CREATE_RULESET_VERSION});
  if (landlock <= 0 && prctl(PR_SET_DUMPABLE, 0) != 0) LogWarn("this process's memory is readable");
}

}  // namespace

absl::StatusOr<std::shared_ptr<TunerBackends>> TunerBackends::Create(const ServerOptions& options,
                                                                     TunerOptions tuner) {
  std::shared_ptr<TunerBackends> backends(new TunerBackends);
  if (!options.cache.empty()) {
    if (absl::Status s = CheckLocal(options.cache); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("--cache=", s.message()));
    }
  }
  for (const std::string& folder :
       {std::filesystem::path(options.cache).parent_path().string(), options.state_dir}) {
    if (folder.empty()) continue;
    RETURN_IF_ERROR(Disk().MakeDirectory(folder));
  }
  const int64_t threads =
      options.threads > 0 ? options.threads : std::max<int64_t>(1, UsableCpus().size());
  ASSIGN_OR_RETURN(backends->traffic_, Traffic::Create());
  HideMemory();
  ThreadPoolOptions pool;
  pool.threads = static_cast<int>(threads);
  ASSIGN_OR_RETURN(std::string binary, FindTuner(tuner.binary));
  const auto compiler = [&](int gpu) -> absl::Status {
    TunerOptions asked = tuner;
    asked.gpu = gpu;
    asked.nvrtc = options.nvrtc;
    ASSIGN_OR_RETURN(std::unique_ptr<TunerProcess> child, TunerProcess::Start(std::move(asked)));
    return child->Target().status();
  };
  ASSIGN_OR_RETURN(
      std::vector<OpenedDevice> opened,
      OpenDevices(options.device, pool,
                  {.driver = [] { return CudaDriver::Load(); }, .compiler = compiler}));
  backends->cache_ =
      Cache::Open({.path = options.cache,
                   .limit_bytes = options.cache_limit,
                   .leases = {.timeout = std::chrono::milliseconds(options.lease_timeout_ms)}},
                  [](absl::string_view message) { LogWarn("cache", {{"warning", message}}); });
  tuner.traffic = backends->traffic_.get();
  tuner.turns = &backends->turns_;
  tuner.scratch_folder = options.state_dir;
  const TunerDevice::Shared shared = {.cache = backends->cache_.get(),
                                      .traffic = backends->traffic_.get(),
                                      .searches = &backends->searches_,
                                      .machine_id = MachineFingerprint(),
                                      .tuner_id = BuildIdOf(binary),
                                      .threads = threads};
  for (OpenedDevice& one : opened) {
    ASSIGN_OR_RETURN(backends->devices_.emplace_back(),
                     TunerDevice::Create(std::move(one), tuner, options.nvrtc, shared,
                                         [all = backends.get()] { all->Lost(); }));
  }
  MutexLock lock(backends->mu_);
  TunerDevice& first = *backends->devices_.front();
  if (!first.known().has_value()) {
    ASSIGN_OR_RETURN(backends->first_, first.NewTuner(/*now=*/true));
  }
  return backends;
}

absl::StatusOr<TunerDevice*> TunerBackends::Find(const std::string& device) const {
  for (const std::unique_ptr<TunerDevice>& one : devices_) {
    if (device.empty() || one->name() == device) return one.get();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this server has no device \"", device, "\"; it has ",
                   absl::StrJoin(DeviceNames(), ", "), " (--device)"));
}

std::vector<std::string> TunerBackends::DeviceNames() const {
  std::vector<std::string> names;
  for (const std::unique_ptr<TunerDevice>& one : devices_) names.push_back(one->name());
  return names;
}

std::vector<v1::Device> TunerBackends::Devices() {
  std::vector<v1::Device> devices;
  for (const std::unique_ptr<TunerDevice>& one : devices_) devices.push_back(one->Describe());
  return devices;
}

std::optional<internal::MachineReply> TunerBackends::Limits(const std::string& device) {
  const absl::StatusOr<TunerDevice*> found = Find(device);
  return found.ok() ? (*found)->limits()->known() : std::nullopt;
}

absl::Status TunerBackends::loss(const std::string& device) {
  const absl::StatusOr<TunerDevice*> found = Find(device);
  return found.ok() ? (*found)->loss() : found.status();
}

void TunerBackends::Lost() {
  MutexLock lock(loss_mu_);
  if (on_loss_) on_loss_();
}

void TunerBackends::OnLoss(std::function<void()> call) {
  MutexLock lock(loss_mu_);
  on_loss_ = std::move(call);
}

std::unique_ptr<CompileBackend> TunerBackends::New() {
  std::unique_ptr<TunerProcess> first;
  {
    MutexLock lock(mu_);
    first = std::move(first_);
  }
  return std::make_unique<TunerBackend>(this, std::move(first));
}

absl::StatusOr<std::shared_ptr<PlanRunner>> TunerBackends::Load(
    const std::string& device, const Graph& graph, const v1::Plan& plan,
    absl::Span<const KernelObject> objects,
    absl::Span<const std::shared_ptr<const MappedTensor>> parameters, MemoryLedger* ledger) {
  ASSIGN_OR_RETURN(TunerDevice* const found, Find(device));
  return found->Load(graph, plan, objects, parameters, ledger);
}

PreparedPool* TunerBackends::pool(const std::string& device, MemoryLedger* ledger) {
  const absl::StatusOr<TunerDevice*> found = Find(device);
  return found.ok() ? (*found)->pool(ledger) : nullptr;
}

std::optional<internal::TargetReply> TunerBackends::known_machine(const std::string& device) {
  const absl::StatusOr<TunerDevice*> found = Find(device);
  return found.ok() ? (*found)->known() : std::nullopt;
}

absl::StatusOr<std::vector<std::string>> TunerBackends::RuleNames() {
  TunerDevice& first = *devices_.front();
  std::optional<internal::TargetReply> target = first.known();
  if (!target.has_value()) {
    ASSIGN_OR_RETURN(std::unique_ptr<TunerProcess> tuner, first.NewTuner(/*now=*/true));
    ASSIGN_OR_RETURN(target, first.Target(*tuner));
  }
  std::vector<std::string> names(target->rules().begin(), target->rules().end());
  names.insert(names.end(), target->rule_families().begin(), target->rule_families().end());
  return names;
}

}  // namespace athanor
