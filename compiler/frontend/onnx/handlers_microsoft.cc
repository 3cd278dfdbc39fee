// Handlers: com.microsoft.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> MicrosoftRows() { return {}; }

}  // namespace athanor::onnx
