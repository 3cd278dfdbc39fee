#include "compiler/pipeline/backends.h"

#include "compiler/codegen/cpu/dialect.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr Backend kBackends[] = {
    {"cpu", [](const kir::Kernel&) { return absl::OkStatus(); }, PrintCpuKernel},
    {"cuda", VerifyCuda, PrintCudaKernel},
};

}  // namespace

absl::StatusOr<const Backend*> FindBackend(std::string_view device) {
  std::string known;
  for (const Backend& backend : kBackends) {
    if (backend.device == device) return &backend;
    known += (known.empty() ? "" : ", ") + std::string(backend.device);
  }
  return Invalid("target: device ", Quoted(device), " has no backend; there are: ", known);
}

}  // namespace athanor
