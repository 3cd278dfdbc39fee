#include "compiler/frontend/onnx/importer/file_tensors.h"

// Imports the file's tensors as values: small ones become known, others become parameters.
#include <string>
#include <utility>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/known/sizes.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// Known limits: small integer tensors may be shapes, axes or indices; small floats scales or
// bounds.
constexpr int64_t kMostKnownIntegers = 1024;
constexpr int64_t kMostKnownFloats = 64;

bool IsKnownAtImport(const StoredTensor& stored) {
  const DType carrier = CarrierOf(stored.elem);
  const bool whole = carrier == DType::kBool || IsInteger(carrier);
  return stored.elements <= (whole ? kMostKnownIntegers : kMostKnownFloats);
}

}  // namespace

// Makes a name for our graph: printable, unique, and as close to the file's name as possible.
std::string FileTensors::UniqueName(std::string_view name) {
  std::string base;
  for (char c : name.substr(0, max_name_bytes_ / 2)) {
    const auto byte = static_cast<unsigned char>(c);
    base += byte < 0x20 || byte == 0x7F ? '_' : c;
  }
  if (base.empty()) base = "value";
  if (!IsValidUtf8(base)) {
    for (char& c : base) {
      if (static_cast<unsigned char>(c) >= 0x80) c = '_';
    }
  }
  auto [it, added] = names_.emplace(base, 0);
  std::string unique = base;
  while (!added) {
    unique = Cat(base, "_", ++it->second);
    added = names_.emplace(unique, 0).second;
  }
  return unique;
}

NodeId FileTensors::AddDeclared(Op op, std::string name, TensorType type) {
  graph_.nodes.push_back({op, {}, {}, std::move(type), std::move(name)});
  return static_cast<NodeId>(graph_.nodes.size() - 1);
}

absl::StatusOr<Value> FileTensors::ValueOf(const ::onnx::TensorProto& tensor,
                                           std::string_view name) {
  auto found = tensors_.find(&tensor);
  if (found != tensors_.end()) return found->second;
  absl::StatusOr<Value> value = MakeValue(tensor, name);
  if (value.ok()) tensors_.emplace(&tensor, *value);
  return value;
}

absl::StatusOr<Value> FileTensors::MakeValue(const ::onnx::TensorProto& tensor,
                                             std::string_view name) {
  ASSIGN_OR_RETURN(StoredTensor stored, DescribeTensor(tensor, model_.lifted, model_.files));
  if (stored.payload && stored.payload->file != 0) external_.push_back(stored);
  if (!IsKnownAtImport(stored) || stored.elements > budget_.MostKnown()) {
    return MakeParameter(std::move(stored), name);
  }
  ASSIGN_OR_RETURN(Tensor literal, ReadTensor(stored, reader_));
  Value value;
  value.elem = stored.elem;
  value.shape.assign(stored.shape.begin(), stored.shape.end());
  value.known = std::make_shared<const Known>(KnownOf(std::move(literal)));
  budget_.AddKnown(static_cast<int64_t>(value.known->sizes.size()));
  return value;
}

absl::StatusOr<Value> FileTensors::MakeParameter(StoredTensor stored, std::string_view name) {
  const Elem elem = stored.elem;
  const Shape shape(stored.shape.begin(), stored.shape.end());
  const bool packed = stored.form == PayloadForm::kPacked;
  const TensorType type = packed ? TensorType{DType::kU8, {Expr(stored.stored_bytes())}}
                                 : TensorType{CarrierOf(elem), shape};
  const NodeId node = AddDeclared(Op::kParameter, UniqueName(name), type);
  parameters_.emplace_back(node, std::move(stored));
  const Value stated = b_.At(node, packed ? Elem::kUInt8 : elem);
  const Value value = packed ? Unpacked(stated, elem, shape) : stated;
  RETURN_IF_ERROR(b_.TakeStatus());
  return value;
}

// Unpacks elements of less than a byte, packed from the lowest bits up.
Value FileTensors::Unpacked(const Value& bytes, Elem elem, const Shape& shape) {
  OpBuilder& b = b_;
  const int64_t bits = Row(elem).bits;
  Expr count = 1;
  for (const Expr& size : shape) count *= size;
  const Shape flat = {count};
  const Expr first_bit = Expr(bits) * Expr::Axis(0);
  // Uses words of 16 bits, since an element may begin in one byte and end in the next.
  const Value low = Cast(b, Map(b, bytes, flat, {FloorDiv(first_bit, 8)}), Elem::kUInt16);
  Value word = low;
  if (8 % bits != 0) {
    const Value next =
        MapOr(b, bytes, flat, {FloorDiv(first_bit, 8) + 1}, b.Integer(Elem::kUInt8, 0));
    const Value high = Binary(b, Op::kShift, Cast(b, next, Elem::kUInt16),
                              b.Integer(Elem::kUInt16, 8), {{"direction", "left"}});
    word = Or(b, low, high);
  }
  Tensor shifts = Tensor::Zeros(DType::kU16, {8});  // the shifts repeat after 8 elements
  for (int64_t i = 0; i < 8; ++i) shifts.data<uint16_t>()[i] = static_cast<uint16_t>(bits * i % 8);
  const Value shift =
      Map(b, b.Literal(Elem::kUInt16, std::move(shifts)), flat, {Mod(Expr::Axis(0), 8)});
  word = Binary(b, Op::kShift, word, shift, {{"direction", "right"}});
  word = And(b, word, b.Integer(Elem::kUInt16, (int64_t{1} << bits) - 1));
  Value value;
  if (Row(elem).low < 0) {  // the highest bit has a negative weight
    const int64_t half = int64_t{1} << (bits - 1);
    value = Cast(b, word, Elem::kInt8);
    value = Binary(b, Op::kXor, value, b.Integer(Elem::kInt8, half));
    value = Sub(b, value, b.Integer(Elem::kInt8, half));
  } else {
    value = Cast(b, word, Elem::kUInt8);
  }
  value = Reshape(b, value, shape);
  value.elem = elem;
  return value;
}

absl::Status FileTensors::CheckExternal() const {
  std::vector<const StoredTensor*> external;
  for (const StoredTensor& tensor : external_) external.push_back(&tensor);
  return CheckOverlaps(external);
}

}  // namespace athanor::onnx
