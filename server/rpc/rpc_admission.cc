#include "server/rpc/rpc_admission.h"

#include <utility>

namespace athanor {
namespace {

constexpr char kAuthorization[] = "authorization";

}  // namespace

absl::StatusOr<Caller> CallerOf(ServerCore& core, const grpc::CallbackServerContext& context,
                                absl::string_view method) {
  absl::string_view token;
  if (!core.access().open()) {
    const auto given = context.client_metadata().find(kAuthorization);
    if (given != context.client_metadata().end()) {
      token = BearerToken(absl::string_view(given->second.data(), given->second.size()));
    }
  }
  return core.access().Admit(RpcNamed(method).roles, method, token);
}

RpcAdmission::RpcAdmission(ServerCore& core, const grpc::CallbackServerContext& context,
                           absl::string_view method, CallKind kind)
    : row_(RpcNamed(method)),
      access_([&] {
        absl::StatusOr<Caller> caller = CallerOf(core, context, method);
        if (caller.ok()) caller_ = *std::move(caller);
        return caller.status();
      }()),
      slot_(core, context.peer(), kind),
      client_(caller_.name().empty() ? context.peer() : caller_.name()) {}

absl::Status RpcAdmission::status(bool while_draining) const {
  if (!access_.ok()) return access_;
  return while_draining ? absl::OkStatus() : slot_.status();
}

std::string RpcAdmission::ModelOf(const google::protobuf::Message& request) const {
  if (row_.model.empty()) return "";
  const auto* field = request.GetDescriptor()->FindFieldByName(std::string(row_.model));
  return request.GetReflection()->GetString(request, field);
}

absl::Status RpcAdmission::CheckModel(const google::protobuf::Message& request) const {
  return row_.model.empty() ? absl::OkStatus() : caller_.MayUse(ModelOf(request));
}

}  // namespace athanor
