// NVIDIA's run-time compiler: CUDA C++ text to machine code, without a toolkit's headers, linker or
// GPU. It is a table of functions that are found at run time, so a program with it starts anywhere.
//
//   ASSIGN_OR_RETURN(const Nvrtc* nvrtc, Nvrtc::Load(""));
//   ASSIGN_OR_RETURN(Cubin cubin, nvrtc->Compile({.source = text, .arch = "sm_90a"}));
//   if (cubin.log.kernels[0].spills()) ...
//
// A compilation takes 40 to 800 ms, opens no driver and writes no file. The library takes 110 MB of
// address space.
#ifndef ATHANOR_COMPILER_CODEGEN_CUDA_NVRTC_H_
#define ATHANOR_COMPILER_CODEGEN_CUDA_NVRTC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/cuda/compile_log.h"

namespace athanor {

struct CudaSource {
  struct Header {
    std::string name;  // as #include names it
    std::string text;
  };
  std::string source;
  std::vector<Header> headers = {};
  std::string arch;  // "sm_90a"
  // Beside the architecture, C++17 and the report of resources.
  std::vector<std::string> options = {};
  std::string name = "kernel.cu";  // in messages
};

struct Cubin {
  std::string code;
  CompileLog log;
  std::string log_text;
};

// X(member, symbol, arguments): every function of the table. All return an nvrtcResult, 0 if well.
#define ATHANOR_NVRTC(X)                                                                           \
  X(Version, "nvrtcVersion", (int* major, int* minor))                                             \
  X(CreateProgram, "nvrtcCreateProgram",                                                           \
    (void** program, const char* source, const char* name, int headers, const char* const* texts,  \
     const char* const* names))                                                                    \
  X(DestroyProgram, "nvrtcDestroyProgram", (void** program))                                       \
  X(CompileProgram, "nvrtcCompileProgram", (void* program, int count, const char* const* options)) \
  X(GetCubinSize, "nvrtcGetCUBINSize", (void* program, size_t* bytes))                             \
  X(GetCubin, "nvrtcGetCUBIN", (void* program, char* code))                                        \
  X(GetLogSize, "nvrtcGetProgramLogSize", (void* program, size_t* bytes))                          \
  X(GetLog, "nvrtcGetProgramLog", (void* program, char* log))

// Names the folder of NVRTC for Load(""): a toolkit's place or a Python package's.
inline constexpr char kNvrtcVariable[] = "ATHANOR_NVRTC";

class Nvrtc {
 public:
  // Opens the library of a folder once, for the life of the process. "" is the folder in the
  // environment variable kNvrtcVariable, else where the system's loader finds it, else the usual
  // place of a toolkit or Python package, that of the python3 in PATH among them.
  // FAILED_PRECONDITION if there is none; the message names the places. Thread-safe.
  static absl::StatusOr<const Nvrtc*> Load(const std::string& folder);

  // "13.0"
  std::string version() const;

  // INVALID_ARGUMENT if the text does not compile, with the compiler's messages; INTERNAL if the
  // compiler fails by itself. Thread-safe.
  absl::StatusOr<Cubin> Compile(const CudaSource& source) const;

 private:
#define ATHANOR_MEMBER(member, symbol, arguments) int(*member##_) arguments = nullptr;
  ATHANOR_NVRTC(ATHANOR_MEMBER)
#undef ATHANOR_MEMBER

  // Returns an empty message if the library of `folder` fills the table; "": by bare name.
  std::string Open(const std::string& folder);
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CUDA_NVRTC_H_
