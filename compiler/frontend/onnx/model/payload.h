// A tensor of an ONNX file: its declaration, the place of its bytes, and the bytes themselves.
//
//   StoredTensor w = DescribeTensor(proto, model).value();   // nothing is read
//   Tensor small = ReadTensor(w, reader).value();            // an axes list, a scale
//   absl::Status s = ForEachPiece(w, reader, 1 << 20, [&](std::string_view piece) { ... });
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/elem_type.h"
#include "compiler/frontend/onnx/model/wire.h"
#include "compiler/ir/value/tensor.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

// The bytes of an upload's files. Thread-safe.
class PayloadReader {
 public:
  virtual ~PayloadReader() = default;
  // The result is valid as long as the reader. REQUIRES: the range is inside the file
  // (DescribeTensor checks it).
  virtual absl::StatusOr<std::string_view> Bytes(const PayloadRef& ref) const = 0;
};

// Conversion from stored bytes to the carrier's bytes.
enum class PayloadForm : uint8_t {
  kRaw,      // copied
  kPacked,   // copied; elements share bytes, and the graph unpacks them
  kVarints,  // int32_data, int64_data, uint64_data: one varint per element, narrowed to its low
             // bits
};

struct StoredTensor {
  std::string name;
  Elem elem = Elem::kFloat;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  PayloadForm form = PayloadForm::kRaw;
  std::optional<PayloadRef> payload;  // else `inlined`
  std::string inlined;                // small tensors: the carrier's bytes, unpacked
  // Number of bytes stored for a parameter: those of the carrier, or of u8 [bytes] for kPacked.
  int64_t stored_bytes() const;
};

// The files of an upload besides the model, by the `location` that refers to them.
struct FileTable {
  struct File {
    std::string path;
    int64_t bytes = 0;
  };
  std::vector<File> files;  // files[0] is the model
};

// INVALID_ARGUMENT: unknown element type; negative or overflowing shape; a number of bytes that
// does not fit shape and type; data in a field of another type; several data fields; external data
// without location, with an absolute location or one outside its folder, in a file that was not
// announced, or beyond its end. UNIMPLEMENTED: strings, complex numbers, segments.
absl::StatusOr<StoredTensor> DescribeTensor(const ::onnx::TensorProto& tensor,
                                            absl::Span<const PayloadRef> lifted,
                                            const FileTable& files);
// Returns INVALID_ARGUMENT naming two tensors whose external ranges overlap without being equal.
absl::Status CheckOverlaps(absl::Span<const StoredTensor* const> tensors);

// Returns the carrier's values, with sub-byte elements unpacked. RESOURCE_EXHAUSTED above
// `max_bytes`.
absl::StatusOr<Tensor> ReadTensor(const StoredTensor& tensor, const PayloadReader& reader,
                                  int64_t max_bytes = 1 << 20);
// Calls `take` with the bytes of a parameter, in order, in pieces of at most `piece` bytes. Bools
// that are neither 0 nor 1 are INVALID_ARGUMENT.
absl::Status ForEachPiece(const StoredTensor& tensor, const PayloadReader& reader, int64_t piece,
                          absl::FunctionRef<absl::Status(std::string_view)> take);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_H_
