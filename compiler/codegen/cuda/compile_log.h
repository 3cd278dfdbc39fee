// Reads what the CUDA compiler says of kernels: the registers, spills and warnings by which a
// schedule is possible or not.
//
//   CompileLog log = ParseCompileLog(text);        // of a compilation with --ptxas-options=-v
//   log.kernels[0].registers;                      // 64
//   log.kernels[0].spills();                       // true: it keeps values in memory
//   log.serialised();                              // its wgmma instructions wait for each other
#ifndef ATHANOR_COMPILER_CODEGEN_CUDA_COMPILE_LOG_H_
#define ATHANOR_COMPILER_CODEGEN_CUDA_COMPILE_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace athanor {

// Counts what one entry function takes. Bytes are per thread but for `shared_bytes`, a block's.
struct KernelResources {
  bool spills() const { return spill_store_bytes + spill_load_bytes > 0; }

  std::string name;
  std::string arch;  // "sm_90a"
  int64_t registers = 0;
  int64_t stack_bytes = 0;
  int64_t spill_store_bytes = 0;
  int64_t spill_load_bytes = 0;
  int64_t barriers = 0;
  int64_t shared_bytes = 0;  // static only
};

struct CompileWarning {
  std::string code;  // "C7519"
  std::string text;
};

struct CompileLog {
  bool Warns(absl::string_view code) const;
  // Reports whether some function's wgmma instructions run one after the other. Each cause has a
  // code of its own (C7510, C7514, C7520, ...); the text is the same.
  bool serialised() const;

  std::vector<KernelResources> kernels;  // in the order of the log
  std::vector<CompileWarning> warnings;  // those with a code
};

// Ignores lines that it does not know, and properties of functions that are no kernels.
CompileLog ParseCompileLog(absl::string_view text);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CUDA_COMPILE_LOG_H_
