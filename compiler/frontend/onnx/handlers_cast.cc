// Handlers: Cast, CastLike, BitCast.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> CastRows() { return {}; }

}  // namespace athanor::onnx
