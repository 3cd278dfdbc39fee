// Handlers: Shape, Size, Constant and what makes tensors of sizes.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> ShapeRows() { return {}; }

}  // namespace athanor::onnx
