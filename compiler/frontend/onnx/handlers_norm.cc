// Handlers: normalisations.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> NormRows() { return {}; }

}  // namespace athanor::onnx
