// Handlers: MatMul, Gemm, Einsum, Det.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> LinearRows() { return {}; }

}  // namespace athanor::onnx
