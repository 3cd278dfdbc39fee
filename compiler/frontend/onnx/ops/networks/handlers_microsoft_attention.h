// Handlers of com.microsoft's attention family; their rows are in handlers_attention.cc.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_MICROSOFT_ATTENTION_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_MICROSOFT_ATTENTION_H_

#include "absl/status/status.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

absl::Status MicrosoftAttention(HandlerContext& c);
absl::Status MultiHeadAttention(HandlerContext& c);
absl::Status MicrosoftRotaryEmbedding(HandlerContext& c);
absl::Status GroupQueryAttention(HandlerContext& c);  // handlers_group_query.cc

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_MICROSOFT_ATTENTION_H_
