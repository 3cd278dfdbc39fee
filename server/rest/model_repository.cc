#include "server/rest/model_repository.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/http/json_body.h"
#include "server/repository/repository.h"
#include "server/rest/rest_error.h"

namespace athanor {
namespace {

absl::StatusOr<RepositoryCall> CallOf(ServerCore& core, const HttpRequest& request) {
  absl::string_view name = absl::StripPrefix(request.path, kRepositoryModels);
  RepositoryCall call;
  if (absl::ConsumeSuffix(&name, "/unload")) {
    call.kind = RepositoryCall::Kind::kUnload;
  } else if (!absl::ConsumeSuffix(&name, "/load")) {
    return absl::NotFoundError(
        Cat("there is no POST ", request.path, "; it ends with /load or /unload"));
  }
  call.model = std::string(name);
  if (request.body.empty()) return call;
  ASSIGN_OR_RETURN(const JsonBody read, ParseJsonBody(request.body, &core.ledger()));
  if (!read.value.is_object()) return Invalid("the request is no object");
  for (const auto& [field, value] : read.value.items()) {
    if (field != "parameters" || !value.is_object()) {
      return Invalid("the request has the field ", Quoted(field),
                     "; it may have parameters, which is an object");
    }
    for (const auto& [parameter, given] : value.items()) call.parameters.push_back(parameter);
  }
  return call;
}

}  // namespace

void AnswerRepositoryModel(ServerCore& core, std::shared_ptr<HttpExchange> exchange) {
  const absl::StatusOr<RepositoryCall> call = CallOf(core, exchange->request());
  absl::Status may = call.status();
  if (may.ok()) may = exchange->caller().MayUse(call->model);
  if (!may.ok()) return AnswerRestError(*exchange, may);
  AnswerRepositoryCall(
      core.repository(), *call, [exchange, model = call->model](const absl::Status& status) {
        if (!status.ok()) return AnswerRestError(*exchange, status);
        const HttpRequest& request = exchange->request();
        LogInfo("audit", {{"request", exchange->request_id()},
                          {"method", absl::StrCat(request.method, " ", request.path)},
                          {"client", exchange->caller().name()},
                          {"peer", request.peer},
                          {"model", model}});
        exchange->Answer(200, "application/json", "{}");
      });
}

}  // namespace athanor
