// Handlers: elementwise functions, comparisons, logic.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> ElementwiseRows() { return {}; }

}  // namespace athanor::onnx
