#include "runtime/cuda/library.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Buffers of calls are aligned to so many bytes (runtime/device/library_call.h).
constexpr uint32_t kAlignment = 64;

// Says how the library computes products of a dtype.
struct Numbers {
  absl::string_view dtype;
  CublasType type, scale;
  CublasCompute compute;
  uint64_t implementations;
  int64_t bytes;
};
constexpr Numbers kNumbers[] = {
    {"f32", kCublasF32, kCublasF32, kCublasSumF32, kCublasAccumulatorF32 | kCublasInputF32, 4},
    {"f64", kCublasF64, kCublasF64, kCublasSumF64, kCublasAccumulatorF64 | kCublasInputF64, 8},
    {"f16", kCublasF16, kCublasF32, kCublasSumF32, kCublasAccumulatorF32 | kCublasInputF16, 2},
    {"bf16", kCublasBf16, kCublasF32, kCublasSumF32, kCublasAccumulatorF32 | kCublasInputBf16, 2},
    {"i8", kCublasI8, kCublasI32, kCublasSumI32, kCublasAccumulatorI32 | kCublasInputI8, 1},
    {"i32", kCublasI32, kCublasI32, kCublasSumI32, 0, 4},  // results only
};

const Numbers* Find(absl::string_view dtype) {
  for (const Numbers& numbers : kNumbers) {
    if (numbers.dtype == dtype) return &numbers;
  }
  return nullptr;
}

// Returns the scale factors of a product, 1, and of what was there before, 0, in the scale's type.
struct Factors {
  const void *one, *zero;
};
Factors FactorsOf(CublasType scale) {
  static constexpr float kFloats[] = {1, 0};
  static constexpr double kDoubles[] = {1, 0};
  static constexpr int32_t kIntegers[] = {1, 0};
  if (scale == kCublasF64) return {&kDoubles[0], &kDoubles[1]};
  if (scale == kCublasI32) return {&kIntegers[0], &kIntegers[1]};
  return {&kFloats[0], &kFloats[1]};
}

// Holds the library's descriptions of a call: `a` is the right operand, `b` the left one, and all
// are read as transposed.
class Description {
 public:
  explicit Description(const Cublaslt& library) : library_(library) {}
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() {
    if (operation != nullptr) library_.OperationDestroy(operation);
    for (const CublasLayout layout : {a, b, d}) {
      if (layout != nullptr) library_.LayoutDestroy(layout);
    }
  }

  absl::Status Fill(const LibraryCall& call, const void* bias) {
    numbers = Find(call.dtype);
    const Numbers* const result = Find(call.result_dtype);
    if (numbers == nullptr || result == nullptr || numbers->implementations == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cuBLASLt multiplies no ", call.dtype, " to ", call.result_dtype));
    }
    result_bytes = result->bytes;
    RETURN_IF_ERROR(CublasStatus(
        library_, library_.OperationCreate(&operation, numbers->compute, numbers->scale),
        "cublasLtMatmulDescCreate"));
    if (call.right.transposed) RETURN_IF_ERROR(Set(kCublasTransposeA, kCublasTransposed));
    if (call.left.transposed) RETURN_IF_ERROR(Set(kCublasTransposeB, kCublasTransposed));
    if (call.bias) {
      RETURN_IF_ERROR(Set(kCublasEpilogue, kCublasEpilogueBias));
      RETURN_IF_ERROR(Set(kCublasBiasPointer, bias));
    }
    RETURN_IF_ERROR(Add(call, call.right, call.sums, call.columns, numbers->type, &a));
    RETURN_IF_ERROR(Add(call, call.left, call.rows, call.sums, numbers->type, &b));
    return Add(call, call.result, call.rows, call.columns, result->type, &d);
  }

  const Numbers* numbers = nullptr;
  int64_t result_bytes = 0;
  CublasOperation operation = nullptr;
  CublasLayout a = nullptr, b = nullptr, d = nullptr;

 private:
  template <typename T>
  absl::Status Set(CublasOperationAttribute attribute, T value) {
    return CublasStatus(library_,
                        library_.OperationSet(operation, attribute, &value, sizeof(value)),
                        "cublasLtMatmulDescSetAttribute");
  }
  absl::Status Add(const LibraryCall& call, const LibraryCall::Matrix& matrix, int64_t rows,
                   int64_t columns, CublasType type, CublasLayout* layout) {
    if (matrix.transposed) std::swap(rows, columns);
    RETURN_IF_ERROR(CublasStatus(library_,
                                 library_.LayoutCreate(layout, type, columns, rows, matrix.stride),
                                 "cublasLtMatrixLayoutCreate"));
    const auto batch = static_cast<int32_t>(call.batch);
    RETURN_IF_ERROR(CublasStatus(
        library_, library_.LayoutSet(*layout, kCublasBatchCount, &batch, sizeof(batch)),
        "cublasLtMatrixLayoutSetAttribute"));
    return CublasStatus(library_,
                        library_.LayoutSet(*layout, kCublasBatchStride, &matrix.batch_stride,
                                           sizeof(matrix.batch_stride)),
                        "cublasLtMatrixLayoutSetAttribute");
  }

  const Cublaslt& library_;
};

// Returns to how many bytes all matrices of a batch are aligned.
uint32_t AlignmentOf(const LibraryCall& call, const LibraryCall::Matrix& matrix, int64_t bytes) {
  uint32_t alignment = kAlignment;
  while (matrix.offset * bytes % alignment != 0 ||
         (call.batch > 1 && matrix.batch_stride * bytes % alignment != 0)) {
    alignment /= 2;
  }
  return alignment;
}

// Says which proposals are wanted.
class Preference {
 public:
  explicit Preference(const Cublaslt& library) : library_(library) {}
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() {
    if (preference_ != nullptr) library_.PreferenceDestroy(preference_);
  }

  absl::Status Fill(const LibraryCall& call, const Description& description,
                    int64_t most_workspace) {
    RETURN_IF_ERROR(CublasStatus(library_, library_.PreferenceCreate(&preference_),
                                 "cublasLtMatmulPreferenceCreate"));
    const int64_t bytes = description.numbers->bytes;
    const uint32_t result = AlignmentOf(call, call.result, description.result_bytes);
    RETURN_IF_ERROR(Set(kCublasMostWorkspace, static_cast<uint64_t>(most_workspace)));
    RETURN_IF_ERROR(Set(kCublasReductions, kCublasReduceInSums));
    RETURN_IF_ERROR(
        Set(kCublasImplementations, kCublasAnyInstruction | description.numbers->implementations));
    RETURN_IF_ERROR(Set(kCublasAlignmentA, AlignmentOf(call, call.right, bytes)));
    RETURN_IF_ERROR(Set(kCublasAlignmentB, AlignmentOf(call, call.left, bytes)));
    RETURN_IF_ERROR(Set(kCublasAlignmentC, result));
    return Set(kCublasAlignmentD, result);
  }
  CublasPreference get() const { return preference_; }

 private:
  template <typename T>
  absl::Status Set(CublasPreferenceAttribute attribute, T value) {
    return CublasStatus(library_,
                        library_.PreferenceSet(preference_, attribute, &value, sizeof(value)),
                        "cublasLtMatmulPreferenceSetAttribute");
  }

  const Cublaslt& library_;
  CublasPreference preference_ = nullptr;
};

// Stands for a bias where none is read, but its alignment matters.
const void* AnyBias() { return reinterpret_cast<const void*>(uintptr_t{kAlignment}); }

absl::StatusOr<CublasAlgorithm> AlgorithmOf(const LibraryCall& call) {
  CublasAlgorithm algorithm;
  if (call.algorithm.size() != sizeof(algorithm.data)) {
    return absl::InvalidArgumentError(absl::StrCat("an algorithm of cuBLASLt has ",
                                                   sizeof(algorithm.data), " bytes, not ",
                                                   call.algorithm.size()));
  }
  std::memcpy(algorithm.data, call.algorithm.data(), sizeof(algorithm.data));
  return algorithm;
}

template <typename Pointer>
Pointer At(Pointer buffer, const LibraryCall::Matrix& matrix, int64_t bytes) {
  return reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(buffer) + matrix.offset * bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaLibrary>> CudaLibrary::Open(const std::string& folder) {
  ASSIGN_OR_RETURN(const Cublaslt* const library, Cublaslt::Load(folder));
  CublasHandle handle = nullptr;
  RETURN_IF_ERROR(CublasStatus(*library, library->Create(&handle), "cublasLtCreate"));
  return std::unique_ptr<CudaLibrary>(new CudaLibrary(*library, handle));
}

absl::StatusOr<std::vector<LibraryCall>> CudaLibrary::Propose(const LibraryCall& call, int most,
                                                              int64_t most_workspace) const {
  Description description(library_);
  RETURN_IF_ERROR(description.Fill(call, AnyBias()));
  Preference preference(library_);
  RETURN_IF_ERROR(preference.Fill(call, description, most_workspace));
  std::vector<CublasProposal> proposals(most);
  int count = 0;
  {
    MutexLock lock(mu_);
    const CublasResult result = library_.Propose(handle_, description.operation, description.a,
                                                 description.b, description.d, description.d,
                                                 preference.get(), most, proposals.data(), &count);
    if (result == kCublasNotSupported) return std::vector<LibraryCall>();
    RETURN_IF_ERROR(CublasStatus(library_, result, "cublasLtMatmulAlgoGetHeuristic"));
  }
  std::vector<LibraryCall> calls;
  for (int i = 0; i < count; ++i) {
    if (proposals[i].state != kCublasSuccess) continue;
    calls.push_back(call);
    calls.back().library = version();
    calls.back().algorithm.assign(reinterpret_cast<const char*>(proposals[i].algorithm.data),
                                  sizeof(proposals[i].algorithm.data));
    calls.back().workspace_bytes = static_cast<int64_t>(proposals[i].workspace_bytes);
  }
  return calls;
}

absl::Status CudaLibrary::Check(const LibraryCall& call) const {
  if (call.library != version()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan calls ", call.library, ", and this machine has ", version(),
                     ", which does not read the other's algorithms; search again"));
  }
  ASSIGN_OR_RETURN(const CublasAlgorithm algorithm, AlgorithmOf(call));
  Description description(library_);
  RETURN_IF_ERROR(description.Fill(call, AnyBias()));
  CublasProposal checked;
  {
    MutexLock lock(mu_);
    RETURN_IF_ERROR(
        CublasStatus(library_,
                     library_.Check(handle_, description.operation, description.a, description.b,
                                    description.d, description.d, &algorithm, &checked),
                     "cublasLtMatmulAlgoCheck of the plan's algorithm"));
  }
  if (checked.workspace_bytes > static_cast<size_t>(call.workspace_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("the algorithm takes ", checked.workspace_bytes,
                                                   " bytes of workspace; the plan gives it ",
                                                   call.workspace_bytes));
  }
  const int64_t bytes = description.numbers->bytes;
  RETURN_IF_ERROR(CheckAlignment(algorithm, kCublasLeastAlignmentA, "the right matrix",
                                 AlignmentOf(call, call.right, bytes)));
  RETURN_IF_ERROR(CheckAlignment(algorithm, kCublasLeastAlignmentB, "the left matrix",
                                 AlignmentOf(call, call.left, bytes)));
  return CheckAlignment(algorithm, kCublasLeastAlignmentD, "the result",
                        AlignmentOf(call, call.result, description.result_bytes));
}

absl::Status CudaLibrary::CheckAlignment(const CublasAlgorithm& algorithm,
                                         CublasAlgorithmAttribute attribute, absl::string_view name,
                                         uint32_t alignment) const {
  uint32_t least = 1;
  size_t written = 0;
  RETURN_IF_ERROR(CublasStatus(
      library_, library_.AlgorithmGet(&algorithm, attribute, &least, sizeof(least), &written),
      "cublasLtMatmulAlgoCapGetAttribute"));
  if (least <= alignment) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the algorithm wants ", name, " at multiples of ",
                                                 least, " bytes; the plan has it at multiples of ",
                                                 alignment));
}

absl::Status CudaLibrary::Enqueue(const LibraryCall& call, const LibraryBuffers& buffers,
                                  CudaStream stream) const {
  ASSIGN_OR_RETURN(const CublasAlgorithm algorithm, AlgorithmOf(call));
  Description description(library_);
  RETURN_IF_ERROR(description.Fill(call, buffers.bias));
  const Factors factors = FactorsOf(description.numbers->scale);
  const int64_t bytes = description.numbers->bytes;
  void* const result = At(buffers.result, call.result, description.result_bytes);
  MutexLock lock(mu_);
  return CublasStatus(
      library_,
      library_.Multiply(handle_, description.operation, factors.one,
                        At(buffers.right, call.right, bytes), description.a,
                        At(buffers.left, call.left, bytes), description.b, factors.zero, result,
                        description.d, result, description.d, &algorithm, buffers.workspace,
                        static_cast<size_t>(call.workspace_bytes), stream),
      "cublasLtMatmul");
}

}  // namespace athanor
