#include "runtime/cpu/blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace athanor {
namespace {

// CBLAS's enumerations and functions, as its standard defines them.
constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112;

template <typename T>
using Gemm = void (*)(int order, int left_transposed, int right_transposed, int rows, int columns,
                      int sums, T alpha, const T* left, int left_stride, const T* right,
                      int right_stride, T beta, T* result, int result_stride);

struct Library {
  std::string version;
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
};

constexpr char kThreads[] = "OPENBLAS_NUM_THREADS";

// The library creates its threads while it is loaded, as many as this variable says.
void* OpenWithOneThread() {
  const char* given = std::getenv(kThreads);
  const std::optional<std::string> before =
      given ? std::optional<std::string>(given) : std::nullopt;
  setenv(kThreads, "1", 1);
  void* handle = dlopen(kBlasFile, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (before) {
    setenv(kThreads, before->c_str(), 1);
  } else {
    unsetenv(kThreads);
  }
  return handle;
}

Library Load() {
  Library library;
  void* handle = OpenWithOneThread();
  if (handle == nullptr) return library;
  auto* config = reinterpret_cast<const char* (*)()>(dlsym(handle, "openblas_get_config"));
  auto* set_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "openblas_set_num_threads"));
  auto* sgemm = reinterpret_cast<Gemm<float>>(dlsym(handle, "cblas_sgemm"));
  auto* dgemm = reinterpret_cast<Gemm<double>>(dlsym(handle, "cblas_dgemm"));
  if (config == nullptr || set_threads == nullptr || sgemm == nullptr || dgemm == nullptr) {
    return library;
  }
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  const std::vector<std::string> words = absl::StrSplit(config(), absl::MaxSplits(' ', 2));
  if (words.size() < 2) return library;
  set_threads(1);  // in case this program had loaded it before
  library.version = absl::StrCat(words[0], " ", words[1]);
  library.sgemm = sgemm;
  library.dgemm = dgemm;
  return library;
}

const Library& TheLibrary() {
  static const Library& library = *new Library(Load());
  return library;
}

Gemm<float> FunctionFor(float) { return TheLibrary().sgemm; }
Gemm<double> FunctionFor(double) { return TheLibrary().dgemm; }

// The library refuses strides shorter than a row even if no second row is read.
int Stride(int64_t stride, int64_t row) {
  return static_cast<int>(std::max<int64_t>({stride, row, 1}));
}

template <typename T>
void Multiply(int64_t rows, int64_t columns, int64_t sums, const void* left, int64_t left_stride,
              int64_t left_transposed, const void* right, int64_t right_stride,
              int64_t right_transposed, void* result, int64_t result_stride) {
  if (rows <= 0 || columns <= 0) return;
  T* to = static_cast<T*>(result);
  if (sums <= 0) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(to + i * result_stride, columns, T{0});
    return;
  }
  FunctionFor(T{})(
      kRowMajor, left_transposed != 0 ? kTransposed : kAsItIs,
      right_transposed != 0 ? kTransposed : kAsItIs, static_cast<int>(rows),
      static_cast<int>(columns), static_cast<int>(sums), T{1}, static_cast<const T*>(left),
      Stride(left_stride, left_transposed != 0 ? rows : sums), static_cast<const T*>(right),
      Stride(right_stride, right_transposed != 0 ? sums : columns), T{0}, to,
      Stride(result_stride, columns));
}

}  // namespace

std::string BlasVersion() { return TheLibrary().version; }

CpuGemm BlasGemm(absl::string_view symbol) {
  if (TheLibrary().version.empty()) return nullptr;
  if (symbol == kCpuSgemmSymbol) return Multiply<float>;
  if (symbol == kCpuDgemmSymbol) return Multiply<double>;
  return nullptr;
}

}  // namespace athanor
