// Describes the machine this process runs on as a target for plans.
//
//   v1::Target target = HostTarget();   // target.threads() is left to the server
#ifndef ATHANOR_SERVER_TUNER_RUN_HOST_TARGET_H_
#define ATHANOR_SERVER_TUNER_RUN_HOST_TARGET_H_

#include "compiler/codegen/cpu/clang.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Returns LLVM's triple, cpu and features; the vector width and register count derived from them;
// and the cache sizes that the system reports, or common ones if it reports none.
v1::Target HostTarget();

CpuTarget ToCpuTarget(const v1::Target& target);

// Sets vector_bytes and vector_registers from triple and features.
void SetVectors(v1::Target* target);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_HOST_TARGET_H_
