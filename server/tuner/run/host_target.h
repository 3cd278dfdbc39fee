// The machine this process runs on, as plans are made for it.
//
//   v1::Target target = HostTarget();   // target.threads() is left to the server
#ifndef ATHANOR_SERVER_TUNER_RUN_HOST_TARGET_H_
#define ATHANOR_SERVER_TUNER_RUN_HOST_TARGET_H_

#include "compiler/codegen/cpu/clang.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// LLVM's triple, cpu and features; vector width and register count that follow from them; cache
// sizes as the system tells them, or common ones where it tells none.
v1::Target HostTarget();

CpuTarget ToCpuTarget(const v1::Target& target);

// Sets vector_bytes and vector_registers from triple and features.
void SetVectors(v1::Target* target);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_HOST_TARGET_H_
