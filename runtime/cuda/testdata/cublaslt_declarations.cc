// Compiled against a toolkit's cublasLt.h, never run: each declaration of cublaslt.h is the
// header's.
#include <cublasLt.h>

#include <cstddef>
#include <type_traits>

#include "runtime/cuda/cublaslt.h"

namespace athanor {
namespace {

// Pointers are of class 1, integers and the enums that stand for them of class 2.
template <typename T>
constexpr int kClass = std::is_pointer_v<T>                         ? 1
                       : std::is_integral_v<T> || std::is_enum_v<T> ? 2
                                                                    : 3;

// Compares the sizes behind two pointers, where both are known.
template <typename Ours, typename Theirs>
constexpr bool SamePointees() {
  if constexpr (requires {
                  sizeof(Ours);
                  sizeof(Theirs);
                }) {
    return sizeof(Ours) == sizeof(Theirs) && std::is_const_v<Ours> == std::is_const_v<Theirs>;
  } else {
    return true;
  }
}

template <typename Ours, typename Theirs>
constexpr bool kPassedAlike =
    kClass<Ours> == kClass<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
    SamePointees<std::remove_pointer_t<Ours>, std::remove_pointer_t<Theirs>>();

template <typename Ours, typename Theirs>
struct Alike;
template <typename Our, typename... Ours, typename Their, typename... Theirs>
struct Alike<Our (*)(Ours...), Their (*)(Theirs...)> {
  static constexpr bool Value() {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
      return kPassedAlike<Our, Their> && (kPassedAlike<Ours, Theirs> && ...);
    } else {
      return false;
    }
  }
};

#define SAME_FUNCTION(member, SYMBOL)                                          \
  static_assert(Alike<decltype(Cublaslt::member), decltype(&SYMBOL)>::Value(), \
                #member " is not declared as " #SYMBOL);
#include <functions.inc>  // one SAME_FUNCTION for each row of ATHANOR_CUBLASLT

#define SAME_VALUE(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs))
SAME_VALUE(kCublasSuccess, CUBLAS_STATUS_SUCCESS);
SAME_VALUE(kCublasNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED);
SAME_VALUE(kCublasAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
SAME_VALUE(kCublasInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
SAME_VALUE(kCublasArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
SAME_VALUE(kCublasExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED);
SAME_VALUE(kCublasNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
SAME_VALUE(kCublasF32, CUDA_R_32F);
SAME_VALUE(kCublasF64, CUDA_R_64F);
SAME_VALUE(kCublasF16, CUDA_R_16F);
SAME_VALUE(kCublasI8, CUDA_R_8I);
SAME_VALUE(kCublasI32, CUDA_R_32I);
SAME_VALUE(kCublasBf16, CUDA_R_16BF);
SAME_VALUE(kCublasSumF32, CUBLAS_COMPUTE_32F);
SAME_VALUE(kCublasSumF64, CUBLAS_COMPUTE_64F);
SAME_VALUE(kCublasSumI32, CUBLAS_COMPUTE_32I);
SAME_VALUE(kCublasTransposeA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME_VALUE(kCublasTransposeB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME_VALUE(kCublasEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME_VALUE(kCublasBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME_VALUE(kCublasTransposed, CUBLAS_OP_T);
SAME_VALUE(kCublasEpilogueBias, CUBLASLT_EPILOGUE_BIAS);
SAME_VALUE(kCublasBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME_VALUE(kCublasBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME_VALUE(kCublasMostWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME_VALUE(kCublasReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME_VALUE(kCublasAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME_VALUE(kCublasAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME_VALUE(kCublasAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME_VALUE(kCublasAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME_VALUE(kCublasLeastAlignmentA, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES);
SAME_VALUE(kCublasLeastAlignmentB, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES);
SAME_VALUE(kCublasLeastAlignmentD, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES);
SAME_VALUE(kCublasImplementations, CUBLASLT_MATMUL_PREF_IMPL_MASK);
SAME_VALUE(kCublasReduceInSums, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME_VALUE(kCublasAnyInstruction, CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_TYPE_MASK);
SAME_VALUE(kCublasAccumulatorF32, CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F);
SAME_VALUE(kCublasAccumulatorF64, CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F);
SAME_VALUE(kCublasAccumulatorI32, CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32I);
SAME_VALUE(kCublasInputF16, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F);
SAME_VALUE(kCublasInputBf16, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF);
SAME_VALUE(kCublasInputF32, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F);
SAME_VALUE(kCublasInputF64, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F);
SAME_VALUE(kCublasInputI8, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8I);

#define SAME_FIELD(Ours, our, Theirs, their)                      \
  static_assert(offsetof(Ours, our) == offsetof(Theirs, their) && \
                sizeof(Ours::our) == sizeof(Theirs::their) && sizeof(Ours) == sizeof(Theirs))
SAME_FIELD(CublasAlgorithm, data, cublasLtMatmulAlgo_t, data);
SAME_FIELD(CublasProposal, algorithm, cublasLtMatmulHeuristicResult_t, algo);
SAME_FIELD(CublasProposal, workspace_bytes, cublasLtMatmulHeuristicResult_t, workspaceSize);
SAME_FIELD(CublasProposal, state, cublasLtMatmulHeuristicResult_t, state);
SAME_FIELD(CublasProposal, waves, cublasLtMatmulHeuristicResult_t, wavesCount);
SAME_FIELD(CublasProposal, reserved, cublasLtMatmulHeuristicResult_t, reserved);

}  // namespace
}  // namespace athanor
