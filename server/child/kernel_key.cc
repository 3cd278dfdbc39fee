#include "server/child/kernel_key.h"

#include "absl/strings/string_view.h"
#include "server/child/compile_flags.h"

namespace athanor {
namespace {

KernelKey Key(const v1::Kernel& kernel, const v1::Target& target,
              absl::string_view compiler_version, absl::string_view driver) {
  if (kernel.library_call()) return MakeKernelKey(kernel.source(), target, driver, target.blas());
  return MakeKernelKey(kernel.source(), target, CompileFlags::For(target).ToString(),
                       compiler_version);
}

}  // namespace

KernelKey KernelKeyOf(const v1::Kernel& kernel, const internal::TargetReply& machine) {
  return Key(kernel, machine.target(), machine.compiler_version(), machine.driver());
}

KernelKey KernelKeyOf(const v1::Kernel& kernel, const MachineConditions& made_under) {
  return Key(kernel, made_under.target, made_under.compiler_version, made_under.driver);
}

}  // namespace athanor
