// cuBLASLt, NVIDIA's library of matrix products, as a table of functions, found at run time: a
// program with it builds and starts where there is none.
//
//   ASSIGN_OR_RETURN(const Cublaslt* library, Cublaslt::Load(""));
//   library->version()  // "cuBLASLt 13.1.0"
//
// Types and values are declared here, not taken from cublasLt.h; cublaslt_declarations_test.py
// compares them with it.
#ifndef ATHANOR_RUNTIME_CUDA_CUBLASLT_H_
#define ATHANOR_RUNTIME_CUDA_CUBLASLT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda/driver.h"

namespace athanor {

using CublasResult = int;
using CublasHandle = struct CublasHandleOpaque*;
using CublasOperation = struct CublasOperationOpaque*;
using CublasLayout = struct CublasLayoutOpaque*;
using CublasPreference = struct CublasPreferenceOpaque*;

// Results that callers tell apart.
enum : CublasResult {
  kCublasSuccess = 0,
  kCublasNotInitialized = 1,
  kCublasAllocFailed = 3,
  kCublasInvalidValue = 7,
  kCublasArchMismatch = 8,
  kCublasExecutionFailed = 13,
  kCublasNotSupported = 15,
};

// Types of elements, and in what products are summed.
enum CublasType : int {
  kCublasF32 = 0,
  kCublasF64 = 1,
  kCublasF16 = 2,
  kCublasI8 = 3,
  kCublasI32 = 10,
  kCublasBf16 = 14,
};
enum CublasCompute : int { kCublasSumF32 = 68, kCublasSumF64 = 70, kCublasSumI32 = 72 };

// Attributes of an operation; each takes 4 bytes, but a pointer.
enum CublasOperationAttribute : int {
  kCublasTransposeA = 3,
  kCublasTransposeB = 4,
  kCublasEpilogue = 7,
  kCublasBiasPointer = 8,
};
inline constexpr int32_t kCublasTransposed = 1;     // of kCublasTransposeA and B
inline constexpr uint32_t kCublasEpilogueBias = 4;  // of kCublasEpilogue

// Attributes of a layout: of 4 bytes, of 8.
enum CublasLayoutAttribute : int { kCublasBatchCount = 5, kCublasBatchStride = 6 };

// Attributes of a preference: the workspace and implementations of 8 bytes, the others of 4.
enum CublasPreferenceAttribute : int {
  kCublasMostWorkspace = 1,
  kCublasReductions = 3,
  kCublasAlignmentA = 5,
  kCublasAlignmentB = 6,
  kCublasAlignmentC = 7,
  kCublasAlignmentD = 8,
  kCublasImplementations = 12,
};
// Lets kCublasReductions keep partial sums in the workspace, in the type of the sums.
inline constexpr uint32_t kCublasReduceInSums = 2;
// Are flags of kCublasImplementations, from all three groups: any instruction, what sums are in,
// what operands are rounded to before they are multiplied.
inline constexpr uint64_t kCublasAnyInstruction = 0xff;
inline constexpr uint64_t kCublasAccumulatorF32 = 0x02 << 8, kCublasAccumulatorF64 = 0x04 << 8,
                          kCublasAccumulatorI32 = 0x08 << 8;
inline constexpr uint64_t kCublasInputF16 = 0x01 << 16, kCublasInputBf16 = 0x02 << 16,
                          kCublasInputF32 = 0x08 << 16, kCublasInputF64 = 0x10 << 16,
                          kCublasInputI8 = 0x20 << 16;

// Attributes of an algorithm, of 4 bytes.
enum CublasAlgorithmAttribute : int {
  kCublasLeastAlignmentA = 16,
  kCublasLeastAlignmentB = 17,
  kCublasLeastAlignmentD = 19,
};

// A way to compute products. May be kept, for the same version of the library.
struct CublasAlgorithm {
  uint64_t data[8] = {};
};
struct CublasProposal {
  CublasAlgorithm algorithm;
  size_t workspace_bytes = 0;
  CublasResult state = 0;
  float waves = 0;
  int reserved[4] = {};
};

// X(result, member, symbol, arguments): every function of the table.
#define ATHANOR_CUBLASLT(X)                                                                        \
  X(size_t, GetVersion, "cublasLtGetVersion", ())                                                  \
  X(const char*, GetStatusName, "cublasLtGetStatusName", (CublasResult result))                    \
  X(CublasResult, Create, "cublasLtCreate", (CublasHandle * handle))                               \
  X(CublasResult, Destroy, "cublasLtDestroy", (CublasHandle handle))                               \
  X(CublasResult, OperationCreate, "cublasLtMatmulDescCreate",                                     \
    (CublasOperation * operation, CublasCompute compute, CublasType scale))                        \
  X(CublasResult, OperationDestroy, "cublasLtMatmulDescDestroy", (CublasOperation operation))      \
  X(CublasResult, OperationSet, "cublasLtMatmulDescSetAttribute",                                  \
    (CublasOperation operation, CublasOperationAttribute attribute, const void* value,             \
     size_t bytes))                                                                                \
  X(CublasResult, LayoutCreate, "cublasLtMatrixLayoutCreate",                                      \
    (CublasLayout * layout, CublasType type, uint64_t rows, uint64_t columns, int64_t stride))     \
  X(CublasResult, LayoutDestroy, "cublasLtMatrixLayoutDestroy", (CublasLayout layout))             \
  X(CublasResult, LayoutSet, "cublasLtMatrixLayoutSetAttribute",                                   \
    (CublasLayout layout, CublasLayoutAttribute attribute, const void* value, size_t bytes))       \
  X(CublasResult, PreferenceCreate, "cublasLtMatmulPreferenceCreate",                              \
    (CublasPreference * preference))                                                               \
  X(CublasResult, PreferenceDestroy, "cublasLtMatmulPreferenceDestroy",                            \
    (CublasPreference preference))                                                                 \
  X(CublasResult, PreferenceSet, "cublasLtMatmulPreferenceSetAttribute",                           \
    (CublasPreference preference, CublasPreferenceAttribute attribute, const void* value,          \
     size_t bytes))                                                                                \
  X(CublasResult, Propose, "cublasLtMatmulAlgoGetHeuristic",                                       \
    (CublasHandle handle, CublasOperation operation, CublasLayout a, CublasLayout b,               \
     CublasLayout c, CublasLayout d, CublasPreference preference, int most,                        \
     CublasProposal* proposals, int* count))                                                       \
  X(CublasResult, Check, "cublasLtMatmulAlgoCheck",                                                \
    (CublasHandle handle, CublasOperation operation, CublasLayout a, CublasLayout b,               \
     CublasLayout c, CublasLayout d, const CublasAlgorithm* algorithm, CublasProposal* checked))   \
  X(CublasResult, AlgorithmGet, "cublasLtMatmulAlgoCapGetAttribute",                               \
    (const CublasAlgorithm* algorithm, CublasAlgorithmAttribute attribute, void* value,            \
     size_t bytes, size_t* written))                                                               \
  X(CublasResult, Multiply, "cublasLtMatmul",                                                      \
    (CublasHandle handle, CublasOperation operation, const void* alpha, const void* a,             \
     CublasLayout a_layout, const void* b, CublasLayout b_layout, const void* beta, const void* c, \
     CublasLayout c_layout, void* d, CublasLayout d_layout, const CublasAlgorithm* algorithm,      \
     void* workspace, size_t workspace_bytes, CudaStream stream))

// Names the folder of the library for Load(""): a toolkit's place or a Python package's.
inline constexpr char kCublasltVariable[] = "ATHANOR_CUBLASLT";
inline constexpr char kCublasltFile[] = "libcublasLt.so.13";

struct Cublaslt {
#define ATHANOR_MEMBER(result, member, symbol, arguments) result(*member) arguments = nullptr;
  ATHANOR_CUBLASLT(ATHANOR_MEMBER)
#undef ATHANOR_MEMBER

  // Opens the library of a folder once, for the life of the process. "" is the folder in the
  // environment variable kCublasltVariable, else the usual places (cuda_folders.h).
  // FAILED_PRECONDITION if there is none, or it lacks a function; the message names the places.
  // Thread-safe.
  static absl::StatusOr<const Cublaslt*> Load(const std::string& folder);

  // "cuBLASLt 13.1.0"
  std::string version() const;
};

// Returns OK for kCublasSuccess. Otherwise the message is `call` and the library's name of the
// result; the code says what to do next: RESOURCE_EXHAUSTED: with more free memory;
// INVALID_ARGUMENT: with another product or algorithm; FAILED_PRECONDITION: on another device;
// INTERNAL: any other result.
absl::Status CublasStatus(const Cublaslt& library, CublasResult result, absl::string_view call);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_CUBLASLT_H_
