// Handlers: DFT, STFT, windows.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> SignalRows() { return {}; }

}  // namespace athanor::onnx
