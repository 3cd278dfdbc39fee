// Handlers: resampling.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> ResizeRows() { return {}; }

}  // namespace athanor::onnx
