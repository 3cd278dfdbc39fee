#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::ListDevices(Context* context, const Bytes* request,
                                                    Bytes* reply) {
  return AnswerUnary<v1::ListDevicesRequest, v1::ListDevicesResponse>(
      core_, {.name = "ListDevices"}, context, request, reply,
      [this](const v1::ListDevicesRequest&, v1::ListDevicesResponse* answer) {
        for (v1::Device& device : core_.Devices()) *answer->add_devices() = std::move(device);
        return absl::OkStatus();
      });
}

}  // namespace athanor
