#include "server/core/core.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/cpus.h"
#include "server/base/call_log.h"
#include "server/base/log.h"
#include "server/base/retry_after.h"
#include "server/base/search_policy.h"
#include "server/restore/restore.h"
#include "server/tracing/make_tracer.h"

namespace athanor {
namespace {

constexpr int kInflateNice = 10;
constexpr std::chrono::seconds kLookAtIdentities{1}, kTellHeldBack{1};
// When a call that found too many others may come again.
constexpr std::chrono::milliseconds kRetryCall{100}, kRetryStream{1'000};
// Held refusals may take at most one part in this many of --max_pending.
constexpr int64_t kShareOfPending = 4;

// Workers where none are asked for: a small model need not wait for a large one; each has children.
constexpr int64_t kLeastWorkers = 2, kMostWorkers = 8;

int64_t MemoryLimit(const ServerOptions& options) {
  return options.memory_limit > 0 ? options.memory_limit : MachineMemoryBytes() / 10 * 9;
}

UploadLimits LimitsOfUploads(const ServerOptions& options) {
  // Longer times would overflow the clock.
  constexpr int64_t kLongest = int64_t{10} * 365 * 24 * 3'600'000;
  return {.most = options.max_uploads,
          .peer_percent = options.max_peer_percent,
          .least_rate = options.upload_least_rate,
          .idle = std::chrono::milliseconds(std::min(options.upload_idle_ms, kLongest)),
          .longest = std::chrono::milliseconds(std::min(options.upload_time_ms, kLongest))};
}

template <typename... Parts>
absl::Status Later(std::chrono::milliseconds after, const Parts&... parts) {
  return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(parts...)), after);
}

void ReturnMemory() {
  const int64_t before = ResidentBytes();
  TrimHeap();
  LogDebug("free memory returned", {{"resident_before", before}, {"resident", ResidentBytes()}});
}

}  // namespace

ServerCore::ServerCore(const ServerOptions& options, std::shared_ptr<CompileBackends> backends,
                       DirectoryLock lock)
    : options_(options),
      backends_(std::move(backends)),
      no_cache_(backends_->cache() == nullptr ? Cache::Open({}, [](absl::string_view) {})
                                              : nullptr),
      lock_(std::move(lock)),
      metrics_(options_.metrics_versions),
      tracer_(MakeTracer(options_, &metrics_.server())),
      memory_return_({}, &ReturnMemory),
      ledger_(
          MemoryLimit(options), [this](int64_t bytes) { memory_return_.Freed(bytes); },
          [this](HeldKind kind, int64_t bytes) {
            // Steps try again and again for states: their engine counts.
            if (kind != HeldKind::kStates) {
              metrics_.server().Count(Metric::kRefusals, Refusal::kMemory);
            }
            // Whoever is refused may ask again: kept blocks give way until then.
            if (registry_ != nullptr) registry_->language_models().AskRoom(bytes);
          }),
      stream_shares_(options_.max_streams, options_.max_peer_percent),
      upload_places_(LimitsOfUploads(options_)),
      upload_rate_(options_.upload_rate),
      refusals_(options_.refusals_per_second, options_.max_pending / kShareOfPending),
      regions_(options_.shared_memory, options_.max_shared_regions) {}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Create(
    const ServerOptions& options, std::shared_ptr<CompileBackends> backends, Disk* disk) {
  ASSIGN_OR_RETURN(CacheKeys keys, ReadCacheKeys(options));
  auto access = std::make_unique<Access>();
  if (!options.auth.empty()) {
    ASSIGN_OR_RETURN(access, Access::Open(Access::Source::kIdentities, options.auth,
                                          /*certificates=*/!options.tls_client_ca.empty()));
  }
  Disk machine;
  RETURN_IF_ERROR(machine.MakeDirectory(options.state_dir));
  ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Take(options.state_dir));
  ServerOptions resolved = options;
  // Not the machine's count: some CPUs may be set aside (search_cpus.h).
  const auto cpus = static_cast<int64_t>(UsableCpus().size());
  if (resolved.threads == 0) resolved.threads = std::max<int64_t>(1, cpus);
  if (resolved.compile_workers == 0) {
    resolved.compile_workers =
        std::clamp(cpus + resolved.search_cores, kLeastWorkers, kMostWorkers);
  }
  resolved.device = absl::StrJoin(backends->DeviceNames(), ",");  // what `auto` has chosen
  std::unique_ptr<ServerCore> core(new ServerCore(resolved, std::move(backends), std::move(lock)));
  core->cache_keys_ = std::move(keys);
  core->access_ = std::move(access);
  if (disk == nullptr) disk = &core->machine_disk_;
  ASSIGN_OR_RETURN(core->registry_,
                   Registry::Open(core->options_, &core->ledger_, &core->metrics_, disk));
  const int threads = static_cast<int>(core->options_.threads);
  core->requests_ = std::make_unique<RequestQueue>(
      QueueOptions{.max_queue = core->options_.max_queue,
                   .max_client_percent = core->options_.max_client_percent,
                   .max_delay = std::chrono::milliseconds(core->options_.max_queue_delay_ms),
                   .batch_delay = std::chrono::microseconds(core->options_.batch_delay_us),
                   .threads = threads});
  core->runners_ = std::make_unique<Runners>(core->requests_.get(), &core->ledger_, threads);
  core->disk_queue_ = std::make_unique<WorkQueue>("disk", 2);
  core->import_queue_ = std::make_unique<WorkQueue>("import", 2);
  core->cache_queue_ = std::make_unique<WorkQueue>("cache", 1);
  core->inflate_queue_ = std::make_unique<WorkQueue>("inflate", 1);
  core->text_queue_ = std::make_unique<WorkQueue>("text", 2);
  // Its one thread yields to threads that answer: inflated messages may be refused in the end.
  core->inflate_queue_->Submit([] { setpriority(PRIO_PROCESS, 0, kInflateNice); });
  core->keeper_ =
      std::make_unique<PlanKeeper>(core->backends_->cache(), core->options_.state_dir, disk);
  core->loader_ = std::make_unique<PlanLoader>(core->backends_.get(), core->registry_.get(),
                                               &core->ledger_, core->options_.contexts);
  core->workers_ =
      std::make_unique<CompileWorkers>(core->options_, core->registry_.get(), core->backends_.get(),
                                       core->keeper_.get(), core->loader_.get(), core->tracer());
  core->registry_->SetHealedHook(
      [workers = core->workers_.get()](const std::shared_ptr<ModelVersion>& version) {
        const auto job = workers->Start(version);
        if (!job.ok()) version->serving().Fail(job.status());
      });
  const SearchPolicy policy = ServerPolicy(core->options_);
  absl::Status rules =
      core->workers_->policies().CheckRules("--disable_rules", policy.disabled_rules);
  if (!rules.ok()) return rules;
  if (!core->options_.model_repository.empty()) {
    ASSIGN_OR_RETURN(core->repository_,
                     Repository::Open(core->options_, {*core->registry_, *core->workers_,
                                                       *core->requests_, core->ledger_}));
  }
  core->RestoreVersions();
  core->TellHeldBack();
  if (core->repository_ != nullptr) core->repository_->Start();
  if (!core->access().open()) {
    core->identity_queue_ = std::make_unique<WorkQueue>("identities", 1);
    core->WatchIdentities();
  }
  return core;
}

bool ServerCore::serves() {
  return !loading() && absl::c_any_of(backends_->DeviceNames(),
                                      [this](const std::string& device) { return serves(device); });
}

std::vector<v1::Device> ServerCore::Devices() {
  std::vector<v1::Device> devices = backends_->Devices();
  for (v1::Device& device : devices) {
    if (device.memory_limit() > 0) continue;
    device.set_memory_used(ledger_.used());
    device.set_memory_limit(ledger_.limit());
    device.set_memory_bytes(MachineMemoryBytes());
  }
  return devices;
}

void ServerCore::RestoreVersions() {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& device : backends_->DeviceNames()) {
    if (const auto machine = backends_->known_machine(device)) keeper_->SetMachine(*machine);
  }
  // Restores serving versions first: callers are waiting for them.
  std::vector<std::shared_ptr<ModelVersion>> serving, old;
  std::vector<std::shared_ptr<ModelVersion>> versions_of_all = registry_->versions().List("");
  keeper_->TakePins(versions_of_all);
  std::set<std::string> have;  // names with a version that serves or will serve
  for (const auto& version : versions_of_all) {
    if (registry_->versions().Serves(*version)) have.insert(version->name());
  }
  for (auto& version : versions_of_all) {  // the newest version of each name first
    if (version->state() == v1::Model::FAILED) continue;
    const bool first =
        registry_->versions().Serves(*version) || have.insert(version->name()).second;
    (first ? serving : old).push_back(std::move(version));
  }
  const size_t versions = serving.size() + old.size();
  const RestoreReport report =
      Restore(std::move(serving), old, {*keeper_, *registry_, *loader_, *workers_},
              static_cast<int>(options_.threads));
  if (versions == 0) return;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  LogInfo("models restored", {{"restored", report.restored},
                              {"searched", report.searched},
                              {"queued", report.queued},
                              {"old", old.size()},
                              {"ms", took.count()}});
}

void ServerCore::TellHeldBack() {
  timer_.At(Timer::Clock::now() + kTellHeldBack, [this] {
    LogHeldBack();
    TellHeldBack();
  });
}

void ServerCore::WatchIdentities() {
  timer_.At(Timer::Clock::now() + kLookAtIdentities, [this] {
    // On a thread of its own: a file system that hangs holds up nothing else.
    if (!reading_identities_.exchange(true)) {
      identity_queue_->Submit([this] {
        access_->ReloadIfChanged();
        reading_identities_ = false;
      });
    }
    WatchIdentities();
  });
}

ServerCore::~ServerCore() {
  if (repository_ != nullptr) repository_->Stop();
  if (workers_ != nullptr) workers_->Stop();
}

CallSlot::CallSlot(ServerCore& core, absl::string_view peer, CallKind kind)
    : core_(core),
      kind_(kind),
      port_(PortOfCall(peer)),
      host_(kind == CallKind::kStream ? PeerOfCall(peer).host : ""),
      in_share_(kind == CallKind::kStream && core.stream_shares_.Take(host_)),
      count_(counter().fetch_add(1) + 1) {
  core_.connection_calls().Begin(port_);
}

CallSlot::~CallSlot() {
  if (in_share_) core_.stream_shares_.Drop(host_);
  core_.connection_calls().End(port_);
  counter().fetch_sub(1);  // last: after this, a server that ends does not wait for this call
}

absl::Status CallSlot::status() const {
  MetricCells& metrics = core_.metrics().server();
  if (core_.draining()) {
    metrics.Count(Metric::kRefusals, Refusal::kDraining);
    return absl::UnavailableError("the server is draining");
  }
  if (kind_ == CallKind::kStream) {
    if (count_ <= core_.options().max_streams && in_share_) return absl::OkStatus();
    metrics.Count(Metric::kRefusals, Refusal::kStreams);
    if (!in_share_) {
      return Later(kRetryStream, core_.stream_shares_.share(),
                   " streams of jobs, health or inference from ", host_,
                   " are open, the most that one peer may have of ", core_.options().max_streams,
                   " (--max_peer_percent, --max_streams)");
    }
    return Later(
        kRetryStream, core_.options().max_streams,
        " streams of jobs, health or inference are open, the most allowed (--max_streams)");
  }
  if (count_ > core_.options().max_pending) {
    metrics.Count(Metric::kRefusals, Refusal::kPending);
    return Later(kRetryCall, core_.options().max_pending,
                 " calls are being answered, the most allowed (--max_pending)");
  }
  return absl::OkStatus();
}

}  // namespace athanor
