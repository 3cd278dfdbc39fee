// Handlers: losses.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> LossRows() { return {}; }

}  // namespace athanor::onnx
