// A cuBLASLt whose products the host computes on the emulated driver's streams, captured as other
// work is.
//
// It knows four algorithms, and proposes those that fit a product, a preference's workspace and its
// flags:
//   number  workspace               what it asks of a product
//   0       8 bytes per element     16-byte alignment of all matrices; sums in two parts
//   1       none                    16-byte alignment of all matrices
//   2       none                    nothing
//   3       64 KiB                  no batch
// A workspace is aligned to 256 bytes. Products of i8 need a transposed first matrix and multiples
// of 4, as the real ones do. Sums of floats are in f64 and rounded once: exact where f32 would be.
//
// ATHANOR_EMULATOR_CUBLASLT=N is its version instead of 130100; it refuses algorithms of others.
// Where an environment is not passed on, there are libraries of other folders: newer/ is version
// 130200, and hanging/ never says what it proposes.
// ATHANOR_EMULATOR_CUBLASLT_BIAS=N adds a bias N times: a defect.
#include "runtime/cuda/cublaslt.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/emulator/library_work.h"

using namespace athanor;            // NOLINT: every function below is of its interface
using namespace athanor::emulator;  // NOLINT

#define ATHANOR_LIBRARY(result) extern "C" __attribute__((visibility("default"))) result

namespace {

constexpr uint64_t kMagic = 0x6174'6861'6e6f'7221;
constexpr int kAlgorithms = 4;
constexpr uint32_t kAligned = 16, kWorkspaceAligned = 256;
constexpr size_t kExtraWorkspace = 64 << 10;

struct Operation {
  CublasCompute compute;
  CublasType scale;
  int32_t transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = 1;
  const void* bias = nullptr;
};
struct Layout {
  CublasType type;
  int64_t rows, columns, stride;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};
struct Preference {
  uint64_t workspace = 0, implementations = ~uint64_t{0};
  uint32_t reductions = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of a, b, c, d
};

uint64_t Setting(const char* variable, uint64_t otherwise) {
  const char* const set = std::getenv(variable);
  return set != nullptr ? std::strtoull(set, nullptr, 10) : otherwise;
}

#ifndef ATHANOR_CUBLASLT_VERSION
#define ATHANOR_CUBLASLT_VERSION 130100
#endif
#ifndef ATHANOR_CUBLASLT_HANGS
#define ATHANOR_CUBLASLT_HANGS 0
#endif

uint64_t Version() { return Setting("ATHANOR_EMULATOR_CUBLASLT", ATHANOR_CUBLASLT_VERSION); }

size_t BytesOf(CublasType type) {
  switch (type) {
    case kCublasF64:
      return 8;
    case kCublasF16:
    case kCublasBf16:
      return 2;
    case kCublasI8:
      return 1;
    default:
      return 4;
  }
}

// A product, as one call of the library describes it.
struct Product {
  Operation operation;
  Layout a, b, d;

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.columns; }
  int64_t k() const { return operation.transpose_a ? a.rows : a.columns; }
};

Product ProductOf(CublasOperation operation, CublasLayout a, CublasLayout b, CublasLayout d) {
  const auto layout = [](CublasLayout of) { return *reinterpret_cast<const Layout*>(of); };
  return {*reinterpret_cast<const Operation*>(operation), layout(a), layout(b), layout(d)};
}

bool Consistent(const Layout& layout) { return layout.rows > 0 && layout.stride >= layout.rows; }

// Returns whether any algorithm computes it.
CublasResult Supported(const Product& p) {
  const bool fits = Consistent(p.a) && Consistent(p.b) && Consistent(p.d) &&
                    (p.operation.transpose_a ? p.a.columns : p.a.rows) == p.m() &&
                    (p.operation.transpose_b ? p.b.rows : p.b.columns) == p.n() &&
                    (p.operation.transpose_b ? p.b.columns : p.b.rows) == p.k() &&
                    p.a.batch == p.d.batch && p.b.batch == p.d.batch;
  if (!fits) return kCublasInvalidValue;
  const bool i8 = p.a.type == kCublasI8;
  if (i8 && (!p.operation.transpose_a || p.operation.transpose_b || p.m() % 4 != 0 ||
             p.k() % 4 != 0 || p.operation.epilogue == kCublasEpilogueBias)) {
    return kCublasNotSupported;
  }
  const CublasCompute compute = i8                       ? kCublasSumI32
                                : p.a.type == kCublasF64 ? kCublasSumF64
                                                         : kCublasSumF32;
  const bool types = p.a.type == p.b.type && p.operation.compute == compute &&
                     (i8                       ? p.d.type == kCublasI32
                      : p.a.type == p.d.type   ? true
                      : BytesOf(p.a.type) == 2 ? p.d.type == kCublasF32
                                               : false);
  return types ? kCublasSuccess : kCublasNotSupported;
}

bool Fits(int algorithm, const Product& p) { return algorithm != 3 || p.d.batch == 1; }

bool NeedsAlignment(int algorithm) { return algorithm < 2; }

size_t WorkspaceOf(int algorithm, const Product& p) {
  if (algorithm == 0) return sizeof(double) * p.m() * p.n() * p.d.batch;
  return algorithm == 3 ? kExtraWorkspace : 0;
}

// Returns the number of an algorithm that this version gave; -1: it did not.
int NumberOf(const CublasAlgorithm& algorithm) {
  if (algorithm.data[0] != kMagic || algorithm.data[1] != Version() ||
      algorithm.data[2] >= kAlgorithms) {
    return -1;
  }
  return static_cast<int>(algorithm.data[2]);
}

double FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}
uint16_t ToHalf(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;  // halfway behind the largest
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const auto steps = static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // A carry goes to the exponent; below 1024, the number is subnormal.
  return magnitude == 0 ? sign : sign | static_cast<uint16_t>(((exponent + 14) << 10) + steps);
}
double FromBf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
uint16_t ToBf16(double value) {
  // Rounds to odd first, so that rounding twice is rounding once.
  auto near = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &near, sizeof(bits));
  if (std::isnan(value)) return 0x7fc0;
  if (std::isfinite(near) && static_cast<double>(near) != value) {
    if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;
    bits |= 1;
  }
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double Load(const void* base, CublasType type, int64_t i) {
  const auto read = [&](auto value) {
    std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(value), sizeof(value));
    return value;
  };
  switch (type) {
    case kCublasF64:
      return read(double{});
    case kCublasF16:
      return FromHalf(read(uint16_t{}));
    case kCublasBf16:
      return FromBf16(read(uint16_t{}));
    case kCublasI8:
      return read(int8_t{});
    default:
      return read(float{});
  }
}
void Store(void* base, CublasType type, int64_t i, double sum) {
  const auto write = [&](auto value) {
    std::memcpy(static_cast<char*>(base) + i * sizeof(value), &value, sizeof(value));
  };
  switch (type) {
    case kCublasF64:
      return write(sum);
    case kCublasF16:
      return write(ToHalf(sum));
    case kCublasBf16:
      return write(ToBf16(sum));
    case kCublasI32:
      return write(static_cast<int32_t>(sum));  // of integers below 2^31, exact
    default:
      return write(static_cast<float>(sum));
  }
}

// Is one call's work.
struct Work {
  Product product;
  int algorithm;
  CudaPointer a, b, d, bias, workspace;

  static CudaPointer AddressOf(const void* pointer) {
    return reinterpret_cast<CudaPointer>(pointer);
  }
  // Returns the bytes of all matrices of a batch.
  static size_t BytesOfAll(const Layout& l) {
    return ((l.batch - 1) * l.batch_stride + (l.columns - 1) * l.stride + l.rows) * BytesOf(l.type);
  }

  // Holds the factors of all sums of one operand: k numbers for each of `count` rows or columns of
  // the result, which lie side by side in memory if `adjacent`.
  struct Factors {
    std::vector<double> numbers;
    int64_t count, k;

    Factors(const void* base, const Layout& l, bool adjacent, int64_t n, int64_t sums)
        : count(n), k(sums) {
      numbers.reserve(l.batch * count * k);
      for (int64_t batch = 0; batch < l.batch; ++batch) {
        for (int64_t i = 0; i < count; ++i) {
          for (int64_t s = 0; s < k; ++s) {
            const int64_t at = adjacent ? i * l.stride + s : s * l.stride + i;
            numbers.push_back(Load(base, l.type, batch * l.batch_stride + at));
          }
        }
      }
    }
    const double* Of(int64_t batch, int64_t i) const { return &numbers[(batch * count + i) * k]; }
  };

  static double Sum(const double* left, const double* right, int64_t first, int64_t end) {
    double sum = 0;
    for (int64_t k = first; k < end; ++k) sum += left[k] * right[k];
    return sum;
  }

  void Run(const DeviceForWork& device) const {
    const Product& p = product;
    const bool biased = p.operation.epilogue == kCublasEpilogueBias;
    const size_t workspace_bytes = WorkspaceOf(algorithm, p);
    const void* const left = device.reach(a, BytesOfAll(p.a));
    const void* const right = device.reach(b, BytesOfAll(p.b));
    void* const result = device.reach(d, BytesOfAll(p.d));
    const void* const row = biased ? device.reach(bias, p.m() * BytesOf(p.d.type)) : nullptr;
    void* const parts = workspace_bytes > 0 ? device.reach(workspace, workspace_bytes) : nullptr;
    if (left == nullptr || right == nullptr || result == nullptr || (biased && row == nullptr) ||
        (workspace_bytes > 0 && parts == nullptr)) {
      return device.lose(kCudaIllegalAddress, "a product reads or writes outside all memory");
    }
    // More workspace, and less alignment, take longer or shorter by this table.
    constexpr double kMsPerProduct[] = {1e-7, 2e-7, 4e-7, 1.5e-7};
    device.spend(0.002 + double(p.m()) * double(p.n()) * double(p.k()) * p.d.batch *
                             kMsPerProduct[algorithm]);
    if (double(p.m()) * double(p.n()) * double(p.k()) * p.d.batch > double(device.most_moved)) {
      return;
    }
    const auto times = static_cast<double>(Setting("ATHANOR_EMULATOR_CUBLASLT_BIAS", 1));
    const int64_t half = algorithm == 0 ? p.k() / 2 : 0;
    // The first half of each sum waits in the workspace; another algorithm fills its own with junk.
    if (algorithm == 3) std::memset(parts, 0xff, workspace_bytes);
    const auto place = [&](int64_t batch, int64_t i, int64_t j) {
      return (batch * p.n() + j) * p.m() + i;
    };
    const auto for_each = [&](auto use) {
      for (int64_t batch = 0; batch < p.d.batch; ++batch) {
        for (int64_t j = 0; j < p.n(); ++j) {
          for (int64_t i = 0; i < p.m(); ++i) use(batch, i, j);
        }
      }
    };
    const Factors of_left(left, p.a, p.operation.transpose_a != 0, p.m(), p.k());
    const Factors of_right(right, p.b, p.operation.transpose_b == 0, p.n(), p.k());
    if (half > 0) {
      for_each([&](int64_t batch, int64_t i, int64_t j) {
        Store(parts, kCublasF64, place(batch, i, j),
              Sum(of_left.Of(batch, i), of_right.Of(batch, j), 0, half));
      });
    }
    for_each([&](int64_t batch, int64_t i, int64_t j) {
      double sum = Sum(of_left.Of(batch, i), of_right.Of(batch, j), half, p.k());
      if (half > 0) sum += Load(parts, kCublasF64, place(batch, i, j));
      if (biased) sum += times * Load(row, p.d.type, i);
      Store(result, p.d.type, batch * p.d.batch_stride + j * p.d.stride + i, sum);
    });
  }
};

uint64_t ImplementationOf(CublasType type) {
  switch (type) {
    case kCublasF64:
      return kCublasAccumulatorF64 | kCublasInputF64;
    case kCublasF16:
      return kCublasAccumulatorF32 | kCublasInputF16;
    case kCublasBf16:
      return kCublasAccumulatorF32 | kCublasInputBf16;
    case kCublasI8:
      return kCublasAccumulatorI32 | kCublasInputI8;
    default:
      return kCublasAccumulatorF32 | kCublasInputF32;
  }
}

template <typename T>
CublasResult Take(T* to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return kCublasInvalidValue;
  std::memcpy(to, value, bytes);
  return kCublasSuccess;
}

}  // namespace

ATHANOR_LIBRARY(size_t) cublasLtGetVersion() { return Version(); }
ATHANOR_LIBRARY(const char*) cublasLtGetStatusName(CublasResult result) {
  switch (result) {
    case kCublasSuccess:
      return "CUBLAS_STATUS_SUCCESS";
    case kCublasInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kCublasNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case kCublasExecutionFailed:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_???";
  }
}
ATHANOR_LIBRARY(CublasResult) cublasLtCreate(CublasHandle* handle) {
  *handle = reinterpret_cast<CublasHandle>(new int(0));
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult) cublasLtDestroy(CublasHandle handle) {
  delete reinterpret_cast<int*>(handle);
  return kCublasSuccess;
}

ATHANOR_LIBRARY(CublasResult)
cublasLtMatmulDescCreate(CublasOperation* operation, CublasCompute compute, CublasType scale) {
  *operation = reinterpret_cast<CublasOperation>(new Operation{compute, scale});
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult) cublasLtMatmulDescDestroy(CublasOperation operation) {
  delete reinterpret_cast<Operation*>(operation);
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult)
cublasLtMatmulDescSetAttribute(CublasOperation operation, CublasOperationAttribute attribute,
                               const void* value, size_t bytes) {
  auto& of = *reinterpret_cast<Operation*>(operation);
  switch (attribute) {
    case kCublasTransposeA:
      return Take(&of.transpose_a, value, bytes);
    case kCublasTransposeB:
      return Take(&of.transpose_b, value, bytes);
    case kCublasEpilogue:
      return Take(&of.epilogue, value, bytes);
    case kCublasBiasPointer:
      return Take(&of.bias, value, bytes);
  }
  return kCublasInvalidValue;
}

ATHANOR_LIBRARY(CublasResult)
cublasLtMatrixLayoutCreate(CublasLayout* layout, CublasType type, uint64_t rows, uint64_t columns,
                           int64_t stride) {
  *layout = reinterpret_cast<CublasLayout>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride});
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult) cublasLtMatrixLayoutDestroy(CublasLayout layout) {
  delete reinterpret_cast<Layout*>(layout);
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult)
cublasLtMatrixLayoutSetAttribute(CublasLayout layout, CublasLayoutAttribute attribute,
                                 const void* value, size_t bytes) {
  auto& of = *reinterpret_cast<Layout*>(layout);
  switch (attribute) {
    case kCublasBatchCount:
      return Take(&of.batch, value, bytes);
    case kCublasBatchStride:
      return Take(&of.batch_stride, value, bytes);
  }
  return kCublasInvalidValue;
}

ATHANOR_LIBRARY(CublasResult) cublasLtMatmulPreferenceCreate(CublasPreference* preference) {
  *preference = reinterpret_cast<CublasPreference>(new Preference);
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult) cublasLtMatmulPreferenceDestroy(CublasPreference preference) {
  delete reinterpret_cast<Preference*>(preference);
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult)
cublasLtMatmulPreferenceSetAttribute(CublasPreference preference,
                                     CublasPreferenceAttribute attribute, const void* value,
                                     size_t bytes) {
  auto& of = *reinterpret_cast<Preference*>(preference);
  switch (attribute) {
    case kCublasMostWorkspace:
      return Take(&of.workspace, value, bytes);
    case kCublasReductions:
      return Take(&of.reductions, value, bytes);
    case kCublasImplementations:
      return Take(&of.implementations, value, bytes);
    case kCublasAlignmentA:
    case kCublasAlignmentB:
    case kCublasAlignmentC:
    case kCublasAlignmentD:
      return Take(&of.alignment[attribute - kCublasAlignmentA], value, bytes);
  }
  return kCublasInvalidValue;
}

ATHANOR_LIBRARY(CublasResult)
cublasLtMatmulAlgoGetHeuristic(CublasHandle, CublasOperation operation, CublasLayout a,
                               CublasLayout b, CublasLayout, CublasLayout d,
                               CublasPreference preference, int most, CublasProposal* proposals,
                               int* count) {
  *count = 0;
  if (most <= 0) return kCublasInvalidValue;
  for (volatile bool hangs = ATHANOR_CUBLASLT_HANGS; hangs;) {
  }
  const Product product = ProductOf(operation, a, b, d);
  const auto& wanted = *reinterpret_cast<const Preference*>(preference);
  if (const CublasResult supported = Supported(product); supported != kCublasSuccess) {
    return supported;
  }
  const uint64_t needs = ImplementationOf(product.a.type);
  if ((wanted.implementations & needs) != needs) return kCublasNotSupported;
  const uint32_t alignment = *std::min_element(wanted.alignment, wanted.alignment + 4);
  for (int number = 0; number < kAlgorithms && *count < most; ++number) {
    const size_t workspace = WorkspaceOf(number, product);
    const bool splits = number == 0;
    if (!Fits(number, product) || workspace > wanted.workspace ||
        (NeedsAlignment(number) && alignment < kAligned) ||
        (splits && (wanted.reductions & kCublasReduceInSums) == 0)) {
      continue;
    }
    CublasProposal& proposal = proposals[(*count)++];
    proposal = CublasProposal();
    proposal.algorithm.data[0] = kMagic;
    proposal.algorithm.data[1] = Version();
    proposal.algorithm.data[2] = number;
    proposal.workspace_bytes = workspace;
  }
  return *count > 0 ? kCublasSuccess : kCublasNotSupported;
}
ATHANOR_LIBRARY(CublasResult)
cublasLtMatmulAlgoCheck(CublasHandle, CublasOperation operation, CublasLayout a, CublasLayout b,
                        CublasLayout, CublasLayout d, const CublasAlgorithm* algorithm,
                        CublasProposal* checked) {
  const int number = NumberOf(*algorithm);
  if (number < 0) return kCublasNotSupported;
  const Product product = ProductOf(operation, a, b, d);
  if (const CublasResult supported = Supported(product); supported != kCublasSuccess) {
    return supported;
  }
  if (!Fits(number, product)) return kCublasNotSupported;
  checked->workspace_bytes = WorkspaceOf(number, product);
  checked->state = kCublasSuccess;
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult)
cublasLtMatmulAlgoCapGetAttribute(const CublasAlgorithm* algorithm,
                                  CublasAlgorithmAttribute attribute, void* value, size_t bytes,
                                  size_t* written) {
  const int number = NumberOf(*algorithm);
  if (number < 0) return kCublasNotSupported;
  const bool known = attribute == kCublasLeastAlignmentA || attribute == kCublasLeastAlignmentB ||
                     attribute == kCublasLeastAlignmentD;
  const uint32_t alignment = NeedsAlignment(number) ? kAligned : 1;
  if (!known || bytes != sizeof(alignment)) return kCublasInvalidValue;
  std::memcpy(value, &alignment, bytes);
  *written = bytes;
  return kCublasSuccess;
}
ATHANOR_LIBRARY(CublasResult)
cublasLtMatmul(CublasHandle handle, CublasOperation operation, const void* alpha, const void* a,
               CublasLayout a_layout, const void* b, CublasLayout b_layout, const void* beta,
               const void* c, CublasLayout c_layout, void* d, CublasLayout d_layout,
               const CublasAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
               CudaStream stream) {
  CublasProposal checked;
  const CublasResult known = cublasLtMatmulAlgoCheck(handle, operation, a_layout, b_layout,
                                                     c_layout, d_layout, algorithm, &checked);
  if (known != kCublasSuccess) return known;
  const bool aligned =
      checked.workspace_bytes == 0 || Work::AddressOf(workspace) % kWorkspaceAligned == 0;
  if (stream == nullptr || workspace_bytes < checked.workspace_bytes || !aligned) {
    return kCublasInvalidValue;
  }
  // Factors of 1 and 0 have one set bit pattern each in every type: 0 is all zeros, 1 is not.
  uint32_t one = 0, zero = 1;
  std::memcpy(&zero, beta, sizeof(zero));
  const Product product = ProductOf(operation, a_layout, b_layout, d_layout);
  std::memcpy(&one,
              static_cast<const char*>(alpha) + (product.operation.scale == kCublasF64 ? 4 : 0),
              sizeof(one));
  if (one == 0 || zero != 0 || c != d) return kCublasNotSupported;
  auto work = std::make_unique<Work>(Work{.product = product,
                                          .algorithm = NumberOf(*algorithm),
                                          .a = Work::AddressOf(a),
                                          .b = Work::AddressOf(b),
                                          .d = Work::AddressOf(d),
                                          .bias = Work::AddressOf(product.operation.bias),
                                          .workspace = Work::AddressOf(workspace)});
  if (NeedsAlignment(work->algorithm) && (work->a | work->b | work->d) % kAligned != 0) {
    return kCublasNotSupported;
  }
  const CudaResult result = WorkOf(stream)->enqueue(
      stream,
      [](const DeviceForWork& device, void* state) { static_cast<Work*>(state)->Run(device); },
      work.release(), [](void* state) { delete static_cast<Work*>(state); });
  return result == kCudaSuccess ? kCublasSuccess : kCublasExecutionFailed;
}
