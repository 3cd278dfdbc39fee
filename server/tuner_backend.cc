#include "server/tuner_backend.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/disk.h"
#include "server/executor_runner.h"
#include "server/log.h"
#include "server/tuner_channel.h"

namespace athanor {
namespace {

// One more try when the child was lost, or a checked kernel's process; other verdicts stand.
bool WorthRetrying(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal ||
         status.code() == absl::StatusCode::kUnavailable;
}

class TunerBackend final : public CompileBackend {
 public:
  TunerBackend(TunerBackends* shared, absl::StatusOr<std::unique_ptr<TunerProcess>> tuner,
               MemoryLedger* ledger)
      : shared_(*shared), tuner_(std::move(tuner)), ledger_(ledger) {}

  absl::StatusOr<v1::Plan> Lower(const Graph& graph) override {
    if (!tuner_.ok()) return tuner_.status();
    absl::StatusOr<internal::TargetReply> machine = shared_.Target(**tuner_);
    if (!machine.ok()) return machine.status();
    machine_ = *std::move(machine);
    absl::StatusOr<internal::LowerReply> lowered = (*tuner_)->Lower(graph, machine_.target());
    // What the pipeline finds itself, the next child finds as well.
    if (WorthRetrying(lowered.status()) && (*tuner_)->pid() < 0) {
      LogWarn("graph lowered once more",
              {{"graph", graph.name}, {"error", lowered.status().message()}});
      lowered = (*tuner_)->Lower(graph, machine_.target());
    }
    if (!lowered.ok()) return lowered.status();
    checks_ = std::move(*lowered->mutable_checks());
    return std::move(*lowered->mutable_plan());
  }

  absl::StatusOr<KernelObject> CompileKernel(const v1::Plan& plan, int index) override {
    const v1::Kernel& kernel = plan.kernels(index);
    const KernelKey key =
        MakeKernelKey(kernel.source(), machine_.target(),
                      CompileFlags::For(machine_.target()).ToString(), machine_.compiler_version());
    if (std::optional<std::string> object = shared_.store().Get(key)) {
      return KernelObject{*std::move(object), true};
    }
    absl::StatusOr<std::string> object = (*tuner_)->Compile(kernel.source(), machine_.target());
    if (!object.ok() && WorthRetrying(object.status())) {
      LogWarn("kernel compiled once more", {{"kernel", kernel.name()},
                                            {"source_hash", kernel.source_hash()},
                                            {"error", object.status().message()}});
      object = (*tuner_)->Compile(kernel.source(), machine_.target());
    }
    if (!object.ok()) return Named(kernel, object.status());
    // A cache that cannot be written is only slower; the store has said so.
    shared_.store().Put(key, *object).IgnoreError();
    return KernelObject{*std::move(object), false};
  }

  absl::Status Check(const Graph& graph, const v1::Plan& plan,
                     absl::Span<const KernelObject> objects) override {
    absl::flat_hash_map<std::string, const KernelObject*> by_source;
    for (int i = 0; i < plan.kernels_size(); ++i) {
      by_source[plan.kernels(i).source_hash()] = &objects[i];
    }
    for (internal::KernelCheck& check : std::exchange(checks_, {})) {
      internal::CheckRequest& request = *check.mutable_request();
      for (const v1::Kernel& kernel : request.plan().kernels()) {
        auto object = by_source.find(kernel.source_hash());
        if (object == by_source.end()) {
          return absl::InternalError(
              absl::StrCat("kernel ", kernel.name(), ": its check needs a kernel the plan lacks"));
        }
        request.add_objects(object->second->object);
      }
      const std::string key = CheckKey(request);
      if (shared_.store().HasPassed(key)) continue;
      absl::StatusOr<internal::CheckReply> passed = (*tuner_)->CheckReport(request);
      if (WorthRetrying(passed.status())) passed = (*tuner_)->CheckReport(request);
      if (!passed.ok()) return Named(plan.kernels(check.kernel()), passed.status());
      for (const std::string& left_out : passed->left_out()) {
        LogWarn("kernel not compared at large sizes",
                {{"kernel", plan.kernels(check.kernel()).name()},
                 {"sampled", passed->sampled_elements()},
                 {"left_out", left_out}});
      }
      shared_.store().PutPassed(key).IgnoreError();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<PlanRunner>> Load(
      const Graph& graph, const v1::Plan& plan, absl::Span<const KernelObject> objects,
      absl::Span<const std::shared_ptr<const MappedTensor>> parameters) override {
    return ExecutorRunner::Load(graph, plan, objects, parameters, shared_.device(), ledger_);
  }

  void Interrupt() override {
    if (tuner_.ok()) (*tuner_)->Interrupt();
  }

 private:
  using Checks = google::protobuf::RepeatedPtrField<internal::KernelCheck>;

  // The graph was accepted, so a kernel that does not compile or check is our fault, not the
  // caller's.
  static absl::Status Named(const v1::Kernel& kernel, const absl::Status& status) {
    const bool ours = absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
                      absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status);
    return absl::Status(ours ? absl::StatusCode::kInternal : status.code(),
                        absl::StrCat("kernel ", kernel.name(), " (source ",
                                     kernel.source_hash().substr(0, 16), "): ", status.message()));
  }

  TunerBackends& shared_;
  const absl::StatusOr<std::unique_ptr<TunerProcess>> tuner_;
  MemoryLedger* const ledger_;
  internal::TargetReply machine_;
  Checks checks_;  // of the plan lowered last
};

}  // namespace

absl::StatusOr<std::unique_ptr<TunerBackends>> TunerBackends::Create(const ServerOptions& options,
                                                                     TunerOptions tuner) {
  std::unique_ptr<TunerBackends> backends(new TunerBackends);
  const std::string folder = std::filesystem::path(options.cache).parent_path();
  if (!folder.empty()) {
    if (absl::Status s = Disk().MakeDirectory(folder); !s.ok()) return s;
  }
  backends->threads_ = options.threads > 0
                           ? options.threads
                           : std::max<int64_t>(1, std::thread::hardware_concurrency());
  backends->tuner_options_ = std::move(tuner);
  ThreadPoolOptions threads;
  threads.threads = static_cast<int>(backends->threads_);
  absl::StatusOr<std::unique_ptr<CpuDevice>> device = CpuDevice::Create(threads);
  if (!device.ok()) return device.status();
  backends->device_ = *std::move(device);
  absl::StatusOr<std::unique_ptr<TunerProcess>> first =
      TunerProcess::Start(backends->tuner_options_);
  if (!first.ok()) return first.status();
  MutexLock lock(backends->mu_);
  backends->first_ = *std::move(first);
  backends->store_ = KernelStore::Open(options.cache, [](absl::string_view message) {
    LogWarn("kernel cache", {{"warning", message}});
  });
  return backends;
}

std::unique_ptr<CompileBackend> TunerBackends::New(MemoryLedger* ledger) {
  std::unique_ptr<TunerProcess> first;
  {
    MutexLock lock(mu_);
    first = std::move(first_);
  }
  if (first != nullptr) return std::make_unique<TunerBackend>(this, std::move(first), ledger);
  return std::make_unique<TunerBackend>(this, TunerProcess::Start(tuner_options_), ledger);
}

absl::StatusOr<internal::TargetReply> TunerBackends::Target(TunerProcess& tuner) {
  {
    MutexLock lock(mu_);
    if (target_.has_value()) return *target_;
  }
  absl::StatusOr<internal::TargetReply> reply = tuner.Target();
  if (!reply.ok() && WorthRetrying(reply.status())) reply = tuner.Target();
  if (!reply.ok()) return reply.status();
  reply->mutable_target()->set_threads(static_cast<int32_t>(threads_));
  LogInfo("target", {{"cpu", reply->target().cpu()},
                     {"vector_bytes", reply->target().vector_bytes()},
                     {"threads", threads_},
                     {"compiler", reply->compiler_version()}});
  MutexLock lock(mu_);
  target_ = *reply;
  return *std::move(reply);
}

}  // namespace athanor
