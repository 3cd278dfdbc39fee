// DimTable::CheckClaim: what a file says of a shape against what it is.
#include <string>

#include "compiler/frontend/onnx/dims.h"
#include "compiler/ir/message.h"

namespace athanor::onnx {
namespace {

std::string ShapeText(const Shape& shape) {
  std::string text;
  for (const Expr& size : shape) text += Cat(text.empty() ? "" : ", ", size.ToString());
  return Cat("[", text, "]");
}

std::string ShapeText(const ::onnx::TensorShapeProto& shape) {
  std::string text;
  for (const auto& dim : shape.dim()) {
    text += text.empty() ? "" : ", ";
    text += dim.has_dim_value()            ? Cat(dim.dim_value())
            : dim.dim_param().empty()      ? "?"
            : IsValidUtf8(dim.dim_param()) ? dim.dim_param()
                                           : Quoted(dim.dim_param());
  }
  return Cat("[", text, "]");
}

}  // namespace

absl::Status DimTable::CheckClaim(std::string_view what, const ::onnx::TypeProto& claim,
                                  const Shape& inferred, const Bounds& bounds) const {
  if (!claim.has_tensor_type() || !claim.tensor_type().has_shape()) return absl::OkStatus();
  const ::onnx::TensorShapeProto& stated = claim.tensor_type().shape();
  const auto differ = [&](std::string_view how) {
    return Invalid(what, ": contradicting shapes: the file states ", ShapeText(stated),
                   ", but it has ", ShapeText(inferred), how);
  };
  if (stated.dim_size() != static_cast<int>(inferred.size())) return differ("");
  for (int axis = 0; axis < stated.dim_size(); ++axis) {
    const ::onnx::TensorShapeProto::Dimension& dim = stated.dim(axis);
    std::optional<Expr> size;
    if (dim.has_dim_value() && dim.dim_value() >= 0) size = Expr(dim.dim_value());
    if (!dim.dim_param().empty()) size = Parse(dim.dim_param());
    if (!size) continue;
    if (bounds.Less(*size, inferred[axis]) || bounds.Less(inferred[axis], *size)) {
      return differ(Cat("; axis ", axis, " differs"));
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor::onnx
