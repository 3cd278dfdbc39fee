#include "server/tuner/compile.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "deploy/bazel/libs/status_macros.h"
#include "proto/athanor/internal/worker.pb.h"
#include "runtime/cuda/cublaslt.h"
#include "server/child/compile_flags.h"
#include "server/child/tuner_channel.h"
#include "server/plans/kernel_resources.h"
#include "server/tuner/run/device_worker.h"
#include "server/tuner/run/host_target.h"
#include "server/tuner/run/isolated.h"
#include "server/tuner/run/target_device.h"
#include "server/tuner/sandbox/sandbox.h"

namespace athanor {
namespace {

// Sources that the second process may compile, and the bytes of their results.
constexpr size_t kMostShared = 256, kSharedBytes = size_t{32} << 20;

// Shared by both processes. This one takes sources from the first on, the other from the last.
struct Shared {
  // The first source that nobody has taken, and behind the last one: of a single word, so that no
  // source is taken twice.
  struct Open {
    uint32_t begin, end;
  };
  std::atomic<Open> open;
  struct Result {
    std::atomic<bool> done{false};
    int32_t code = 0;
    size_t offset = 0, size = 0;  // of the object, or of the message
  } results[kMostShared];

  static_assert(std::atomic<Open>::is_always_lock_free);

  std::optional<size_t> TakeFirst() {
    Open o = open.load();
    while (o.begin < o.end) {
      if (open.compare_exchange_weak(o, {o.begin + 1, o.end})) return o.begin;
    }
    return std::nullopt;
  }
  std::optional<size_t> TakeLast() {
    Open o = open.load();
    while (o.begin < o.end) {
      if (open.compare_exchange_weak(o, {o.begin, o.end - 1})) return o.end - 1;
    }
    return std::nullopt;
  }
  // Leaves no source to be taken.
  void Close() {
    Open o = open.load();
    while (!open.compare_exchange_weak(o, {o.end, o.end})) {
    }
  }
};

const Nvrtc* nvrtc = nullptr;  // for the life of the process, once UseNvrtc() has found it

absl::StatusOr<std::string> CompileForGpu(absl::string_view source, const v1::Target& target,
                                          Poor poor) {
  if (nvrtc == nullptr) {
    return absl::FailedPreconditionError(
        "no compiler for GPUs: this tuner found no NVRTC; name its folder with --nvrtc");
  }
  ASSIGN_OR_RETURN(Cubin cubin,
                   nvrtc->Compile(CudaSourceOf({source.data(), source.size()}, target.cpu())));
  for (const KernelResources& kernel : cubin.log.kernels) {
    if (poor == Poor::kServes || !kernel.spills()) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("ptxas spills registers to memory: ", kernel.spill_store_bytes,
                     " bytes stored, ", kernel.spill_load_bytes, " loaded"));
  }
  v1::KernelResources resources;
  if (!cubin.log.kernels.empty()) {
    const KernelResources& told = cubin.log.kernels.front();  // a source has one kernel
    resources.set_registers(told.registers);
    resources.set_stack_bytes(told.stack_bytes);
    resources.set_spill_store_bytes(told.spill_store_bytes);
    resources.set_spill_load_bytes(told.spill_load_bytes);
    resources.set_shared_bytes(told.shared_bytes);
    resources.set_barriers(told.barriers);
  }
  return WithResources(std::move(cubin.code), resources);
}

using Compile = absl::FunctionRef<absl::StatusOr<std::string>(size_t source)>;

// The second process: writes results behind each other until there is no room.
[[noreturn]] void CompileFromTheLast(pid_t parent, Compile compile, absl::FunctionRef<bool()> may,
                                     const SharedMemory& memory, Shared* shared) {
  if (!DieWith(parent).ok()) _exit(1);
  // Its words are not the tuner's, and it may not answer.
  dup2(memfd_create("athanor-compiler", MFD_CLOEXEC), STDERR_FILENO);
  close(kTunerFd);
  close(kWorkerFd);
  // A request that comes meanwhile waits for no more than the scheduler.
  constexpr int kNicer = 10;
  setpriority(PRIO_PROCESS, 0, std::min(19, getpriority(PRIO_PROCESS, 0) + kNicer));
  char* const bytes = memory.data() + sizeof(Shared);
  size_t used = 0;
  while (may()) {
    const std::optional<size_t> source = shared->TakeLast();
    if (!source) break;
    const absl::StatusOr<std::string> object = compile(*source);
    const absl::string_view text =
        object.ok() ? absl::string_view(*object) : absl::string_view(object.status().message());
    if (text.size() > kSharedBytes - used) break;
    Shared::Result& result = shared->results[*source];
    result.code = static_cast<int32_t>(object.status().code());
    result.offset = used;
    result.size = text.size();
    if (!text.empty()) std::memcpy(bytes + used, text.data(), text.size());
    used += text.size();
    result.done = true;
  }
  _exit(0);
}

}  // namespace

absl::Status UseNvrtc(const std::string& folder) {
  ASSIGN_OR_RETURN(nvrtc, Nvrtc::Load(folder));
  return absl::OkStatus();
}

std::string CompilerVersion() {
  if (nvrtc != nullptr) return absl::StrCat("nvrtc ", nvrtc->version(), " ", CudaHeadersHash());
  return absl::StrCat("clang ", ClangVersion());
}

absl::StatusOr<std::string> CompileKernel(absl::string_view source, const v1::Target& target,
                                          int64_t cpu_seconds, Poor poor) {
  constexpr int64_t kNoLimit = int64_t{1} << 30;
  LimitCpuFromNow(cpu_seconds);
  const absl::Cleanup unlimited = [] { LimitCpuFromNow(kNoLimit); };
  if (!RunsOnHost(target)) return CompileForGpu(source, target, poor);
  const CompileFlags flags = CompileFlags::For(target);
  ClangOptions options;
  options.opt_level = flags.opt_level;
  options.prefer_vector_width = flags.prefer_vector_width;
  return CompileToSharedObject(source, ToCpuTarget(target), options);
}

absl::StatusOr<std::string> CompileCall(absl::string_view text, const v1::Target& target,
                                        const IsolationLimits& limits, Poor poor) {
  if (target.blas().empty() || limits.worker == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the kernel is a library call; this ",
        target.blas().empty() ? "machine has no library" : "tuner has no device worker"));
  }
  internal::WorkerJob job;
  job.mutable_propose()->set_text(text.data(), text.size());
  job.mutable_propose()->set_library(target.blas());
  job.mutable_propose()->set_refuse_poor(poor == Poor::kIsRefused);
  // A process that is started, opens the library and then hangs is ended before this one would be.
  constexpr int kParts = 3;
  IsolationLimits part = limits;
  part.timeout /= kParts;
  ASSIGN_OR_RETURN(const internal::WorkerReply reply,
                   limits.worker->Run("a library's proposal", part, &job));
  const v1::LibraryObject& object = reply.object();
  const bool whole = !object.algorithms().empty() &&
                     absl::c_all_of(object.algorithms(), [](const std::string& algorithm) {
                       return algorithm.size() == sizeof(CublasAlgorithm);
                     });
  if (whole && object.library() == target.blas()) return object.SerializeAsString();
  return absl::InternalError("a library's proposal: the device worker's reply has none");
}

void CompileSources(
    absl::Span<const absl::string_view> sources, const v1::Target& target,
    const CompileSetting& setting,
    absl::FunctionRef<bool(size_t source, absl::StatusOr<std::string> object)> take) {
  const auto compile = [&](size_t source) {
    absl::StatusOr<std::string> object = absl::UnknownError("not compiled");
    setting.work([&] {
      object = CompileKernel(sources[source], target, setting.cpu_seconds, setting.poor);
    });
    return object;
  };
  const auto count = static_cast<uint32_t>(sources.size());
  absl::StatusOr<SharedMemory> memory = absl::UnavailableError("");
  if (count > 1 && count <= kMostShared && setting.both()) {
    memory = SharedMemory::Create(sizeof(Shared) + kSharedBytes);
  }
  pid_t other = -1;
  Shared alone{.open = Shared::Open{0, count}};
  Shared* shared = &alone;
  if (memory.ok()) {
    shared = new (memory->data()) Shared{.open = Shared::Open{0, count}};
    const pid_t parent = getpid();
    other = fork();
    if (other == 0) CompileFromTheLast(parent, compile, setting.both, *memory, shared);
  }
  std::vector<bool> taken(count);
  const auto take_from_other = [&](size_t source) {
    taken[source] = true;
    const Shared::Result& result = shared->results[source];
    const absl::string_view text(memory->data() + sizeof(Shared) + result.offset, result.size);
    const absl::Status failed(static_cast<absl::StatusCode>(result.code), text);
    return failed.ok() ? take(source, std::string(text)) : take(source, failed);
  };
  bool going_on = true;
  while (going_on) {
    const std::optional<size_t> source = shared->TakeFirst();
    if (!source) break;
    taken[*source] = true;
    going_on = take(*source, compile(*source));
    for (size_t last = shared->open.load().end; last < count && other > 0; ++last) {
      if (!taken[last] && shared->results[last].done) going_on &= take_from_other(last);
    }
  }
  shared->Close();
  while (other > 0 && waitpid(other, nullptr, 0) < 0 && errno == EINTR) {
  }
  // A source without a result may have ended the other.
  for (size_t source = shared->open.load().end; source < count && other > 0; ++source) {
    if (taken[source]) continue;
    if (shared->results[source].done) {
      going_on &= take_from_other(source);
    } else if (going_on) {
      going_on = take(source, compile(source));
    }
  }
}

}  // namespace athanor
