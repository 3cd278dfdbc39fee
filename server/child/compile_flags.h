// The flags that every kernel for a target is compiled with: as the tuner passes them to the
// compiler, and as keys of the cache hold them.
//
//   CompileFlags::For(target).ToString()   // "-O3 -mprefer-vector-width=512 -ffp-contract=off"
//   CompileFlags::For(gpu).ToString()      // "--std=c++17 --fmad=false"
#ifndef ATHANOR_SERVER_CHILD_COMPILE_FLAGS_H_
#define ATHANOR_SERVER_CHILD_COMPILE_FLAGS_H_

#include <string>

#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct CompileFlags {
  bool nvrtc = false;  // by NVRTC, which has one set of flags (CudaSourceOf); else by Clang
  int opt_level = 3;
  int prefer_vector_width = 512;  // bits

  static CompileFlags For(const v1::Target& target);
  std::string ToString() const;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_COMPILE_FLAGS_H_
