#include "server/rpc/inference/begin_inference.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "compiler/ir/value/message.h"
#include "server/net/peers.h"
#include "server/rpc/call.h"

namespace athanor {
namespace {

using Read = absl::AnyInvocable<absl::Status(inference::ModelInferRequest*)>;

void Parse(ServerCore& core, const RpcAdmission& admission, const grpc::ByteBuffer& bytes,
           bool on_rpc_thread, Inference* inference, Read read) {
  // The bytes are held twice: by gRPC and by the parsed request.
  InferenceStart start{.bytes = static_cast<int64_t>(bytes.Length()) * 2,
                       .runs_here = on_rpc_thread};
  absl::Status parsed = ParseRequest(core, bytes, inference->request(), &start.memory);
  if (!parsed.ok()) inference->request()->Clear();  // of what may be no text
  if (parsed.ok()) parsed = admission.caller().MayUse(inference->request()->model_name());
  if (parsed.ok()) parsed = read(inference->request());
  if (parsed.ok()) {
    inference->Begin(std::move(start));
  } else {
    inference->Refuse(parsed);
  }
}

}  // namespace

InferenceCaller InferenceCallerOf(const grpc::CallbackServerContext& context,
                                  const RpcAdmission& admission) {
  InferenceCaller caller{
      .client = admission.client(),
      .shared = {.owner = admission.caller().name(), .local = IsLocalPeer(context.peer())},
      .trace = admission.trace()};
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // gRPC's "no deadline" is so far away that adding it to anything would overflow.
  if (left < std::chrono::hours(24 * 365)) caller.deadline = caller.arrived + left;
  return caller;
}

absl::StatusOr<bool> TakeWantsFinal(inference::ModelInferRequest* request) {
  constexpr char kName[] = "triton_enable_empty_final_response";
  const auto found = request->parameters().find(kName);
  if (found == request->parameters().end()) return false;
  if (!found->second.has_bool_param()) return Invalid("parameter ", kName, " must be a bool");
  const bool wants = found->second.bool_param();
  request->mutable_parameters()->erase(kName);
  return wants;
}

void BeginInference(ServerCore& core, const RpcAdmission& admission, const grpc::ByteBuffer& bytes,
                    Inference* inference, Read read) {
  if (!InflatesLong(bytes)) {
    Parse(core, admission, bytes, /*on_rpc_thread=*/true, inference, std::move(read));
    return;
  }
  core.inflate_queue().Submit(
      [&core, &admission, &bytes, inference, read = std::move(read)]() mutable {
        Parse(core, admission, bytes, /*on_rpc_thread=*/false, inference, std::move(read));
      });
}

}  // namespace athanor
