// Compiles the C text of CPU kernels to shared objects with Clang 19 and lld,
// both in this process, in memory.
//
//   absl::StatusOr<std::string> object = CompileToSharedObject(
//       "void twice(float* x) { *x += *x; }", HostCpuTarget(), {});
//
// The object is a complete ELF file: store it, or load it with
// runtime/cpu/module.h.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_CLANG_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_CLANG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

// Target of code generation, in LLVM's words. Part of every kernel's cache key.
struct CpuTarget {
  std::string triple;                 // "x86_64-pc-linux-gnu"
  std::string cpu;                    // "znver4"
  std::vector<std::string> features;  // "+avx512f", "-amx-tile"; sorted
};

// Returns the machine this process runs on, as LLVM detects it at run time.
CpuTarget HostCpuTarget();

struct ClangOptions {
  int opt_level = 3;  // 0 to 3

  // Allows everything that -ffast-math allows. If false, the arithmetic is exactly the source's:
  // nothing is reassociated and nothing is contracted, so a kernel that wants a fused multiply-add
  // says __builtin_elementwise_fma or __builtin_fmaf.
  bool fast_math = false;

  // Widest vector, in bits, that LLVM may choose by itself. Vector types in the source keep their
  // width.
  int prefer_vector_width = 512;

  // Name of the source in diagnostics.
  std::string source_name = "kernel.c";

  // Takes the source as C++17, without exceptions, run-time type information or a standard library.
  bool cpp = false;

  // Files that the source may include, in quotes, by these names.
  struct Header {
    std::string name;
    std::string text;
  };
  std::vector<Header> headers;
};

// Compiles one C (gnu17) translation unit, which includes nothing but the options' headers, and
// links it to an ELF shared object. The source can read no file and contain no inline assembly. If
// `target` has the host's architecture, the source may declare and call functions of libm, libmvec
// (the `_ZGV...` vector functions) and libc; other targets have no libraries, not even libgcc. The
// same arguments give the same bytes.
//
// INVALID_ARGUMENT with Clang's messages if the source does not compile, with the symbol's name if
// a symbol is undefined, and with the name of a triple, cpu or option that Clang does not know. May
// be called from one thread at a time per process. LLVM ends the process on internal errors and
// when memory runs out: compile untrusted kernels in a child process.
absl::StatusOr<std::string> CompileToSharedObject(absl::string_view source, const CpuTarget& target,
                                                  const ClangOptions& options);

// Full version of the Clang in this process, such as "19.1.7"; part of keys.
std::string ClangVersion();

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_CLANG_H_
