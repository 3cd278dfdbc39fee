#include "server/search/tuner_backend.h"

#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/cpus.h"
#include "runtime/cuda/device.h"
#include "server/base/disk.h"
#include "server/base/log.h"
#include "server/base/machine_id.h"
#include "server/child/tuner_channel.h"
#include "server/plans/executor_runner.h"
#include "server/search/kernel_maker.h"
#include "server/search/open_device.h"
#include "server/search/plan_verifier.h"
#include "server/search/tuner_plan_search.h"

namespace athanor {
namespace {

// The nodes that a kernel computes, as a message begins with them.
std::string AboutKernel(const v1::Plan& plan, uint32_t kernel) {
  for (const v1::Step& step : plan.run()) {
    if (step.kernel() == kernel && !step.label().empty()) return absl::StrCat(step.label(), ": ");
  }
  return "";
}

// What builds and loads plans counts as a request: somebody waits for it, so searches give way to
// it and measure beside none of it.
class TunerBackend final : public CompileBackend {
 public:
  TunerBackend(TunerBackends* shared, absl::StatusOr<std::unique_ptr<TunerProcess>> tuner)
      : shared_(*shared), tuner_(std::move(tuner)) {}

  absl::StatusOr<internal::TargetReply> Machine() override {
    if (auto known = shared_.known_machine()) return *std::move(known);
    if (!tuner_.ok()) return tuner_.status();
    RETURN_IF_ERROR(LearnMachine());
    return machine_;
  }

  absl::StatusOr<internal::LowerReply> Lower(const Graph& graph, bool plain) override {
    const Traffic::Request waited_for(shared_.traffic());
    if (!tuner_.ok()) return tuner_.status();
    RETURN_IF_ERROR(LearnMachine());
    const auto lower = [&] {
      return (*tuner_)->Lower(graph, machine_.target(), /*exact=*/false, plain);
    };
    absl::StatusOr<internal::LowerReply> lowered = lower();
    // What the pipeline finds itself, the next child finds as well.
    if (WorthRetrying(lowered.status()) && (*tuner_)->pid() < 0) {
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
    if (!tuner_.ok()) return tuner_.status();
    RETURN_IF_ERROR(LearnMachine());
    absl::StatusOr<KernelObject> object = Maker().Compile(plan.kernels(index));
    if (!object.ok()) return Prefixed(AboutKernel(plan, index), object.status());
    return object;
  }

  absl::Status CheckKernel(const v1::Plan& plan, const internal::KernelCheck& check,
                           absl::Span<const KernelObject> objects) override {
    const Traffic::Request waited_for(shared_.traffic());
    if (!tuner_.ok()) return tuner_.status();
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
    if (!tuner_.ok()) return tuner_.status();
    // The plan may have been lowered by another worker.
    RETURN_IF_ERROR(LearnMachine());
    return std::make_unique<TunerPlanSearch>(++searches_, graph, std::move(serving), Maker(),
                                             tuner_->get(), machine_, shared_.limits(), options);
  }

  absl::Status Verify(const Graph& graph, const CompiledPlan& plan) override {
    const Traffic::Request waited_for(shared_.traffic());
    if (!tuner_.ok()) return tuner_.status();
    RETURN_IF_ERROR(LearnMachine());
    constexpr uint64_t kSeed = 1;
    PlanVerifier verifier(graph, Maker(), tuner_->get(), machine_.target(), kSeed,
                          plan.how.approximate());
    for (bool prepared = false; !prepared;) {
      ASSIGN_OR_RETURN(prepared, verifier.Prepare());
    }
    google::protobuf::RepeatedPtrField<internal::Sizes> sizes;
    internal::Sizes* least = sizes.Add();
    internal::Sizes* most = sizes.Add();
    for (const v1::DimRange& dim : plan.plan.dims()) {
      least->add_values(dim.min());
      most->add_values(dim.max());
    }
    if (least->SerializeAsString() == most->SerializeAsString()) sizes.RemoveLast();
    return verifier.Verify(plan, sizes);
  }

  size_t most_searches() const override { return kMaxTunerSearches; }

  void Interrupt() override {
    if (tuner_.ok()) (*tuner_)->Interrupt();
  }
  void ClearInterrupt() override {
    if (tuner_.ok()) (*tuner_)->ClearInterrupt();
  }

 private:
  // Once: searches refer to what it says for as long as they live.
  absl::Status LearnMachine() {
    if (machine_.has_target()) return absl::OkStatus();
    ASSIGN_OR_RETURN(machine_, shared_.Target(**tuner_));
    return absl::OkStatus();
  }

  KernelMaker Maker() { return KernelMaker(shared_.cache(), tuner_->get(), machine_); }

  TunerBackends& shared_;
  const absl::StatusOr<std::unique_ptr<TunerProcess>> tuner_;
  internal::TargetReply machine_;  // see LearnMachine
  uint64_t searches_ = 0;
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
  backends->threads_ =
      options.threads > 0 ? options.threads : std::max<int64_t>(1, UsableCpus().size());
  ASSIGN_OR_RETURN(backends->traffic_, Traffic::Create());
  HideMemory();
  backends->tuner_options_ = std::move(tuner);
  backends->tuner_options_.traffic = backends->traffic_.get();
  backends->tuner_options_.turns = &backends->turns_;
  backends->tuner_options_.scratch_folder = options.state_dir;
  backends->machine_id_ = MachineFingerprint();
  RETURN_IF_ERROR(backends->MakeDevice(options));
  ASSIGN_OR_RETURN(std::string binary, FindTuner(backends->tuner_options_.binary));
  backends->cache_ =
      Cache::Open({.path = options.cache,
                   .limit_bytes = options.cache_limit,
                   .leases = {.timeout = std::chrono::milliseconds(options.lease_timeout_ms)}},
                  [](absl::string_view message) { LogWarn("cache", {{"warning", message}}); });
  backends->tuner_id_ = BuildIdOf(binary);
  MutexLock lock(backends->mu_);
  backends->target_ = backends->cache_->targets().Find(backends->machine_id_, backends->tuner_id_);
  if (backends->target_.has_value()) {
    backends->Complete(&*backends->target_);
    return backends;
  }
  ASSIGN_OR_RETURN(backends->first_, TunerProcess::Start(backends->NextOptions()));
  return backends;
}

absl::Status TunerBackends::MakeDevice(const ServerOptions& options) {
  ThreadPoolOptions threads;
  threads.threads = static_cast<int>(threads_);
  ASSIGN_OR_RETURN(OpenedDevice opened,
                   OpenDevice(options.device, threads, [] { return CudaDriver::Load(); }));
  device_ = std::move(opened.device);
  device_name_ = std::move(opened.name);
  if (options.device == "auto") {
    LogInfo("device chosen", {{"device", device_name_}, {"reason", opened.reason}});
  }
  if (opened.gpu == nullptr) return absl::OkStatus();
  cuda_ = opened.gpu;
  cuda_->OnLoss([this](const absl::Status& loss) {
    LogError("device lost", {{"device", device_name_}, {"error", loss.message()}});
    MutexLock lock(loss_mu_);
    if (on_loss_) on_loss_();
  });
  const CudaDevice& gpu = *cuda_;
  ASSIGN_OR_RETURN(const int64_t free, gpu.FreeBytes());
  const CudaProperties& told = gpu.properties();
  gpu_ = gpu.target();
  if (const auto limits = LimitsOf(told)) limits_.Fix(*limits);
  // Chips of one architecture are not equally fast.
  driver_ = absl::StrCat(told.name, ", CUDA ", told.driver);
  absl::StrAppend(&machine_id_, " ", driver_);
  constexpr int64_t kTenths = 9;
  gpu_memory_ = std::make_unique<ServerLedger>(
      free / 10 * kTenths, nullptr, nullptr,
      absl::StrCat("nine tenths of what was free on ", device_name_));
  tuner_options_.gpu = *GpuOrdinal(device_name_);
  tuner_options_.nvrtc = options.nvrtc;
  LogInfo("gpu", {{"device", device_name_},
                  {"name", told.name},
                  {"arch", gpu_->cpu()},
                  {"driver", told.driver},
                  {"multiprocessors", told.multiprocessors},
                  {"memory_limit", gpu_memory_->limit()}});
  return absl::OkStatus();
}

void TunerBackends::Complete(internal::TargetReply* reply) const {
  if (gpu_.has_value()) {
    *reply->mutable_target() = *gpu_;
    reply->set_driver(driver_);
  } else {
    reply->mutable_target()->set_threads(static_cast<int32_t>(threads_));
  }
}

std::vector<v1::Device> TunerBackends::Devices() {
  v1::Device device;
  device.set_name(device_name_);
  device.set_kernels_compiled(cache_->work().kernels_compiled);
  if (const std::optional<internal::TargetReply> known = known_machine()) {
    device.set_chip(known->target().cpu());
    // Without the hash of headers.
    const std::vector<absl::string_view> words = absl::StrSplit(known->compiler_version(), ' ');
    device.set_compiler(
        absl::StrJoin(absl::MakeSpan(words).first(std::min<size_t>(words.size(), 2)), " "));
  }
  device.set_threads(static_cast<int32_t>(threads_));
  if (cuda_ != nullptr) {
    const CudaProperties& told = cuda_->properties();
    device.set_chip(told.name);
    device.set_compute_capability(absl::StrCat(told.compute / 10, ".", told.compute % 10));
    device.set_driver(told.driver);
    device.set_threads(told.threads);
    device.set_memory_used(gpu_memory_->used());
    device.set_memory_limit(gpu_memory_->limit());
    device.set_memory_bytes(told.memory_bytes);
    const CudaClocks clocks = cuda_->clocks();
    device.set_core_mhz(clocks.core_mhz);
    device.set_memory_mhz(clocks.memory_mhz);
    device.set_lost(std::string(cuda_->loss().message()));
  }
  return {device};
}

absl::Status TunerBackends::loss() { return cuda_ != nullptr ? cuda_->loss() : absl::OkStatus(); }

void TunerBackends::OnLoss(std::function<void()> call) {
  MutexLock lock(loss_mu_);
  on_loss_ = std::move(call);
}

TunerOptions TunerBackends::NextOptions() {
  TunerOptions options = tuner_options_;
  std::vector<int>& cpus = options.search_cpus;
  if (!cpus.empty()) std::rotate(cpus.begin(), cpus.begin() + started_++ % cpus.size(), cpus.end());
  return options;
}

PreparedPool* TunerBackends::pool(MemoryLedger* ledger) {
  if (gpu_memory_ != nullptr) ledger = gpu_memory_.get();
  MutexLock lock(mu_);
  std::unique_ptr<PreparedPool>& pool = pools_[ledger];
  if (pool == nullptr) pool = std::make_unique<PreparedPool>(device_.get(), ledger);
  return pool.get();
}

std::unique_ptr<CompileBackend> TunerBackends::New() {
  std::unique_ptr<TunerProcess> first;
  {
    MutexLock lock(mu_);
    first = std::move(first_);
  }
  if (first != nullptr) return std::make_unique<TunerBackend>(this, std::move(first));
  return std::make_unique<TunerBackend>(this, TunerProcess::Create(NextOptions()));
}

absl::StatusOr<std::shared_ptr<PlanRunner>> TunerBackends::Load(
    const Graph& graph, const v1::Plan& plan, absl::Span<const KernelObject> objects,
    absl::Span<const std::shared_ptr<const MappedTensor>> parameters, MemoryLedger* ledger) {
  const Traffic::Request waited_for(traffic());
  if (gpu_memory_ != nullptr) ledger = gpu_memory_.get();
  return ExecutorRunner::Load(graph, plan, objects, parameters, device(), ledger, pool(ledger),
                              traffic());
}

std::optional<internal::TargetReply> TunerBackends::known_machine() {
  MutexLock lock(mu_);
  return target_;
}

absl::StatusOr<internal::TargetReply> TunerBackends::Target(TunerProcess& tuner) {
  {
    MutexLock lock(mu_);
    if (asked_) return *target_;
  }
  absl::StatusOr<internal::TargetReply> reply = tuner.Target();
  if (!reply.ok() && WorthRetrying(reply.status())) reply = tuner.Target();
  if (!reply.ok()) return reply.status();
  // Threads are this server's, not the machine's.
  cache_->targets().Put(machine_id_, tuner_id_, *reply);
  Complete(&*reply);
  LogInfo("target", {{"cpu", reply->target().cpu()},
                     {"blas", reply->target().blas()},
                     {"vector_bytes", reply->target().vector_bytes()},
                     {"threads", reply->target().threads()},
                     {"compiler", reply->compiler_version()},
                     {"sandbox", tuner.walls()}});
  MutexLock lock(mu_);
  target_ = *reply;
  asked_ = true;
  return *std::move(reply);
}

absl::StatusOr<std::vector<std::string>> TunerBackends::RuleNames() {
  std::optional<internal::TargetReply> target;
  {
    MutexLock lock(mu_);
    target = target_;
  }
  if (!target.has_value()) {
    ASSIGN_OR_RETURN(std::unique_ptr<TunerProcess> tuner, TunerProcess::Start(NextOptions()));
    ASSIGN_OR_RETURN(target, Target(*tuner));
  }
  std::vector<std::string> names(target->rules().begin(), target->rules().end());
  names.insert(names.end(), target->rule_families().begin(), target->rule_families().end());
  return names;
}

}  // namespace athanor
