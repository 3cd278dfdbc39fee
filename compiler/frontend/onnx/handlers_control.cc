// Handlers: If, Loop, Scan.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> ControlRows() { return {}; }

}  // namespace athanor::onnx
