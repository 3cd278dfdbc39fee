// Handlers: convolutions and pools.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> WindowRows() { return {}; }

}  // namespace athanor::onnx
