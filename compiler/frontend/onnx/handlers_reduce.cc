// Handlers: reductions, softmax.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> ReduceRows() { return {}; }

}  // namespace athanor::onnx
