#include "server/search/tuner_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cuda/cublaslt.h"
#include "server/base/log.h"
#include "server/base/options.h"
#include "server/child/tuner_channel.h"
#include "server/plans/executor_runner.h"

namespace athanor {

absl::StatusOr<std::unique_ptr<TunerDevice>> TunerDevice::Create(OpenedDevice opened,
                                                                 TunerOptions tuner,
                                                                 const std::string& nvrtc,
                                                                 Shared shared,
                                                                 std::function<void()> lost) {
  std::unique_ptr<TunerDevice> device(
      new TunerDevice(std::move(opened), std::move(tuner), std::move(shared)));
  if (device->opened_.gpu != nullptr) {
    RETURN_IF_ERROR(device->UseGpu(nvrtc, std::move(lost)));
  }
  MutexLock lock(device->mu_);
  device->target_ =
      device->shared_.cache->targets().Find(device->shared_.machine_id, device->shared_.tuner_id);
  if (device->target_.has_value()) device->Complete(&*device->target_);
  return device;
}

absl::Status TunerDevice::UseGpu(const std::string& nvrtc, std::function<void()> lost) {
  CudaDevice& gpu = *opened_.gpu;
  gpu.OnLoss([this, lost = std::move(lost)](const absl::Status& loss) {
    LogError("device lost", {{"device", name()}, {"error", loss.message()}});
    lost();
  });
  gpu.clocks();  // opens their library, which takes longer than a call should
  ASSIGN_OR_RETURN(const int64_t free, gpu.FreeBytes());
  const CudaProperties& told = gpu.properties();
  target_of_gpu_ = gpu.target();
  // Makes no handle, which is the worker's to have.
  const absl::StatusOr<const Cublaslt*> library = Cublaslt::Load("");
  if (library.ok()) target_of_gpu_->set_blas((*library)->version());
  if (const auto limits = LimitsOf(told)) limits_.Fix(*limits);
  // Chips of one architecture are not equally fast.
  driver_ = absl::StrCat(told.name, ", CUDA ", told.driver);
  absl::StrAppend(&shared_.machine_id, " ", driver_);
  constexpr int64_t kTenths = 9;
  memory_ =
      std::make_unique<ServerLedger>(free / 10 * kTenths, nullptr, nullptr,
                                     absl::StrCat("nine tenths of what was free on ", name()));
  tuner_.gpu = *GpuOrdinal(name());
  tuner_.nvrtc = nvrtc;
  LogInfo("gpu", {{"device", name()},
                  {"name", told.name},
                  {"arch", target_of_gpu_->cpu()},
                  {"driver", told.driver},
                  {"multiprocessors", told.multiprocessors},
                  {"memory_limit", memory_->limit()}});
  return absl::OkStatus();
}

void TunerDevice::Complete(internal::TargetReply* reply) const {
  reply->set_device(name());
  if (target_of_gpu_.has_value()) {
    *reply->mutable_target() = *target_of_gpu_;
    reply->set_driver(driver_);
  } else {
    reply->mutable_target()->set_threads(static_cast<int32_t>(shared_.threads));
  }
}

v1::Device TunerDevice::Describe() {
  v1::Device device;
  device.set_name(name());
  device.set_kernels_compiled(compiled_);
  if (const std::optional<internal::TargetReply> known = this->known()) {
    device.set_chip(known->target().cpu());
    // Without the hash of headers.
    const std::vector<absl::string_view> words = absl::StrSplit(known->compiler_version(), ' ');
    device.set_compiler(
        absl::StrJoin(absl::MakeSpan(words).first(std::min<size_t>(words.size(), 2)), " "));
  }
  device.set_threads(static_cast<int32_t>(shared_.threads));
  if (opened_.gpu == nullptr) return device;
  const CudaProperties& told = opened_.gpu->properties();
  device.set_chip(told.name);
  device.set_compute_capability(absl::StrCat(told.compute / 10, ".", told.compute % 10));
  device.set_driver(told.driver);
  device.set_threads(told.threads);
  device.set_memory_used(memory_->used());
  device.set_memory_limit(memory_->limit());
  device.set_memory_bytes(told.memory_bytes);
  // Asking notices a GPU that was lost while nothing ran.
  opened_.gpu->FreeBytes().status().IgnoreError();
  const CudaClocks clocks = opened_.gpu->clocks();
  device.set_core_mhz(clocks.core_mhz);
  device.set_memory_mhz(clocks.memory_mhz);
  device.set_lost(std::string(loss().message()));
  return device;
}

absl::StatusOr<std::unique_ptr<TunerProcess>> TunerDevice::NewTuner(bool now) {
  TunerOptions options = tuner_;
  std::vector<int>& cpus = options.search_cpus;
  if (!cpus.empty()) std::rotate(cpus.begin(), cpus.begin() + started_++ % cpus.size(), cpus.end());
  return now ? TunerProcess::Start(std::move(options)) : TunerProcess::Create(std::move(options));
}

std::optional<internal::TargetReply> TunerDevice::known() {
  MutexLock lock(mu_);
  return target_;
}

absl::StatusOr<internal::TargetReply> TunerDevice::Target(TunerProcess& tuner) {
  {
    MutexLock lock(mu_);
    if (asked_) return *target_;
  }
  absl::StatusOr<internal::TargetReply> reply = tuner.Target();
  if (!reply.ok() && WorthRetrying(reply.status())) reply = tuner.Target();
  if (!reply.ok()) return reply.status();
  // Threads are this server's, not the machine's.
  shared_.cache->targets().Put(shared_.machine_id, shared_.tuner_id, *reply);
  Complete(&*reply);
  LogInfo("target", {{"device", name()},
                     {"cpu", reply->target().cpu()},
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

PreparedPool* TunerDevice::pool(MemoryLedger* ledger) {
  if (memory_ != nullptr) ledger = memory_.get();
  MutexLock lock(mu_);
  std::unique_ptr<PreparedPool>& pool = pools_[ledger];
  if (pool == nullptr) pool = std::make_unique<PreparedPool>(opened_.device.get(), ledger);
  return pool.get();
}

absl::StatusOr<std::shared_ptr<PlanRunner>> TunerDevice::Load(
    const Graph& graph, const v1::Plan& plan, absl::Span<const KernelObject> objects,
    absl::Span<const std::shared_ptr<const MappedTensor>> parameters, MemoryLedger* ledger) {
  const Traffic::Request waited_for(shared_.traffic);
  return ExecutorRunner::Load(graph, plan, objects, parameters, opened_.device.get(),
                              {.ledger = memory_ != nullptr ? memory_.get() : ledger,
                               .host_ledger = ledger,
                               .pool = pool(ledger)},
                              {shared_.traffic, &turns_});
}

}  // namespace athanor
