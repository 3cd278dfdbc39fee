// Handlers: attention of the default domain.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> AttentionRows() { return {}; }

}  // namespace athanor::onnx
