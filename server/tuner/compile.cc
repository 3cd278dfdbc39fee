#include "server/tuner/compile.h"

#include "absl/cleanup/cleanup.h"
#include "compiler/codegen/cpu/clang.h"
#include "server/child/compile_flags.h"
#include "server/tuner/run/host_target.h"
#include "server/tuner/sandbox/sandbox.h"

namespace athanor {

absl::StatusOr<std::string> CompileKernel(absl::string_view source, const v1::Target& target,
                                          int64_t cpu_seconds) {
  constexpr int64_t kNoLimit = int64_t{1} << 30;
  const CompileFlags flags = CompileFlags::For(target);
  ClangOptions options;
  options.opt_level = flags.opt_level;
  options.prefer_vector_width = flags.prefer_vector_width;
  LimitCpuFromNow(cpu_seconds);
  const absl::Cleanup unlimited = [] { LimitCpuFromNow(kNoLimit); };
  return CompileToSharedObject(source, ToCpuTarget(target), options);
}

}  // namespace athanor
