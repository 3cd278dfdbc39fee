// athanor-tuner: the child process of one thread of a compile worker. It lowers graphs, searches
// for faster plans, compiles kernels with Clang, runs them for the first time and measures them, so
// that failures there affect only this process.
//
// With --worker: the device worker beside such a process (server/tuner/worker), which runs for it
// what is for a GPU. It speaks worker.proto.
//
// Started by server/child/tuner_process.h, never by hand. It speaks tuner.proto over descriptor 3
// and ends when the other end closes or dies.
#include <malloc.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/ir/expr/expr.h"
#include "compiler/ir/value/message.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/recipes.h"
#include "compiler/pipeline/search_session.h"
#include "compiler/rules/families/rule_row.h"
#include "deploy/bazel/libs/sha256.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "runtime/cpu/blas.h"
#include "runtime/cpu/cpus.h"
#include "server/base/traffic.h"
#include "server/child/tuner_channel.h"
#include "server/tuner/check/check.h"
#include "server/tuner/check/plan_check.h"
#include "server/tuner/compile.h"
#include "server/tuner/kernel_trials.h"
#include "server/tuner/lower.h"
#include "server/tuner/measure/machine.h"
#include "server/tuner/measure/measure.h"
#include "server/tuner/measure/yielding.h"
#include "server/tuner/run/device_worker.h"
#include "server/tuner/run/host_target.h"
#include "server/tuner/run/scratch.h"
#include "server/tuner/run/target_device.h"
#include "server/tuner/sandbox/sandbox.h"
#include "server/tuner/worker/jobs.h"
#include "server/tuner/worker/keeper.h"

namespace athanor {
namespace {

struct Flags {
  int64_t parent = 0;
  int64_t memory_limit = 0;
  int64_t compile_seconds = 0;
  int64_t kernel_ms = 0;
  int64_t max_reply_bytes = 0;
  bool traffic = false;  // there is a page of running requests
  bool scratch = false;  // there is a file for large memory
  std::vector<int> search_cpus;
  int64_t gpu = -1;     // the number of the GPU that kernels are for; -1: the CPU
  bool worker = false;  // this is the device worker of a tuner for that GPU
  std::string nvrtc;
  absl::Status no_nvrtc;  // why there is none for the GPU
};

bool ParseCpus(absl::string_view text, std::vector<int>* cpus) {
  for (absl::string_view number : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(number, &cpus->emplace_back()) || cpus->back() < 0) return false;
  }
  return true;
}

bool ParseFlags(int argc, char** argv, Flags* flags) {
  const std::pair<absl::string_view, int64_t*> rows[] = {
      {"--parent=", &flags->parent},
      {"--memory_limit=", &flags->memory_limit},
      {"--compile_seconds=", &flags->compile_seconds},
      {"--kernel_ms=", &flags->kernel_ms},
      {"--max_reply_bytes=", &flags->max_reply_bytes},
  };
  for (int i = 1; i < argc; ++i) {
    bool known = false;
    if (absl::string_view(argv[i]) == "--traffic") known = flags->traffic = true;
    if (absl::string_view(argv[i]) == "--scratch") known = flags->scratch = true;
    if (absl::string_view(argv[i]) == "--worker") known = flags->worker = true;
    absl::string_view gpu = argv[i], nvrtc = argv[i];
    if (absl::ConsumePrefix(&gpu, "--gpu=")) {
      known = absl::SimpleAtoi(gpu, &flags->gpu) && flags->gpu >= 0;
    }
    if (absl::ConsumePrefix(&nvrtc, "--nvrtc=")) known = true, flags->nvrtc = std::string(nvrtc);
    absl::string_view cpus = argv[i];
    if (absl::ConsumePrefix(&cpus, "--search_cpus=")) known = ParseCpus(cpus, &flags->search_cpus);
    for (const auto& [name, value] : rows) {
      absl::string_view text = argv[i];
      if (!absl::ConsumePrefix(&text, name)) continue;
      known = absl::SimpleAtoi(text, value) && *value > 0;
    }
    if (!known) return false;
  }
  for (const auto& [name, value] : rows) {
    if (*value == 0) return false;
  }
  return !flags->worker || flags->gpu >= 0;
}

// Makes the text valid UTF-8 for a proto string: a message may quote a source of any bytes.
std::string ValidText(std::string text) {
  return IsValidUtf8(text) ? text : absl::CHexEscape(text);
}

absl::StatusOr<internal::CompileReply> Compile(const internal::CompileRequest& request,
                                               int64_t cpu_seconds, const IsolationLimits& limits) {
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<std::string> object =
      request.library_call() ? CompileCall(request.source(), request.target(), limits)
                             : CompileKernel(request.source(), request.target(), cpu_seconds);
  if (!object.ok()) return object.status();
  internal::CompileReply reply;
  reply.set_object(*std::move(object));
  reply.set_microseconds(std::chrono::duration_cast<std::chrono::microseconds>(
                             std::chrono::steady_clock::now() - start)
                             .count());
  return reply;
}

template <typename T>
absl::Status Put(absl::StatusOr<T> value, T* reply) {
  if (!value.ok()) return value.status();
  *reply = *std::move(value);
  return absl::OkStatus();
}

// Returns how many threads run at once for a request. Kernels are checked with two, but not for
// their speed.
int ThreadsOf(const internal::TunerRequest& request) {
  switch (request.kind_case()) {
    case internal::TunerRequest::kMeasure:
      return request.measure().plans().empty()
                 ? 1
                 : HostThreads(request.measure().plans(0).plan().target(),
                               request.measure().threads());
    case internal::TunerRequest::kPlanCheck:
      return HostThreads(request.plan_check().candidate().plan().target(),
                         request.plan_check().threads());
    case internal::TunerRequest::kMachine:
      return HostThreads(request.machine().target(), request.machine().threads());
    default:
      return 1;
  }
}

// State that lasts from one request to the next.
class Child {
 public:
  Child(const Flags& flags, TrafficReader traffic, Scratch scratch)
      : flags_(flags), traffic_(std::move(traffic)), scratch_(std::move(scratch)) {
    if (flags.gpu >= 0) worker_.emplace(kWorkerFd, Scratch::Open(kWorkerMemoryFd, /*least=*/0));
  }

  // Serves one request, in the background or while somebody waits for it.
  absl::Status Serve(const internal::TunerRequest& request, internal::TunerReply* reply);

 private:
  absl::Status Answer(const internal::TunerRequest& request, internal::TunerReply* reply);
  absl::StatusOr<internal::TargetReply> Target() const;
  absl::StatusOr<internal::SearchReply> Search(const internal::SearchRequest& request);
  // Writes the parts of outcomes, each as a reply of its own.
  absl::Status Try(const internal::TunerRequest& request, KernelTrials::Setting setting,
                   internal::TunerReply* reply);

  const Flags& flags_;
  const BoundsMemory bounds_;  // from one graph to the next: boxes ask what their model asked
  const TrafficReader traffic_;
  Scratch scratch_;
  std::optional<DeviceWorker> worker_;
  YieldingWork yielding_{&traffic_, flags_.search_cpus};
  KernelTrials trials_;
  // The most recently used search is last.
  std::vector<std::pair<uint64_t, std::unique_ptr<SearchSession>>> searches_;
};

// Returns a hash of everything that decides which plans are found: if it changes, a search may find
// others.
std::string RuleSet() {
  Sha256 hash;
  hash.Update(absl::StrCat(kPipelineVersion));
  for (const RuleRow& row : RuleRows()) {
    for (std::string_view text :
         {row.name, row.family, RuleClassName(row.rule_class), row.algebra}) {
      hash.Update(absl::StrCat("\n", text.size(), " "));
      hash.Update({text.data(), text.size()});
    }
  }
  return hash.Finish();
}

absl::StatusOr<internal::TargetReply> Child::Target() const {
  internal::TargetReply reply;
  RETURN_IF_ERROR(flags_.no_nvrtc);
  *reply.mutable_target() = HostTarget();
  reply.set_compiler_version(CompilerVersion());
  for (const RuleRow& row : RuleRows()) reply.add_rules(std::string(row.name));
  for (std::string_view family : RuleFamilies()) reply.add_rule_families(std::string(family));
  reply.set_rule_set(RuleSet());
  return reply;
}

absl::StatusOr<internal::SearchReply> Child::Search(const internal::SearchRequest& request) {
  for (uint64_t ended : request.ended()) {
    std::erase_if(searches_, [&](const auto& s) { return s.first == ended; });
  }
  if (request.start().name_regions()) return NameRegions(request.start());
  auto search = std::find_if(searches_.begin(), searches_.end(),
                             [&](const auto& s) { return s.first == request.session(); });
  if (request.has_start()) {
    if (search != searches_.end()) searches_.erase(search);
    absl::StatusOr<std::unique_ptr<SearchSession>> session = SearchSession::Create(request.start());
    if (!session.ok()) return session.status();
    // A dropped search is started again when it is continued.
    if (searches_.size() >= kMaxTunerSearches) searches_.erase(searches_.begin());
    searches_.emplace_back(request.session(), *std::move(session));
  } else if (search == searches_.end()) {
    return absl::FailedPreconditionError("the search was not begun here");
  } else {
    std::rotate(search, search + 1, searches_.end());
  }
  return searches_.back().second->Next(request);
}

absl::Status Child::Try(const internal::TunerRequest& request, KernelTrials::Setting setting,
                        internal::TunerReply* reply) {
  reply->mutable_try_kernels();
  if (request.background()) {
    setting.work = [this](int threads, absl::FunctionRef<void()> work) {
      yielding_.Run(threads, work);
    };
    setting.quiet = [this] { return yielding_.Quiet(); };
  }
  return trials_.Try(request.try_kernels(), setting, [](const internal::TryOutcome& part) {
    internal::TunerReply told;
    *told.mutable_tried() = part;
    told.mutable_tried()->set_message(ValidText(part.message()));
    return WriteFrame(kTunerFd, told, {});
  });
}

absl::Status Child::Serve(const internal::TunerRequest& request, internal::TunerReply* reply) {
  // A trial yields phase by phase: only what is measured has many threads.
  if (!request.background() || request.has_try_kernels()) return Answer(request, reply);
  absl::Status status;
  yielding_.Run(ThreadsOf(request), [&] { status = Answer(request, reply); });
  return status;
}

absl::Status Child::Answer(const internal::TunerRequest& request, internal::TunerReply* reply) {
  const RememberBounds remember(bounds_);
  const int patience = request.background() ? kBackgroundPatience : 1;
  const IsolationLimits kernels{.timeout = std::chrono::milliseconds(flags_.kernel_ms) * patience,
                                .memory_bytes = flags_.memory_limit,
                                .scratch = &scratch_,
                                .worker = worker_.has_value() ? &*worker_ : nullptr};
  const auto end =
      request.end_us() > 0
          ? std::chrono::steady_clock::time_point(std::chrono::microseconds(request.end_us()))
          : std::chrono::steady_clock::time_point::max();
  const absl::Cleanup clear = [&kernels] { ClearTaken(kernels); };
  switch (request.kind_case()) {
    case internal::TunerRequest::kTarget:
      return Put(Target(), reply->mutable_target());
    case internal::TunerRequest::kLower:
      return Put(LowerGraph(request.lower(), flags_.max_reply_bytes), reply->mutable_lower());
    case internal::TunerRequest::kCompile:
      return Put(Compile(request.compile(), flags_.compile_seconds, kernels),
                 reply->mutable_compile());
    case internal::TunerRequest::kCheck:
      return Put(CheckKernels(request.check(), kernels, trials_.references()),
                 reply->mutable_check());
    case internal::TunerRequest::kMeasure: {
      TrimHeap();
      InputMemory inputs;
      return Put(MeasurePlans(request.measure(), kernels, traffic_, &inputs, end),
                 reply->mutable_measure());
    }
    case internal::TunerRequest::kTryKernels:
      return Try(request, {kernels, &traffic_, flags_.compile_seconds, end}, reply);
    case internal::TunerRequest::kPlanCheck:
      TrimHeap();
      return Put(CheckPlan(request.plan_check(), kernels), reply->mutable_plan_check());
    case internal::TunerRequest::kMachine:
      TrimHeap();
      return Put(MeasureMachine(request.machine(), kernels, traffic_), reply->mutable_machine());
    case internal::TunerRequest::kSearch:
      return Put(Search(request.search()), reply->mutable_search());
    case internal::TunerRequest::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a request of no kind");
}

// LLVM builds its tables on first use: do it now rather than during the first request.
void WarmUp() {
  CompileToSharedObject(
      "void athanor_warm_up(float* x) { for (int i = 0; i < 64; ++i) x[i] *= 2; }", HostCpuTarget(),
      {})
      .IgnoreError();
}

int Run(const Flags& flags, TrafficReader traffic, Scratch scratch) {
  Child child(flags, std::move(traffic), std::move(scratch));
  for (;;) {
    absl::StatusOr<std::string> bytes = ReadFrame(kTunerFd, kMaxTunerFrame, {});
    if (!bytes.ok()) return absl::IsUnavailable(bytes.status()) ? 0 : 1;
    internal::TunerReply reply;
    {
      internal::TunerRequest request;
      const absl::Status status = request.ParseFromString(*bytes)
                                      ? child.Serve(request, &reply)
                                      : absl::InvalidArgumentError("a request that does not parse");
      reply.set_code(static_cast<int>(status.code()));
      reply.set_message(ValidText(std::string(status.message())));
    }
    if (!WriteFrame(kTunerFd, reply, {}).ok()) return 1;
  }
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  athanor::Flags flags;
  if (!athanor::ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr, "athanor-tuner is started by athanord, with a socket on descriptor %d\n",
                 athanor::kTunerFd);
    return 2;
  }
  // Puts the CPUs set aside for searches first, then, for work of many threads, those of requests.
  for (int cpu : athanor::UsableCpus()) {
    if (!absl::c_linear_search(flags.search_cpus, cpu)) flags.search_cpus.push_back(cpu);
  }
  athanor::UseCpus(flags.search_cpus);
  athanor::BlasVersion();  // loaded while there is one thread, and for all kernels' processes
  if (flags.worker) {
    const absl::Status driver = athanor::UseGpu(static_cast<int>(flags.gpu));
    if (!driver.ok()) {
      std::fprintf(stderr, "%s\n", driver.ToString().c_str());
      return 1;
    }
    // A request that comes meanwhile waits for no more than the scheduler.
    constexpr int kNicer = 10;
    setpriority(PRIO_PROCESS, 0, std::min(19, getpriority(PRIO_PROCESS, 0) + kNicer));
  } else if (flags.gpu >= 0) {
    flags.no_nvrtc = athanor::UseNvrtc(flags.nvrtc);
  }
  const absl::StatusOr<std::string> walls =
      athanor::ConfineTuner({.parent = static_cast<pid_t>(flags.parent),
                             .memory_bytes = flags.memory_limit,
                             .gpu_driver = flags.worker && !athanor::GpuIsEmulated()});
  if (!walls.ok()) {
    std::fprintf(stderr, "%s\n", walls.status().ToString().c_str());
    return 1;
  }
  if (!flags.worker) std::fprintf(stderr, "%s%s\n", athanor::kTunerWalls.data(), walls->c_str());
  athanor::TrafficReader traffic;
  if (flags.traffic) {
    absl::StatusOr<athanor::TrafficReader> page = athanor::TrafficReader::Open(athanor::kTrafficFd);
    if (!page.ok()) {
      std::fprintf(stderr, "%s\n", page.status().ToString().c_str());
      return 1;
    }
    traffic = *std::move(page);
    close(athanor::kTrafficFd);
  }
  // Background work creates and ends threads: with a single arena no memory is kept for ended ones.
  mallopt(M_ARENA_MAX, 1);
  std::set_new_handler([] { _exit(athanor::kTunerExitMemory); });
  if (flags.worker) {
    athanor::WorkerJobs jobs(&traffic);
    return athanor::KeepWorker(
        {.socket = athanor::kTunerFd,
         .descriptors = {athanor::kScratchFd, athanor::kWorkerMemoryFd},
         .begin = [] { return athanor::TheGpu().status(); },
         .serve = [&](const auto& job, auto drawn) { return jobs.Serve(job, drawn); }});
  }
  athanor::WarmUp();
  return athanor::Run(
      flags, std::move(traffic),
      flags.scratch ? athanor::Scratch::Open(athanor::kScratchFd) : athanor::Scratch());
}
