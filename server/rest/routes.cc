#include "server/rest/routes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/describe/model_config.h"
#include "server/describe/model_metadata.h"
#include "server/describe/model_statistics.h"
#include "server/describe/repository_index.h"
#include "server/describe/server_metadata.h"
#include "server/rest/infer.h"
#include "server/rest/message_json.h"
#include "server/rest/model_repository.h"
#include "server/rest/rest_error.h"
#include "server/rest/shared_memory.h"

namespace athanor {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;

constexpr char kModels[] = "/v2/models/";
constexpr char kVersions[] = "/versions/";
// Most bytes of a body that says little.
constexpr int64_t kSmallBody = 64 << 10;

void AnswerJson(HttpExchange& exchange, const Json& json) {
  exchange.Answer(200, "application/json",
                  json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Answers with the message that `fill` fills.
template <typename Message, typename Fill>
void AnswerMessage(HttpExchange& exchange, Fill fill) {
  Message message;
  if (const absl::Status filled = fill(&message); !filled.ok()) {
    AnswerRestError(exchange, filled);
    return;
  }
  AnswerJson(exchange, MessageJson(message));
}

// Answers a check of health: its clients read the status alone.
void AnswerHealth(HttpExchange& exchange, int status) {
  exchange.Answer(status, "text/plain; charset=utf-8", "");
}

absl::Status NoSuchPath(HttpExchange& exchange) {
  return absl::NotFoundError(Cat("there is no ", exchange.request().method, " ",
                                 exchange.request().path, "; docs/rest.md lists what there is"));
}

// Returns the model of "NAME" or "NAME/versions/VERSION". A name may have slashes.
RestModel ModelOf(absl::string_view rest) {
  const size_t at = rest.rfind(kVersions);
  if (at == absl::string_view::npos) return {std::string(rest), ""};
  return {std::string(rest.substr(0, at)), std::string(rest.substr(at + sizeof(kVersions) - 1))};
}

// Returns whether the request may be about the model; else it is answered.
bool MayUse(HttpExchange& exchange, const RestModel& model) {
  const absl::Status may = exchange.caller().MayUse(model.name);
  if (!may.ok()) AnswerRestError(exchange, may);
  return may.ok();
}

void AnswerStatistics(ServerCore& core, HttpExchange& exchange, const RestModel& model) {
  AnswerMessage<inference::ModelStatisticsResponse>(exchange, [&](auto* message) {
    return FillStatistics(core, model.name, model.version, exchange.caller(), message);
  });
}

void GetModel(ServerCore& core, HttpExchange& exchange) {
  absl::string_view rest = absl::StripPrefix(exchange.request().path, kModels);
  if (rest == "stats") return AnswerStatistics(core, exchange, {});
  std::string what;
  for (const char* each : {"/stats", "/ready", "/config", "/trace/setting"}) {
    if (what.empty() && absl::ConsumeSuffix(&rest, each)) what = each;
  }
  const RestModel model = ModelOf(rest);
  if (!MayUse(exchange, model)) return;
  if (what == "/stats") {
    AnswerStatistics(core, exchange, model);
  } else if (what == "/ready") {
    AnswerHealth(exchange, IsModelReady(core, model.name, model.version) ? 200 : 400);
  } else if (what == "/config") {
    AnswerMessage<inference::ModelConfig>(exchange, [&](auto* message) {
      return FillModelConfig(core, model.name, model.version, message);
    });
  } else if (what == "/trace/setting") {
    AnswerRestError(exchange,
                    Unimplemented("settings of traces are flags: --otlp_endpoint, --trace_ratio"));
  } else {
    AnswerMessage<inference::ModelMetadataResponse>(exchange, [&](auto* message) {
      return FillMetadata(core, model.name, model.version, message);
    });
  }
}

void PostModel(ServerCore& core, Exchange exchange) {
  const std::string path = exchange->request().path;
  absl::string_view rest = absl::StripPrefix(path, kModels);
  std::string what;
  for (const char* each : {"/infer", "/trace/setting", "/generate", "/generate_stream"}) {
    if (what.empty() && absl::ConsumeSuffix(&rest, each)) what = each;
  }
  const RestModel model = ModelOf(rest);
  if (!MayUse(*exchange, model)) return;
  if (what == "/infer") {
    AnswerInfer(core, model, std::move(exchange));
  } else if (what == "/trace/setting") {
    AnswerRestError(*exchange,
                    Unimplemented("settings of traces are flags: --otlp_endpoint, --trace_ratio"));
  } else if (!what.empty()) {
    AnswerRestError(*exchange, Unimplemented("generate is not supported here; --openai_listen "
                                             "serves language models"));
  } else {
    AnswerRestError(*exchange, NoSuchPath(*exchange));
  }
}

absl::StatusOr<Json> IndexOf(ServerCore& core, const HttpExchange& exchange) {
  const std::string& body = exchange.request().body;
  bool ready = false;
  if (!body.empty()) {
    ASSIGN_OR_RETURN(const JsonBody read, ParseJsonBody(body, &core.ledger()));
    if (!read.value.is_object()) return Invalid("the request is no object");
    for (const auto& [name, value] : read.value.items()) {
      if (name != "ready" || !value.is_boolean()) {
        return Invalid("the request has the field ", Quoted(name),
                       "; it may have ready, which is true or false");
      }
      ready = value.get<bool>();
    }
  }
  inference::RepositoryIndexResponse index;
  FillRepositoryIndex(core, ready, exchange.caller(), &index);
  return MessageJson(index)["models"];
}

void AnswerIndex(ServerCore& core, HttpExchange& exchange) {
  const absl::StatusOr<Json> index = IndexOf(core, exchange);
  if (index.ok()) return AnswerJson(exchange, *index);
  AnswerRestError(exchange, index.status());
}

void AnswerServer(ServerCore& core, HttpExchange& exchange) {
  inference::ServerMetadataResponse metadata;
  FillServerMetadata(core, &metadata);
  AnswerJson(exchange, MessageJson(metadata));
}

// Makes a handler that refuses what Triton has and this server has not.
Route Refused(std::string method, std::string path, Role role, std::string why) {
  const int64_t most = method == "POST" ? kSmallBody : 0;
  return {std::move(method), std::move(path), role, most, [why = std::move(why)](Exchange e) {
            AnswerRestError(*e, absl::UnimplementedError(why));
          }};
}

}  // namespace

std::vector<Route> RestRoutes(ServerCore* core) {
  const int64_t most = core->options().max_message_bytes;
  const auto ready = [core](int otherwise) {
    return [core, otherwise](Exchange e) { AnswerHealth(*e, core->serves() ? 200 : otherwise); };
  };
  const auto live = [](Exchange e) { AnswerHealth(*e, 200); };
  const char* cuda =
      "CUDA shared memory is not supported: send tensors in the body, or use system shared memory "
      "(--shared_memory)";
  const auto shared = [core](Exchange e) { AnswerSharedMemory(*core, *e); };
  return {
      {"GET", "/livez", Role::kNone, 0, live},
      {"GET", "/healthz", Role::kNone, 0, ready(503)},
      {"GET", "/v2/health/live", Role::kNone, 0, live},
      {"GET", "/v2/health/ready", Role::kNone, 0, ready(400)},
      {"GET", "/v2", Role::kNone, 0, [core](Exchange e) { AnswerServer(*core, *e); }},
      {"GET", absl::StrCat(kModels, "*"), Role::kInfer, 0,
       [core](Exchange e) { GetModel(*core, *e); }},
      {"POST", absl::StrCat(kModels, "*"), Role::kInfer, most,
       [core](Exchange e) { PostModel(*core, std::move(e)); }},
      {"POST", "/v2/repository/index", Role::kInfer, kSmallBody,
       [core](Exchange e) {
         core->disk_queue().Submit([core, e = std::move(e)] { AnswerIndex(*core, *e); });
       }},
      {"POST", absl::StrCat(kRepositoryModels, "*"), Role::kUpload, kSmallBody,
       [core](Exchange e) { AnswerRepositoryModel(*core, std::move(e)); }},
      Refused("GET", "/v2/trace/setting", Role::kAdmin,
              "settings of traces are flags: --otlp_endpoint, --trace_ratio"),
      Refused("POST", "/v2/trace/setting", Role::kAdmin,
              "settings of traces are flags: --otlp_endpoint, --trace_ratio"),
      Refused("GET", "/v2/logging", Role::kAdmin, "settings of the log are flags: --log_level"),
      Refused("POST", "/v2/logging", Role::kAdmin, "settings of the log are flags: --log_level"),
      {"GET", absl::StrCat(kSharedMemoryPath, "*"), Role::kInfer, 0, shared},
      {"POST", absl::StrCat(kSharedMemoryPath, "*"), Role::kInfer, kSmallBody, shared},
      Refused("GET", "/v2/cudasharedmemory/*", Role::kInfer, cuda),
      Refused("POST", "/v2/cudasharedmemory/*", Role::kInfer, cuda),
  };
}

}  // namespace athanor
