// Handlers: RNN, GRU, LSTM, LinearAttention.
#include "compiler/frontend/onnx/handler.h"

namespace athanor::onnx {

absl::Span<const HandlerRow> RecurrentRows() { return {}; }

}  // namespace athanor::onnx
