#include "server/rpc/rpc_admission.h"

#include <grpc/grpc_security_constants.h>

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/call_log.h"
#include "server/net/peers.h"
#include "server/rpc/late_reads.h"
#include "server/tracing/tracer.h"

namespace athanor {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr char kTraceparent[] = "traceparent", kTracestate[] = "tracestate";

// Returns the first value of that name; "" if there is none.
absl::string_view MetadataOf(const grpc::CallbackServerContext& context, const char* name) {
  const auto given = context.client_metadata().find(name);
  if (given == context.client_metadata().end()) return "";
  return {given->second.data(), given->second.size()};
}

std::shared_ptr<Trace> BeginTrace(ServerCore& core, const grpc::CallbackServerContext& context,
                                  const RpcRow& row, const std::string& request_id) {
  if (core.tracer() == nullptr) return nullptr;
  const bool one = context.client_metadata().count(kTraceparent) == 1;  // several are none
  std::shared_ptr<Trace> trace = core.tracer()->Begin(
      {one ? MetadataOf(context, kTraceparent) : "", MetadataOf(context, kTracestate)}, row.method,
      std::chrono::steady_clock::now());
  if (trace == nullptr) return nullptr;
  const std::string method = absl::StrCat(row.service, "/", row.method);
  trace->Rename(method);
  trace->Set("rpc.system.name", "grpc");
  trace->Set("rpc.method", method);
  trace->Set("client.address", PeerOfCall(context.peer()).host);
  trace->Set("athanor.request_id", request_id);
  return trace;
}

// Holds what a call shows of its caller, while its context is there.
struct Credentials {
  Credentials(ServerCore& core, const grpc::CallbackServerContext& context) {
    const Access& access = core.access();
    if (access.open()) return;
    const absl::string_view authorization = MetadataOf(context, kAuthorization);
    token = BearerToken(authorization);
    // Whoever shows something else than a token may be a client of the certificate's owner.
    if (!authorization.empty() || access.certificates() == nullptr) return;
    const auto auth = context.auth_context();
    std::string shown;
    for (const char* name :
         {GRPC_X509_PEM_CERT_PROPERTY_NAME, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME}) {
      for (const grpc::string_ref& pem : auth->FindPropertyValues(name)) {
        shown.append(pem.data(), pem.size());
      }
    }
    if (!shown.empty()) certificate = access.certificates()->OfPem(shown);
  }

  absl::string_view token;
  std::shared_ptr<const PeerCertificate> certificate;
};

}  // namespace

std::string RequestIdOf(const grpc::CallbackServerContext& context) {
  return RequestIdFor(MetadataOf(context, kRequestIdKey));
}

absl::Status FindCaller(ServerCore& core, const grpc::CallbackServerContext& context,
                        absl::string_view method, Caller* caller) {
  const Credentials shown(core, context);
  return core.access().Find(RpcNamed(method).roles, method, shown.token, shown.certificate.get(),
                            caller);
}

RpcAdmission::RpcAdmission(ServerCore& core, const grpc::CallbackServerContext& context,
                           absl::string_view method, CallKind kind)
    : row_(RpcNamed(method)),
      request_id_(RequestIdOf(context)),
      access_(Admit(core, context)),
      trace_(access_.ok() ? BeginTrace(core, context, row_, request_id_) : nullptr),
      slot_(std::in_place, core, context.peer(), kind),
      client_(caller_.name().empty() ? context.peer() : caller_.name()) {
  if (trace_ != nullptr && !caller_.name().empty()) trace_->Set("enduser.id", caller_.name());
}

absl::Status RpcAdmission::Admit(ServerCore& core, const grpc::CallbackServerContext& context) {
  if (std::optional<Caller> judged = TakeJudgedCaller(); judged.has_value()) {
    caller_ = *std::move(judged);
  } else {
    RETURN_IF_ERROR(FindCaller(core, context, row_.method, &caller_));
  }
  return row_.roles.empty() ? absl::OkStatus() : caller_.Begin();
}

absl::string_view RpcAdmission::trace_id() const {
  return trace_ == nullptr ? absl::string_view() : trace_->id();
}

absl::Status RpcAdmission::status(bool while_draining) const {
  if (!access_.ok()) return access_;
  return while_draining ? absl::OkStatus() : slot_->status();
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
