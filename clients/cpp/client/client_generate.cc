// The calls of GenerateService.
#include "clients/cpp/client/client.h"
#include "clients/cpp/client/client_call.h"

namespace athanor::client {

using Stub = v1::GenerateService::Stub;

absl::StatusOr<v1::GenerateResponse> Client::Generate(
    const v1::GenerateRequest& request, absl::FunctionRef<bool(const v1::GenerateResponse&)> seen,
    const CallOptions& options) {
  CallScope scope(options);
  auto reader = services_->generate->Generate(scope.context(), request);
  v1::GenerateResponse message, last;
  bool stopped = false;
  while (!stopped && reader->Read(&message)) {
    stopped = !seen(message);
    last.Swap(&message);
  }
  if (stopped) scope.context()->TryCancel();
  const grpc::Status status = reader->Finish();
  if (stopped) return last;
  if (!status.ok()) return ToStatus(status, *scope.context());
  if (last.finish() == v1::FINISH_UNSPECIFIED) {
    return absl::InternalError("the server ended the answer without a reason (no `finish`)");
  }
  return last;
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request,
                                                      const CallOptions& options) {
  return Call(services_->generate.get(), &Stub::Tokenize, request, options, /*retry=*/true);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request,
                                                          const CallOptions& options) {
  return Call(services_->generate.get(), &Stub::Detokenize, request, options, /*retry=*/true);
}

absl::StatusOr<v1::RenderChatResponse> Client::RenderChat(const v1::RenderChatRequest& request,
                                                          const CallOptions& options) {
  return Call(services_->generate.get(), &Stub::RenderChat, request, options, /*retry=*/true);
}

absl::StatusOr<v1::EngineStatus> Client::GetEngine(const std::string& model,
                                                   const std::string& version,
                                                   const CallOptions& options) {
  v1::GetEngineRequest request;
  request.set_model(model);
  request.set_version(version);
  return Call(services_->generate.get(), &Stub::GetEngine, request, options, /*retry=*/true);
}

}  // namespace athanor::client
