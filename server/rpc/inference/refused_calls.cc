// The calls of Triton's that this server refuses, each with the reason. They are admitted first, as
// all calls are: whoever may not ask hears that.
#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {
namespace {

constexpr char kCuda[] =
    "CUDA shared memory is not supported: send tensors in requests, or use system shared memory "
    "(--shared_memory)";
constexpr char kTraces[] = "settings of traces are flags: --otlp_endpoint, --trace_ratio";
constexpr char kLog[] = "settings of the log are flags: --log_level, --log_format, --log_file";

template <typename Request, typename Reply>
grpc::ServerUnaryReactor* Refuse(ServerCore& core, absl::string_view method,
                                 grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply,
                                 const char* why) {
  return AnswerUnary<Request, Reply>(
      core, {.name = method}, context, request, reply,
      [why](const Request&, Reply*) { return absl::UnimplementedError(why); });
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryStatus(Context* context,
                                                                   const Bytes* request,
                                                                   Bytes* reply) {
  return Refuse<inference::CudaSharedMemoryStatusRequest,
                inference::CudaSharedMemoryStatusResponse>(core_, "CudaSharedMemoryStatus", context,
                                                           request, reply, kCuda);
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryRegister(Context* context,
                                                                     const Bytes* request,
                                                                     Bytes* reply) {
  return Refuse<inference::CudaSharedMemoryRegisterRequest,
                inference::CudaSharedMemoryRegisterResponse>(core_, "CudaSharedMemoryRegister",
                                                             context, request, reply, kCuda);
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryUnregister(Context* context,
                                                                       const Bytes* request,
                                                                       Bytes* reply) {
  return Refuse<inference::CudaSharedMemoryUnregisterRequest,
                inference::CudaSharedMemoryUnregisterResponse>(core_, "CudaSharedMemoryUnregister",
                                                               context, request, reply, kCuda);
}

grpc::ServerUnaryReactor* InferenceService::TraceSetting(Context* context, const Bytes* request,
                                                         Bytes* reply) {
  return Refuse<inference::TraceSettingRequest, inference::TraceSettingResponse>(
      core_, "TraceSetting", context, request, reply, kTraces);
}

grpc::ServerUnaryReactor* InferenceService::LogSettings(Context* context, const Bytes* request,
                                                        Bytes* reply) {
  return Refuse<inference::LogSettingsRequest, inference::LogSettingsResponse>(
      core_, "LogSettings", context, request, reply, kLog);
}

}  // namespace athanor
