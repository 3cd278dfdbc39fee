// The edge of a request for inference, shared by ModelInfer and ModelStreamInfer: its bytes to an
// Inference.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_BEGIN_INFERENCE_H_
#define ATHANOR_SERVER_RPC_INFERENCE_BEGIN_INFERENCE_H_

#include <grpcpp/grpcpp.h>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/calls/inference.h"
#include "server/core/core.h"
#include "server/rpc/rpc_admission.h"

namespace athanor {

InferenceCaller InferenceCallerOf(const grpc::CallbackServerContext& context,
                                  const RpcAdmission& admission);

// Takes out Triton's parameter "triton_enable_empty_final_response", whose sender wants to know
// which response is a request's last one. perf_analyzer sends it with single calls too.
absl::StatusOr<bool> TakeWantsFinal(inference::ModelInferRequest* request);

// Begins the inference of a request that is admitted, on this thread or, if it inflates for long,
// on another. Calls `read` with the parsed request; its error refuses it. All must live until the
// inference ends, which may be before this returns.
void BeginInference(ServerCore& core, const RpcAdmission& admission, const grpc::ByteBuffer& bytes,
                    Inference* inference,
                    absl::AnyInvocable<absl::Status(inference::ModelInferRequest*)> read);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_BEGIN_INFERENCE_H_
