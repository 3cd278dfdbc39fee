// Compiles the source of one kernel, with the flags of its target (server/child/compile_flags.h).
#ifndef ATHANOR_SERVER_TUNER_COMPILE_H_
#define ATHANOR_SERVER_TUNER_COMPILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// A shared object for runtime/cpu/module.h. INVALID_ARGUMENT: Clang refuses the source. It may use
// `cpu_seconds` of processor time; more ends this process (SIGXCPU).
absl::StatusOr<std::string> CompileKernel(absl::string_view source, const v1::Target& target,
                                          int64_t cpu_seconds);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_COMPILE_H_
