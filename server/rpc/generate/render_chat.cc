#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/chat_prompt.h"
#include "server/calls/language_version.h"
#include "server/calls/prompt.h"
#include "server/rpc/call.h"
#include "server/rpc/generate/generate_service.h"

namespace athanor {
namespace {

absl::Status Fill(ServerCore& core, const v1::RenderChatRequest& asked,
                  v1::RenderChatResponse* reply) {
  ASSIGN_OR_RETURN(auto version, FindLanguageModel(core, asked.model(), asked.version()));
  const LanguageModel& model = *version->language_model();
  RETURN_IF_ERROR(CheckChat(asked.chat(), model));
  ASSIGN_OR_RETURN(const std::vector<Part> parts, PromptOf(asked.chat(), model.text));
  if (model.text.tokenizer != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ChatTokens(parts, model));
    reply->mutable_ids()->Add(ids.begin(), ids.end());
  }
  for (const Part& part : parts) reply->mutable_text()->append(part.text);
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* GenerateService::RenderChat(Context* context, const Bytes* request,
                                                      Bytes* reply) {
  return AnswerUnary<v1::RenderChatRequest, v1::RenderChatResponse>(
      core_, {.name = "RenderChat", .queue = &core_.text_queue()}, context, request, reply,
      [this](const v1::RenderChatRequest& asked, v1::RenderChatResponse* answer) {
        return Fill(core_, asked, answer);
      });
}

}  // namespace athanor
