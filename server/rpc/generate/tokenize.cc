#include <string_view>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/language_version.h"
#include "server/calls/prompt.h"
#include "server/rpc/call.h"
#include "server/rpc/generate/generate_service.h"

namespace athanor {
namespace {

absl::Status Fill(ServerCore& core, const v1::TokenizeRequest& asked, v1::TokenizeResponse* reply) {
  ASSIGN_OR_RETURN(auto version, FindLanguageModel(core, asked.model(), asked.version()));
  const LanguageModel& model = *version->language_model();
  RETURN_IF_ERROR(CheckHasTokenizer(model));
  RETURN_IF_ERROR(CheckTextBytes("text", static_cast<int64_t>(asked.text().size()), model));
  const Tokenizer& tokenizer = *model.text.tokenizer;
  std::vector<int32_t> ids;
  const Part part{asked.text(), asked.add_special()};
  RETURN_IF_ERROR(tokenizer.Encode({part}, asked.add_begin(), &ids));
  const int64_t most = model.engine->options().scheduler.max_model_len;
  if (static_cast<int64_t>(ids.size()) > most) {
    return Invalid("text has ", ids.size(), " tokens, and the model takes at most ", most,
                   " (--max_model_len)");
  }
  reply->mutable_ids()->Add(ids.begin(), ids.end());
  for (int32_t id : ids) {
    const std::string_view bytes = tokenizer.BytesOf(id);
    reply->add_texts(bytes.data(), bytes.size());
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* GenerateService::Tokenize(Context* context, const Bytes* request,
                                                    Bytes* reply) {
  return AnswerUnary<v1::TokenizeRequest, v1::TokenizeResponse>(
      core_, {.name = "Tokenize", .queue = &core_.text_queue()}, context, request, reply,
      [this](const v1::TokenizeRequest& asked, v1::TokenizeResponse* answer) {
        return Fill(core_, asked, answer);
      });
}

}  // namespace athanor
