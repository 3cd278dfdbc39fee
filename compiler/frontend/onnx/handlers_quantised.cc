// Handlers: quantised ops.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> QuantisedRows() { return {}; }

}  // namespace athanor::onnx
