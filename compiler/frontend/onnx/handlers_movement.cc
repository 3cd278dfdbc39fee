// Handlers: reshapes, slices, concatenation, padding.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> MovementRows() { return {}; }

}  // namespace athanor::onnx
