#include "runtime/program/checked_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int64_t kMostExtent = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostElements = int64_t{1} << 53;
// So many products of two i8, of up to 2^14 each, do not leave an i32.
constexpr int64_t kMostI8Sums = kMostExtent / (128 * 128);
// Bytes of an algorithm of cuBLASLt, the one library that there is.
constexpr size_t kAlgorithmBytes = 64;

struct Types {
  absl::string_view operand, result;
  int64_t operand_bytes, result_bytes;
};
constexpr Types kTypes[] = {
    {"f32", "f32", 4, 4},   {"f64", "f64", 8, 8},  {"f16", "f16", 2, 2}, {"f16", "f32", 2, 4},
    {"bf16", "bf16", 2, 2}, {"bf16", "f32", 2, 4}, {"i8", "i32", 1, 4},
};

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("library_call.", field, " ", what));
}

absl::Status CheckNumber(absl::string_view field, int64_t number, int64_t least, int64_t most) {
  if (number >= least && number <= most) return absl::OkStatus();
  return Bad(field, absl::StrCat("is ", number, "; it must be from ", least, " to ", most));
}

struct Extents {
  int64_t rows, columns, batch;
};

// Returns the elements of one matrix, from its first to its last.
int64_t ElementsOf(const LibraryCall::Matrix& matrix, const Extents& extents) {
  const int64_t runs = matrix.transposed ? extents.columns : extents.rows;
  const int64_t length = matrix.transposed ? extents.rows : extents.columns;
  return (runs - 1) * matrix.stride + length;  // below 2^62
}

// Returns where the last matrix of a batch ends, in elements of the buffer.
__int128 EndOf(const LibraryCall::Matrix& matrix, const Extents& extents) {
  return __int128{matrix.offset} + __int128{extents.batch - 1} * matrix.batch_stride +
         ElementsOf(matrix, extents);
}

Extents ResultOf(const LibraryCall& call) { return {call.rows, call.columns, call.batch}; }
Extents LeftOf(const LibraryCall& call) { return {call.rows, call.sums, call.batch}; }
Extents RightOf(const LibraryCall& call) { return {call.sums, call.columns, call.batch}; }

// Checks that a matrix lies inside its buffer, and overlaps itself nowhere: of operands, those of a
// batch may.
absl::Status CheckMatrix(const std::string& field, const LibraryCall::Matrix& matrix,
                         const Extents& extents, int64_t element_bytes, const CallBuffer& buffer,
                         bool written) {
  RETURN_IF_ERROR(CheckNumber(field + ".offset", matrix.offset, 0, kMostElements));
  RETURN_IF_ERROR(CheckNumber(field + ".batch_stride", matrix.batch_stride, 0, kMostElements));
  RETURN_IF_ERROR(CheckNumber(field + ".stride", matrix.stride,
                              matrix.transposed ? extents.rows : extents.columns, kMostExtent));
  const int64_t own = ElementsOf(matrix, extents);
  if (written && extents.batch > 1 && matrix.batch_stride < own) {
    return Bad(field + ".batch_stride", absl::StrCat("is ", matrix.batch_stride, "; results of ",
                                                     own, " elements would overlap"));
  }
  if (EndOf(matrix, extents) * element_bytes <= buffer.bytes) return absl::OkStatus();
  return Bad(field, absl::StrCat("leaves its buffer, which has ", buffer.bytes, " bytes"));
}

LibraryCall::Matrix MatrixOf(const v1::LibraryCall::Matrix& from) {
  return {from.offset(), from.stride(), from.batch_stride(), from.transposed()};
}

const Types* FindTypes(absl::string_view operand, absl::string_view result) {
  for (const Types& types : kTypes) {
    if (types.operand == operand && types.result == result) return &types;
  }
  return nullptr;
}

absl::StatusOr<Types> TypesOf(absl::Span<const CallBuffer> buffers) {
  const Types* const types = FindTypes(buffers[1].dtype, buffers[0].dtype);
  if (types != nullptr && buffers[1].dtype == buffers[2].dtype) return *types;
  return absl::InvalidArgumentError(
      absl::StrCat("library_call: no library multiplies ", buffers[1].dtype, " by ",
                   buffers[2].dtype, " to ", buffers[0].dtype,
                   " as the op table says; it may multiply f32, f64, f16 or bf16 by the same to "
                   "the same or, of 16 bits, to f32, and i8 by i8 to i32"));
}

// Checks the number of ways, their rows and their workspaces.
absl::Status CheckWays(const v1::LibraryCall& from, int64_t most_rows) {
  if (from.ways_size() < 1 || from.ways_size() > kMostWays) {
    return Bad("ways", absl::StrCat("are ", from.ways_size(), "; they must be 1 to ", kMostWays));
  }
  if (from.ways_size() > 1 && from.batch() != 1) {
    return Bad("batch", absl::StrCat("is ", from.batch(), "; with several ways it must be 1"));
  }
  int64_t before = 0;
  for (const v1::LibraryCall::Way& way : from.ways()) {
    RETURN_IF_ERROR(CheckNumber("ways.rows", way.rows(), before + 1, kMostExtent));
    before = way.rows();
    RETURN_IF_ERROR(CheckNumber("ways.workspace_bytes", way.workspace_bytes(), 0, kMostElements));
  }
  if (most_rows > before) {
    return Bad("rows", absl::StrCat("are up to ", most_rows, ", and the last way has ", before));
  }
  return absl::OkStatus();
}

bool HasWorkspace(const v1::LibraryCall& call) {
  return std::any_of(call.ways().begin(), call.ways().end(),
                     [](const v1::LibraryCall::Way& way) { return way.workspace_bytes() > 0; });
}

absl::Status CheckWay(const LibraryCall& call, const Types& types,
                      absl::Span<const CallBuffer> buffers) {
  RETURN_IF_ERROR(CheckMatrix("result", call.result, ResultOf(call), types.result_bytes, buffers[0],
                              /*written=*/true));
  RETURN_IF_ERROR(CheckMatrix("left", call.left, LeftOf(call), types.operand_bytes, buffers[1],
                              /*written=*/false));
  RETURN_IF_ERROR(CheckMatrix("right", call.right, RightOf(call), types.operand_bytes, buffers[2],
                              /*written=*/false));
  if (call.bias && (types.result == "i32" || buffers[3].dtype != types.result)) {
    return Bad("bias", absl::StrCat("is of ", buffers[3].dtype,
                                    "; the library adds what is of the "
                                    "result's dtype, ",
                                    types.result, ", and no i32"));
  }
  if (call.bias && call.columns > buffers[3].bytes / types.result_bytes) {
    return Bad("bias",
               absl::StrCat("has ", buffers[3].bytes, " bytes for ", call.columns, " columns"));
  }
  if (call.workspace_bytes == 0) return absl::OkStatus();
  return CheckNumber("ways.workspace_bytes", call.workspace_bytes, 0, buffers.back().bytes);
}

}  // namespace

absl::StatusOr<std::vector<LibraryCall>> CheckedCall(const v1::LibraryCall& from, int64_t most_rows,
                                                     absl::Span<const CallBuffer> buffers) {
  const size_t wanted = 3 + (from.bias() ? 1 : 0) + (HasWorkspace(from) ? 1 : 0);
  if (buffers.size() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "library_call: the step has ", buffers.size(), " buffers; result, left, right",
        from.bias() ? ", bias" : "", HasWorkspace(from) ? ", workspace" : "", " are ", wanted));
  }
  ASSIGN_OR_RETURN(const Types types, TypesOf(buffers));
  RETURN_IF_ERROR(CheckWays(from, most_rows));
  LibraryCall call = {.dtype = std::string(types.operand),
                      .result_dtype = std::string(types.result),
                      .columns = from.columns(),
                      .sums = from.sums(),
                      .batch = from.batch(),
                      .left = MatrixOf(from.left()),
                      .right = MatrixOf(from.right()),
                      .result = MatrixOf(from.result()),
                      .bias = from.bias()};
  RETURN_IF_ERROR(CheckNumber("columns", call.columns, 1, kMostExtent));
  RETURN_IF_ERROR(
      CheckNumber("sums", call.sums, 1, types.operand == "i8" ? kMostI8Sums : kMostExtent));
  RETURN_IF_ERROR(CheckNumber("batch", call.batch, 1, kMostExtent));
  if (call.result.transposed) return Bad("result", "is transposed; swap the operands instead");
  std::vector<LibraryCall> calls;
  for (const v1::LibraryCall::Way& way : from.ways()) {
    call.rows = way.rows();
    call.workspace_bytes = way.workspace_bytes();
    RETURN_IF_ERROR(CheckWay(call, types, buffers));
    calls.push_back(call);
  }
  return calls;
}

absl::Status CompleteCall(absl::string_view object, std::vector<LibraryCall>* ways) {
  const auto bad = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("the object ", what...));
  };
  v1::LibraryObject from;
  if (!from.ParseFromArray(object.data(), static_cast<int>(object.size()))) {
    return bad("of a library call is no LibraryObject");
  }
  if (from.library().empty()) {
    return bad("of a library call is for no library; it names one and its version");
  }
  if (from.algorithms_size() != static_cast<int>(ways->size())) {
    return bad("has ", from.algorithms_size(), " algorithms for ", ways->size(),
               " ways of a library call");
  }
  for (int i = 0; i < from.algorithms_size(); ++i) {
    const std::string& algorithm = from.algorithms(i);
    if (algorithm.size() != kAlgorithmBytes) {
      return bad("has algorithm ", i, " of ", algorithm.size(), " bytes, not ", kAlgorithmBytes);
    }
    (*ways)[i].library = from.library();
    (*ways)[i].algorithm = algorithm;
  }
  return absl::OkStatus();
}

TouchedBytes TouchedBy(const LibraryCall& call) {
  const Types& types = *FindTypes(call.dtype, call.result_dtype);
  const auto bytes = [](__int128 elements, int64_t each) {
    return static_cast<int64_t>(elements * each);
  };
  TouchedBytes touched = {bytes(EndOf(call.result, ResultOf(call)), types.result_bytes),
                          bytes(EndOf(call.left, LeftOf(call)), types.operand_bytes),
                          bytes(EndOf(call.right, RightOf(call)), types.operand_bytes)};
  if (call.bias) touched.push_back(call.columns * types.result_bytes);
  if (call.workspace_bytes > 0) touched.push_back(call.workspace_bytes);
  return touched;
}

}  // namespace athanor
