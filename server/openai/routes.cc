#include "server/openai/routes.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/language_version.h"
#include "server/generate/language_model.h"
#include "server/http/json_body.h"
#include "server/models/encoder_model.h"
#include "server/openai/answer.h"
#include "server/openai/embeddings.h"
#include "server/openai/embeddings_request.h"
#include "server/openai/error.h"
#include "server/openai/names.h"
#include "server/openai/request.h"

namespace athanor {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;

constexpr char kModels[] = "/v1/models/";
// Bodies from so many bytes on are read away from the threads of HTTP.
constexpr size_t kLongBody = size_t{64} << 10;
constexpr int64_t kBehindTexts = 1;  // of the queue "text": a huge body holds up no chat

void AnswerJson(HttpExchange& exchange, const Json& json) {
  exchange.Answer(200, "application/json",
                  json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Answers what the routes are asked for. Shared by their handlers.
class Side {
 public:
  Side(ServerCore* core, std::shared_ptr<StreamWriter> writer, ModelNames names)
      : core_(*core), writer_(std::move(writer)), names_(std::move(names)) {}

  void Health(HttpExchange& exchange) const {
    if (core_.serves()) {
      exchange.Answer(200, "text/plain; charset=utf-8", "");
    } else {
      AnswerError(exchange, absl::UnavailableError("the server is draining, or has no device"));
    }
  }

  void ListModels(HttpExchange& exchange) const {
    Json data = Json::array();
    std::string last;
    for (const auto& version : core_.registry().versions().List("")) {
      if (version->name() == last) continue;  // the newest of a name is ahead
      last = version->name();
      if (names_.aliases().contains(last) || !exchange.caller().Sees(last)) continue;
      AddModel(last, &data);
    }
    for (const auto& [alias, model] : names_.aliases()) {
      if (exchange.caller().Sees(model)) AddModel(alias, &data);
    }
    AnswerJson(exchange, {{"object", "list"}, {"data", std::move(data)}});
  }

  void ShowModel(HttpExchange& exchange) const {
    const std::string name(absl::StripPrefix(exchange.request().path, kModels));
    if (absl::Status s = exchange.caller().MayUse(names_.Resolve(name)); !s.ok()) {
      AnswerError(exchange, s);
      return;
    }
    absl::StatusOr<Json> model = Describe(name);
    if (model.ok()) {
      AnswerJson(exchange, *model);
    } else {
      AnswerError(exchange, model.status());
    }
  }

  // Reads a request's body and begins its answer, now or on the queue "text".
  static void Ask(const std::shared_ptr<Side>& side, Endpoint endpoint, Exchange exchange) {
    if (exchange->request().body.size() < kLongBody) {
      side->AskNow(endpoint, exchange);
      return;
    }
    side->core_.text_queue().Submit(
        [side, endpoint, exchange = std::move(exchange)] {
          if (exchange->left()) {  // while its body waited for others
            CountRequest(side->core_, nullptr, SequenceTime::clock::now(), ClientLeft(side->core_));
          } else {
            side->AskNow(endpoint, exchange);
          }
        },
        kBehindTexts);
  }

 private:
  absl::StatusOr<Json> Describe(const std::string& name) const {
    const std::string model = names_.Resolve(name);
    ASSIGN_OR_RETURN(auto version, core_.registry().versions().Find(model, ""));
    const std::shared_ptr<const EncoderModel> encoder = version->encoder();
    if (encoder == nullptr) {
      ASSIGN_OR_RETURN(version, FindLanguageModel(core_, model, ""));
    }
    Json described{{"id", name},
                   {"object", "model"},
                   {"created", version->row().created_us / 1'000'000},
                   {"owned_by", "athanor"},
                   {"root", model}};
    // The most tokens as vLLM has them, the rest as llama-server does.
    if (encoder != nullptr) {
      described["max_model_len"] = encoder->context;
      described["meta"] = {{"n_vocab", encoder->vocabulary}, {"n_embd", encoder->width}};
    } else {
      const EngineOptions& engine = version->language_model()->engine->options();
      described["max_model_len"] = engine.scheduler.max_model_len;
      described["meta"] = {{"n_vocab", engine.vocabulary}};
    }
    return described;
  }

  // Leaves out models that make neither tokens nor embeddings, and aliases of what is not there.
  void AddModel(const std::string& name, Json* data) const {
    absl::StatusOr<Json> model = Describe(name);
    if (model.ok()) data->push_back(*std::move(model));
  }

  void AskNow(Endpoint endpoint, const Exchange& exchange) const {
    const SequenceTime arrived = SequenceTime::clock::now();
    const absl::Status status = endpoint == Endpoint::kEmbeddings ? BeginEmbeddings(exchange)
                                                                  : BeginAnswer(endpoint, exchange);
    if (status.ok()) return;
    CountRequest(core_, nullptr, arrived, status);
    AnswerError(*exchange, status);
  }

  // Reads the body, and frees it.
  absl::StatusOr<JsonBody> TakeBody(HttpExchange& exchange) const {
    HttpRequest& http = exchange.request();
    ASSIGN_OR_RETURN(JsonBody body, ParseJsonBody(http.body, &core_.ledger()));
    std::string().swap(http.body);  // with its memory
    exchange.memory() = {};
    return body;
  }

  absl::Status BeginAnswer(Endpoint endpoint, const Exchange& exchange) const {
    ASSIGN_OR_RETURN(JsonBody body, TakeBody(*exchange));
    ASSIGN_OR_RETURN(OpenAiRequest request, ReadRequest(endpoint, std::move(body.value)));
    body = {};
    RETURN_IF_ERROR(exchange->caller().MayUse(names_.Resolve(request.model)));
    int64_t bytes = 0;
    for (v1::GenerateRequest& generate : request.generate) {
      generate.set_model(names_.Resolve(request.model));
      bytes += static_cast<int64_t>(generate.SpaceUsedLong());
    }
    ASSIGN_OR_RETURN(auto memory,
                     core_.ledger().Reserve(HeldKind::kRequests, bytes, "the request"));
    Answer::Call call{core_, writer_, exchange, request.model};
    Answer::Begin(std::move(call), std::move(request), std::move(memory));
    return absl::OkStatus();
  }

  absl::Status BeginEmbeddings(const Exchange& exchange) const {
    ASSIGN_OR_RETURN(JsonBody body, TakeBody(*exchange));
    ASSIGN_OR_RETURN(EmbeddingsRequest request, ReadEmbeddings(std::move(body.value)));
    body = {};
    EmbeddingRequest embedding{.model = names_.Resolve(request.model)};
    RETURN_IF_ERROR(exchange->caller().MayUse(embedding.model));
    ASSIGN_OR_RETURN(embedding.memory,
                     core_.ledger().Reserve(HeldKind::kRequests, request.bytes(), "the request"));
    embedding.inputs = std::move(request.inputs);
    AnswerEmbeddings(core_, exchange, {.model = std::move(request.model), .base64 = request.base64},
                     std::move(embedding));
    return absl::OkStatus();
  }

  ServerCore& core_;
  const std::shared_ptr<StreamWriter> writer_;
  const ModelNames names_;
};

}  // namespace

absl::StatusOr<std::vector<Route>> OpenAiRoutes(ServerCore* core,
                                                std::shared_ptr<StreamWriter> writer) {
  ASSIGN_OR_RETURN(ModelNames names, ModelNames::Parse(core->options().openai_aliases));
  const auto side = std::make_shared<Side>(core, std::move(writer), std::move(names));
  const int64_t most = core->options().max_message_bytes;
  const auto ask = [side](Endpoint endpoint) {
    return [side, endpoint](Exchange exchange) { Side::Ask(side, endpoint, std::move(exchange)); };
  };
  return std::vector<Route>{
      {"GET", "/health", Role::kNone, 0, [side](Exchange e) { side->Health(*e); }},
      {"GET", "/v1/models", Role::kInfer, 0, [side](Exchange e) { side->ListModels(*e); }},
      {"GET", absl::StrCat(kModels, "*"), Role::kInfer, 0,
       [side](Exchange e) { side->ShowModel(*e); }},
      {"POST", "/v1/completions", Role::kInfer, most, ask(Endpoint::kCompletions)},
      {"POST", "/v1/chat/completions", Role::kInfer, most, ask(Endpoint::kChats)},
      {"POST", "/v1/embeddings", Role::kInfer, most, ask(Endpoint::kEmbeddings)},
  };
}

}  // namespace athanor
