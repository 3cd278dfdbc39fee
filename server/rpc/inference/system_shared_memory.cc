#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "deploy/bazel/libs/status_macros.h"
#include "server/net/peers.h"
#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"
#include "server/shared_memory/shared_regions.h"

namespace athanor {
namespace {

SharedUser UserOf(const grpc::CallbackServerContext& context, const Caller& caller) {
  return {.owner = caller.name(), .local = IsLocalPeer(context.peer())};
}

// Clamps to 63 bits: a number beyond them is refused as the largest one is.
int64_t SignedOf(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryStatus(Context* context,
                                                                     const Bytes* request,
                                                                     Bytes* reply) {
  using Request = inference::SystemSharedMemoryStatusRequest;
  using Reply = inference::SystemSharedMemoryStatusResponse;
  return AnswerUnary<Request, Reply>(
      core_, {.name = "SystemSharedMemoryStatus"}, context, request, reply,
      [this, context](const Request& asked, Reply* answer, const Caller& caller) -> absl::Status {
        ASSIGN_OR_RETURN(const std::vector<SharedPlace> places,
                         core_.regions().List(UserOf(*context, caller), asked.name()));
        for (const SharedPlace& place : places) {
          Reply::RegionStatus& region = (*answer->mutable_regions())[place.name];
          region.set_name(place.name);
          region.set_key(place.key);
          region.set_offset(place.offset);
          region.set_byte_size(place.byte_size);
        }
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryRegister(Context* context,
                                                                       const Bytes* request,
                                                                       Bytes* reply) {
  using Request = inference::SystemSharedMemoryRegisterRequest;
  using Reply = inference::SystemSharedMemoryRegisterResponse;
  return AnswerUnary<Request, Reply>(
      core_, {.name = "SystemSharedMemoryRegister"}, context, request, reply,
      [this, context](const Request& asked, Reply*, const Caller& caller) {
        return core_.regions().Register(UserOf(*context, caller),
                                        {.name = asked.name(),
                                         .key = asked.key(),
                                         .offset = SignedOf(asked.offset()),
                                         .byte_size = SignedOf(asked.byte_size())});
      });
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryUnregister(Context* context,
                                                                         const Bytes* request,
                                                                         Bytes* reply) {
  using Request = inference::SystemSharedMemoryUnregisterRequest;
  using Reply = inference::SystemSharedMemoryUnregisterResponse;
  return AnswerUnary<Request, Reply>(
      core_, {.name = "SystemSharedMemoryUnregister"}, context, request, reply,
      [this, context](const Request& asked, Reply*, const Caller& caller) {
        return core_.regions().Unregister(UserOf(*context, caller), asked.name());
      });
}

}  // namespace athanor
