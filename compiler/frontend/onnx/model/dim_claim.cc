// DimTable::WrongClaim: compares a shape stated in a file with the inferred one.
#include <algorithm>
#include <string>

#include "compiler/frontend/onnx/model/dims.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr int kShownAxes = 16;
constexpr size_t kShownSize = 64;

// Returns the file's text, shortened to fit into a sentence.
std::string SizeText(const std::string& text) {
  const bool plain = text.size() <= kShownSize && std::all_of(text.begin(), text.end(), [](char c) {
                       return c >= ' ' && c <= '~';
                     });
  return plain ? text : Quoted(text);
}

std::string ShapeText(const Shape& shape) {
  std::string text;
  for (const Expr& size : shape) text += Cat(text.empty() ? "" : ", ", SizeText(size.ToString()));
  return Cat("[", text, "]");
}

std::string ShapeText(const ::onnx::TensorShapeProto& shape) {
  std::string text;
  for (int axis = 0; axis < shape.dim_size(); ++axis) {
    if (axis == kShownAxes) return Cat("[", text, ", ...]");
    const auto& dim = shape.dim(axis);
    text += axis == 0 ? "" : ", ";
    text += dim.has_dim_value()       ? Cat(dim.dim_value())
            : dim.dim_param().empty() ? "?"
                                      : SizeText(dim.dim_param());
  }
  return Cat("[", text, "]");
}

}  // namespace

std::string DimTable::WrongClaim(std::string_view what, const ::onnx::TypeProto& claim,
                                 const Shape& inferred, const Bounds& bounds) const {
  if (!claim.has_tensor_type() || !claim.tensor_type().has_shape()) return "";
  const ::onnx::TensorShapeProto& stated = claim.tensor_type().shape();
  const auto differ = [&](std::string_view how) {
    return Cat(what, " has shape ", ShapeText(inferred), ", which holds; the file states ",
               ShapeText(stated), how);
  };
  if (stated.dim_size() != static_cast<int>(inferred.size())) return differ(": its rank is wrong");
  for (int axis = 0; axis < stated.dim_size(); ++axis) {
    const ::onnx::TensorShapeProto::Dimension& dim = stated.dim(axis);
    std::optional<Expr> size;
    if (dim.has_dim_value() && dim.dim_value() >= 0) size = Expr(dim.dim_value());
    if (!dim.dim_param().empty()) size = Parse(dim.dim_param());
    if (!size) continue;
    if (bounds.Less(*size, inferred[axis]) || bounds.Less(inferred[axis], *size)) {
      return differ(Cat(": axis ", axis, " is wrong"));
    }
  }
  return "";
}

}  // namespace athanor::onnx
