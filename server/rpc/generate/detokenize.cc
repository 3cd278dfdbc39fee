#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/language_version.h"
#include "server/calls/prompt.h"
#include "server/rpc/call.h"
#include "server/rpc/generate/generate_service.h"
#include "server/text/tokens/detokenizer.h"

namespace athanor {
namespace {

absl::Status Fill(ServerCore& core, const v1::DetokenizeRequest& asked,
                  v1::DetokenizeResponse* reply) {
  ASSIGN_OR_RETURN(auto version, FindLanguageModel(core, asked.model(), asked.version()));
  const LanguageModel& model = *version->language_model();
  RETURN_IF_ERROR(CheckHasTokenizer(model));
  const int64_t most = model.engine->options().scheduler.max_model_len;
  if (asked.ids_size() > most) {
    return Invalid("ids has ", asked.ids_size(), " tokens, and the model takes at most ", most,
                   " (--max_model_len)");
  }
  RETURN_IF_ERROR(CheckIds("ids", asked.ids(), model));
  Detokenizer detokenizer(model.text.tokenizer, {.special = asked.special_in_text()});
  for (int32_t id : asked.ids()) detokenizer.Add(id, reply->mutable_text());
  detokenizer.End(reply->mutable_text());
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* GenerateService::Detokenize(Context* context, const Bytes* request,
                                                      Bytes* reply) {
  return AnswerUnary<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      core_, {.name = "Detokenize", .queue = &core_.text_queue()}, context, request, reply,
      [this](const v1::DetokenizeRequest& asked, v1::DetokenizeResponse* answer) {
        return Fill(core_, asked, answer);
      });
}

}  // namespace athanor
