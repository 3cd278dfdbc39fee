#include "server/http/pages/core_samples.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/version.h"
#include "server/generate/language_model.h"
#include "server/metrics/metrics.h"
#include "server/metrics/process_status.h"

namespace athanor {
namespace {

#ifdef __clang__
constexpr char kCompiler[] = "clang " __clang_version__;
#else
constexpr char kCompiler[] = "gcc " __VERSION__;
#endif

// Returns the waiting requests of each model that has series of its own, and under "" of all
// others.
std::map<std::string, int64_t> QueuedByModel(ServerCore& core) {
  std::map<std::string, int64_t> queued = {{"", 0}};
  for (const auto& version : core.registry().versions().List("")) {
    if (core.metrics().IsOwn(version->metrics())) queued.emplace(version->name(), 0);
  }
  for (const RequestQueue::Waiting& waiting : core.requests().waiting()) {
    const auto found = queued.find(waiting.model);
    (found == queued.end() ? queued[""] : found->second) += waiting.requests;
  }
  return queued;
}

// Adds nothing where the kernel does not tell.
void AddProcessSamples(std::vector<MetricSample>* samples) {
  const absl::StatusOr<ProcessStatus> process = ReadProcessStatus("/proc");
  if (!process.ok()) return;
  const auto add = [samples](Metric metric, auto value) {
    samples->push_back({metric, {}, static_cast<double>(value)});
  };
  add(Metric::kProcessCpu, process->cpu_seconds);
  add(Metric::kProcessResident, process->resident_bytes);
  add(Metric::kProcessVirtual, process->virtual_bytes);
  add(Metric::kProcessThreads, process->threads);
  add(Metric::kProcessOpenFds, process->open_fds);
  add(Metric::kProcessMaxFds, process->max_fds);
  add(Metric::kProcessStart, process->start_time);
}

}  // namespace

void AddCoreSamples(ServerCore& core, std::vector<MetricSample>* samples) {
  const auto add = [samples](Metric metric, auto value, std::vector<std::string> labels = {}) {
    samples->push_back({metric, std::move(labels), static_cast<double>(value)});
  };
  std::array<int64_t, v1::Model::State_ARRAYSIZE> states{};
  for (const auto& version : core.registry().versions().List("")) {
    const PlanSlot::View view = version->serving().view();
    ++states[version->state()];
    if (!core.metrics().IsOwn(version->metrics())) continue;
    const std::vector<std::string> labels = {version->name(), absl::StrCat(version->version())};
    if (const LanguageModel* language = version->language_model()) {
      const EngineView engine = language->engine->view();
      add(Metric::kSequencesRunning, engine.running + engine.paused, labels);
      add(Metric::kSequencesWaiting, engine.waiting, labels);
      const auto used = static_cast<double>(engine.blocks - engine.free_blocks);
      add(Metric::kKvCacheUsage, engine.blocks == 0 ? 0 : used / engine.blocks, labels);
    }
    const auto job = core.workers().jobs().Find(view.job_id);
    if (!job.ok()) continue;
    const double share = (*job)->state().search().best();
    if (share > 0) add(Metric::kSearchShare, share, labels);
  }
  for (int state = v1::Model::UPLOADED; state < v1::Model::State_ARRAYSIZE; ++state) {
    add(Metric::kModels, states[state],
        {v1::Model::State_Name(static_cast<v1::Model::State>(state))});
  }
  for (int i = 0; i < kHeldKinds; ++i) {
    const auto kind = static_cast<HeldKind>(i);
    add(Metric::kMemory, core.ledger().used(kind), {std::string(HeldKindName(kind))});
  }
  add(Metric::kMemoryLimit, core.ledger().limit());
  constexpr double kHertz = 1e6;  // of a MHz
  for (const v1::Device& device : core.backends().Devices()) {
    const bool gpu = device.memory_limit() > 0;  // the host's memory is above
    if (gpu) {
      add(Metric::kDeviceMemory, device.memory_used(), {device.name()});
      add(Metric::kDeviceMemoryLimit, device.memory_limit(), {device.name()});
    }
    add(Metric::kDeviceClock, device.core_mhz() * kHertz, {device.name(), "core"});
    add(Metric::kDeviceClock, device.memory_mhz() * kHertz, {device.name(), "memory"});
    add(Metric::kKernelsCompiled, device.kernels_compiled(), {device.name()});
    add(Metric::kDeviceLost, device.lost().empty() ? 0 : 1, {device.name()});
    // Only a GPU's chip is known before a compiler has been asked.
    add(Metric::kDeviceInfo, 1,
        {device.name(), gpu ? device.chip() : "", device.compute_capability(), device.driver()});
  }
  add(Metric::kCalls, core.active_calls());
  add(Metric::kQueued, QueuedRequests(core));
  for (const auto& [model, queued] : QueuedByModel(core))
    add(Metric::kModelQueued, queued, {model});
  add(Metric::kUploadsRunning, core.uploads());
  add(Metric::kJobsUnfinished, UnfinishedJobs(core));
  add(Metric::kBuildInfo, 1, {kVersion, kCompiler});
  AddProcessSamples(samples);
}

int64_t QueuedRequests(ServerCore& core) {
  int64_t queued = 0;
  for (const RequestQueue::Waiting& waiting : core.requests().waiting()) queued += waiting.requests;
  return queued;
}

int64_t UnfinishedJobs(ServerCore& core) {
  int64_t unfinished = 0;
  for (const auto& job : core.workers().jobs().List("")) unfinished += job->finished() ? 0 : 1;
  return unfinished;
}

}  // namespace athanor
