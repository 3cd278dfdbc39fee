// Handlers: gather and scatter.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> IndexRows() { return {}; }

}  // namespace athanor::onnx
