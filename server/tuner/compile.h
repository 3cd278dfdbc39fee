// Compiles the sources of kernels, with the flags of their target (server/child/compile_flags.h),
// and has the device worker ask a GPU's library for the calls among them.
//
//   CompileSources(sources, target, {.cpu_seconds = 20}, [&](size_t i, auto object) {
//     ...                       // in any order
//     return Clock::now() < end;   // false: no further source is begun
//   });
#ifndef ATHANOR_SERVER_TUNER_COMPILE_H_
#define ATHANOR_SERVER_TUNER_COMPILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/target.pb.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Says where NVRTC lies, which compiles for GPUs, and opens it while files can be opened; "" as
// Nvrtc::Load has it. Errors are its.
absl::Status UseNvrtc(const std::string& folder);
// Returns the compiler and its version, part of a binary's key: of GPUs once UseNvrtc() was called.
std::string CompilerVersion();

// What a kernel may be without being wrong.
enum class Poor {
  kServes,     // a baseline has nothing to fall back to
  kIsRefused,  // a search has others
};

// A shared object for runtime/cpu/module.h, or a cubin for runtime/cuda. INVALID_ARGUMENT: the
// compiler refuses the source. FAILED_PRECONDITION: no compiler for this target, which says nothing
// of the source. RESOURCE_EXHAUSTED: registers are spilled to memory and `poor` is refused. It may
// use `cpu_seconds` of processor time; more ends this process (SIGXCPU).
absl::StatusOr<std::string> CompileKernel(absl::string_view source, const v1::Target& target,
                                          int64_t cpu_seconds, Poor poor = Poor::kServes);

// Returns the object of a kernel that is a library call, a v1::LibraryObject, from the device
// worker of `limits`; `text` is its KIR. Errors are those of ServeProposeJob (server/tuner/worker)
// and DeviceWorker::Run; FAILED_PRECONDITION: the target has no library, or this process no worker.
absl::StatusOr<std::string> CompileCall(absl::string_view text, const v1::Target& target,
                                        const IsolationLimits& limits, Poor poor = Poor::kServes);

struct CompileSetting {
  int64_t cpu_seconds = 0;  // for each source
  Poor poor = Poor::kServes;
  // Runs the compilation of one source, in whichever process.
  std::function<void(absl::FunctionRef<void()> work)> work = [](absl::FunctionRef<void()> work) {
    work();
  };
  // Reports whether a second process may compile beside this one; asked before each source that it
  // takes.
  std::function<bool()> both = [] { return false; };
};

// Compiles sources with this process, from the first on, and with one forked from it, from the last
// on. So the first source without a result is the one that this process works at, and a source that
// ends the other process is compiled here as well. `take` is called by this process for each
// result. REQUIRES: this process has one thread.
void CompileSources(
    absl::Span<const absl::string_view> sources, const v1::Target& target,
    const CompileSetting& setting,
    absl::FunctionRef<bool(size_t source, absl::StatusOr<std::string> object)> take);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_COMPILE_H_
