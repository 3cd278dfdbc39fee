// Handlers: what is refused by name, and why.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> RefusedRows() { return {}; }

}  // namespace athanor::onnx
