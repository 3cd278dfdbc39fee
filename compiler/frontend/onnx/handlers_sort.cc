// Handlers: TopK, CumSum, CumProd.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> SortRows() { return {}; }

}  // namespace athanor::onnx
