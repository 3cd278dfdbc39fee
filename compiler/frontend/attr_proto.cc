#include "compiler/frontend/attr_proto.h"

#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/expr_proto.h"
#include "compiler/frontend/names.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using Kind = v1::AttrValue::KindCase;

// The message's field for each type of attribute.
constexpr std::pair<AttrType, Kind> kKinds[] = {
    {AttrType::kBool, Kind::kB},        {AttrType::kInt, Kind::kI},
    {AttrType::kFloat, Kind::kF},       {AttrType::kString, Kind::kS},
    {AttrType::kDType, Kind::kDtype},   {AttrType::kInts, Kind::kInts},
    {AttrType::kShape, Kind::kShape},   {AttrType::kIndexMap, Kind::kIndexMap},
    {AttrType::kTensor, Kind::kTensor}, {AttrType::kGraph, Kind::kGraph},
};

std::string_view KindName(Kind kind) {
  for (const auto& [type, type_kind] : kKinds) {
    if (type_kind == kind) return AttrTypeName(type);
  }
  return "nothing";
}

bool IsKindOf(AttrType type, Kind kind) {
  for (const auto& [row_type, row_kind] : kKinds) {
    if (row_type == type) return row_kind == kind;
  }
  return false;
}

absl::Status CheckRank(std::string_view what, int64_t rank, const MessageLimits& limits) {
  if (rank <= limits.graph.max_rank) return absl::OkStatus();
  return Invalid(what, " has ", rank, " entries, one per axis; ",
                 LimitIs(limits.graph.max_rank, "max_rank"));
}

absl::StatusOr<AttrValue> IndexMapFrom(std::string_view what, const v1::IndexMapAttr& message,
                                       const MessageLimits& limits) {
  ASSIGN_OR_RETURN(Shape shape, ShapeFromProto(Cat(what, ".shape"), message.shape(), limits));
  ASSIGN_OR_RETURN(Shape coordinates,
                   ShapeFromProto(Cat(what, ".coordinates"), message.coordinates(), limits));
  return IndexMap{std::move(shape), std::move(coordinates)};
}

absl::StatusOr<AttrValue> TensorFrom(std::string_view what, const v1::TensorLiteral& message,
                                     const MessageLimits& limits) {
  ASSIGN_OR_RETURN(DType dtype, DTypeFromProto(Cat(what, ".dtype"), message.dtype()));
  RETURN_IF_ERROR(CheckRank(Cat(what, ".shape"), message.shape_size(), limits));
  return Tensor{dtype, {message.shape().begin(), message.shape().end()}, message.data()};
}

// Converts a StatusOr of one alternative to a StatusOr of the variant.
template <typename T>
absl::StatusOr<AttrValue> Lift(absl::StatusOr<T> value) {
  if (!value.ok()) return value.status();
  return AttrValue(*std::move(value));
}

struct AttrWriter {
  v1::AttrValue* out;

  void operator()(bool value) const { out->set_b(value); }
  void operator()(int64_t value) const { out->set_i(value); }
  void operator()(double value) const { out->set_f(value); }
  void operator()(const std::string& value) const { out->set_s(value); }
  void operator()(DType value) const { out->set_dtype(std::string(DTypeName(value))); }
  void operator()(const std::vector<int64_t>& values) const {
    out->mutable_ints()->mutable_values()->Add(values.begin(), values.end());
  }
  void operator()(const Shape& shape) const {
    ShapeToProto(shape, out->mutable_shape()->mutable_sizes());
  }
  void operator()(const IndexMap& map) const {
    ShapeToProto(map.shape, out->mutable_index_map()->mutable_shape());
    ShapeToProto(map.coordinates, out->mutable_index_map()->mutable_coordinates());
  }
  void operator()(const Tensor& tensor) const {
    v1::TensorLiteral* message = out->mutable_tensor();
    message->set_dtype(std::string(DTypeName(tensor.dtype)));
    message->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    message->set_data(tensor.bytes);
  }
  void operator()(const SubGraph& body) const { BodyToProto(*body, out->mutable_graph()); }
};

}  // namespace

absl::StatusOr<DType> DTypeFromProto(std::string_view what, std::string_view name) {
  if (std::optional<DType> dtype = ParseDType(name)) return *dtype;
  std::vector<std::string_view> names;
  for (const DTypeRow& row : kDTypes) names.push_back(row.name);
  return Invalid(what, " ", Quoted(name), " is not a dtype; the dtypes are ", JoinNames(names));
}

absl::StatusOr<Shape> ShapeFromProto(std::string_view what, const SizeExprs& messages,
                                     const MessageLimits& limits) {
  RETURN_IF_ERROR(CheckRank(what, messages.size(), limits));
  Shape shape;
  for (const v1::SizeExpr& message : messages) {
    absl::StatusOr<Expr> expr = ExprFromProto(
        message, {.max_depth = limits.max_nesting, .max_size = limits.graph.max_expr_size});
    if (!expr.ok()) return Prefixed(Cat(what, "[", shape.size(), "]: "), expr.status());
    shape.push_back(*std::move(expr));
  }
  return shape;
}

absl::StatusOr<AttrValue> AttrFromProto(std::string_view name, AttrType type,
                                        const v1::AttrValue& message, const MessageLimits& limits) {
  const std::string what = Cat("attribute ", name);
  if (!IsKindOf(type, message.kind_case())) {
    return Invalid(what, " is of type ", KindName(message.kind_case()), "; it must be of type ",
                   AttrTypeName(type));
  }
  switch (type) {
    case AttrType::kBool:
      return message.b();
    case AttrType::kInt:
      return message.i();
    case AttrType::kFloat:
      return message.f();
    case AttrType::kString:
      return message.s();
    case AttrType::kDType:
      return Lift(DTypeFromProto(what, message.dtype()));
    case AttrType::kInts:
      RETURN_IF_ERROR(CheckRank(what, message.ints().values_size(), limits));
      return std::vector<int64_t>(message.ints().values().begin(), message.ints().values().end());
    case AttrType::kShape:
      return Lift(ShapeFromProto(what, message.shape().sizes(), limits));
    case AttrType::kIndexMap:
      return IndexMapFrom(what, message.index_map(), limits);
    case AttrType::kTensor:
      return TensorFrom(what, message.tensor(), limits);
    case AttrType::kGraph:
      return Lift(BodyFromProto(what, message.graph(), limits));
  }
  return absl::InternalError(Cat(what, " has a type without a row"));
}

void ShapeToProto(const Shape& shape, SizeExprs* messages) {
  for (const Expr& expr : shape) *messages->Add() = ExprToProto(expr);
}

v1::AttrValue AttrToProto(const AttrValue& value) {
  v1::AttrValue message;
  std::visit(AttrWriter{&message}, value);
  return message;
}

}  // namespace athanor
