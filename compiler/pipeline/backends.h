// Says how kernels are written for each kind of device.
//
//   ASSIGN_OR_RETURN(const Backend* backend, FindBackend(target.device()));
//   const std::string source = backend->print(kernel, target);
#ifndef ATHANOR_COMPILER_PIPELINE_BACKENDS_H_
#define ATHANOR_COMPILER_PIPELINE_BACKENDS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/kir/kir.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct Backend {
  std::string_view device;  // as in Target.device
  // Checks what it asks of a verified kernel beyond that.
  absl::Status (*verify)(const kir::Kernel& kernel);
  // Returns the bytes of memory that a launch gives each team for the kernel's scratch.
  int64_t (*scratch_bytes)(const kir::Kernel& kernel);
  // REQUIRES: verify(kernel).ok()
  std::string (*print)(const kir::Kernel& kernel, const v1::Target& target);
};

// INVALID_ARGUMENT names the device and those there are.
absl::StatusOr<const Backend*> FindBackend(std::string_view device);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_BACKENDS_H_
