#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/language_version.h"
#include "server/calls/sampling_message.h"
#include "server/rpc/call.h"
#include "server/rpc/generate/generate_service.h"

namespace athanor {
namespace {

void Describe(const LanguageModel& model, v1::EngineStatus* status) {
  const EngineOptions& options = model.engine->options();
  status->set_family(model.family);
  status->set_vocabulary(options.vocabulary);
  status->set_max_model_len(options.scheduler.max_model_len);
  status->set_max_batched_tokens(options.scheduler.max_batched_tokens);
  status->set_max_sequences(options.scheduler.max_sequences);
  status->mutable_end_tokens()->Add(model.end_tokens.begin(), model.end_tokens.end());
  *status->mutable_sampling() = SamplingMessage(model.sampling);
  status->set_has_tokenizer(model.text.tokenizer != nullptr);
  status->set_has_chat(model.text.chat.has_value());
  if (!status->has_chat()) status->set_no_chat_reason(std::string(model.text.no_chat.message()));
  status->set_block_tokens(options.scheduler.block);
  status->set_token_kv_bytes(model.token_kv_bytes);
}

void AddView(const EngineView& view, v1::EngineStatus* status) {
  status->set_running(view.running);
  status->set_waiting(view.waiting);
  status->set_paused(view.paused);
  status->set_blocks(view.blocks);
  status->set_free_blocks(view.free_blocks);
  status->set_kept_blocks(view.kept_blocks);
  status->set_kv_bytes(view.committed_bytes);
  status->set_steps(view.steps);
  status->set_prompt_tokens(view.prompt_tokens);
  status->set_generated_tokens(view.generated_tokens);
  status->set_queried_tokens(view.queried_tokens);
  status->set_cached_tokens(view.cached_tokens);
  status->set_preemptions(view.preemptions);
  status->set_recomputed_tokens(view.recomputed_tokens);
  status->set_plan_id(view.plan_id);
}

}  // namespace

grpc::ServerUnaryReactor* GenerateService::GetEngine(Context* context, const Bytes* request,
                                                     Bytes* reply) {
  return AnswerUnary<v1::GetEngineRequest, v1::EngineStatus>(
      core_, {.name = "GetEngine"}, context, request, reply,
      [this](const v1::GetEngineRequest& asked, v1::EngineStatus* answer) {
        ASSIGN_OR_RETURN(auto version, FindLanguageModel(core_, asked.model(), asked.version()));
        answer->set_model(version->name());
        answer->set_version(absl::StrCat(version->version()));
        Describe(*version->language_model(), answer);
        AddView(version->language_model()->engine->view(), answer);
        return absl::OkStatus();
      });
}

}  // namespace athanor
