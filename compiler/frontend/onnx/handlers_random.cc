// Handlers: ops that draw numbers.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> RandomRows() { return {}; }

}  // namespace athanor::onnx
