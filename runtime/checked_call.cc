#include "runtime/checked_call.h"

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

// Checks that a matrix lies inside its buffer, and overlaps itself nowhere: of operands, those of a
// batch may.
absl::Status CheckMatrix(const std::string& field, const LibraryCall::Matrix& matrix,
                         const Extents& extents, int64_t element_bytes, const CallBuffer& buffer,
                         bool written) {
  RETURN_IF_ERROR(CheckNumber(field + ".offset", matrix.offset, 0, kMostElements));
  RETURN_IF_ERROR(CheckNumber(field + ".batch_stride", matrix.batch_stride, 0, kMostElements));
  const int64_t runs = matrix.transposed ? extents.columns : extents.rows;
  const int64_t length = matrix.transposed ? extents.rows : extents.columns;
  RETURN_IF_ERROR(CheckNumber(field + ".stride", matrix.stride, length, kMostExtent));
  const int64_t own = (runs - 1) * matrix.stride + length;  // below 2^62
  if (written && extents.batch > 1 && matrix.batch_stride < own) {
    return Bad(field + ".batch_stride", absl::StrCat("is ", matrix.batch_stride, "; results of ",
                                                     own, " elements would overlap"));
  }
  const __int128 end =
      (__int128{matrix.offset} + __int128{extents.batch - 1} * matrix.batch_stride + own) *
      element_bytes;
  if (end <= buffer.bytes) return absl::OkStatus();
  return Bad(field, absl::StrCat("leaves its buffer, which has ", buffer.bytes, " bytes"));
}

LibraryCall::Matrix MatrixOf(const v1::LibraryCall::Matrix& from) {
  return {from.offset(), from.stride(), from.batch_stride(), from.transposed()};
}

absl::StatusOr<Types> TypesOf(absl::Span<const CallBuffer> buffers) {
  for (const Types& types : kTypes) {
    if (buffers[0].dtype == types.result && buffers[1].dtype == types.operand &&
        buffers[2].dtype == types.operand) {
      return types;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("library_call: no library multiplies ", buffers[1].dtype, " by ",
                   buffers[2].dtype, " to ", buffers[0].dtype,
                   " as the op table says; it may multiply f32, f64, f16 or bf16 by the same "
                   "to the same or, of 16 bits, to f32, and i8 by i8 to i32"));
}

}  // namespace

absl::StatusOr<LibraryCall> CheckedCall(const v1::LibraryCall& from,
                                        absl::Span<const CallBuffer> buffers) {
  const size_t wanted = 3 + (from.bias() ? 1 : 0) + (from.workspace_bytes() > 0 ? 1 : 0);
  if (buffers.size() != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("library_call: the step has ", buffers.size(), " buffers; result, left, right",
                     from.bias() ? ", bias" : "", from.workspace_bytes() > 0 ? ", workspace" : "",
                     " are ", wanted));
  }
  ASSIGN_OR_RETURN(const Types types, TypesOf(buffers));
  LibraryCall call = {.library = from.library(),
                      .dtype = std::string(types.operand),
                      .result_dtype = std::string(types.result),
                      .rows = from.rows(),
                      .columns = from.columns(),
                      .sums = from.sums(),
                      .batch = from.batch(),
                      .left = MatrixOf(from.left()),
                      .right = MatrixOf(from.right()),
                      .result = MatrixOf(from.result()),
                      .bias = from.bias(),
                      .algorithm = from.algorithm(),
                      .workspace_bytes = from.workspace_bytes()};
  if (call.library.empty()) return Bad("library", "is empty; it names a library and its version");
  RETURN_IF_ERROR(CheckNumber("rows", call.rows, 1, kMostExtent));
  RETURN_IF_ERROR(CheckNumber("columns", call.columns, 1, kMostExtent));
  RETURN_IF_ERROR(
      CheckNumber("sums", call.sums, 1, types.operand == "i8" ? kMostI8Sums : kMostExtent));
  RETURN_IF_ERROR(CheckNumber("batch", call.batch, 1, kMostExtent));
  if (call.result.transposed) return Bad("result", "is transposed; swap the operands instead");
  RETURN_IF_ERROR(CheckMatrix("result", call.result, {call.rows, call.columns, call.batch},
                              types.result_bytes, buffers[0], /*written=*/true));
  RETURN_IF_ERROR(CheckMatrix("left", call.left, {call.rows, call.sums, call.batch},
                              types.operand_bytes, buffers[1], /*written=*/false));
  RETURN_IF_ERROR(CheckMatrix("right", call.right, {call.sums, call.columns, call.batch},
                              types.operand_bytes, buffers[2], /*written=*/false));
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
  if (call.algorithm.size() != kAlgorithmBytes) {
    return Bad("algorithm",
               absl::StrCat("has ", call.algorithm.size(), " bytes, not ", kAlgorithmBytes));
  }
  RETURN_IF_ERROR(
      CheckNumber("workspace_bytes", call.workspace_bytes, 0,
                  call.workspace_bytes > 0 ? buffers[wanted - 1].bytes : kMostElements));
  return call;
}

}  // namespace athanor
