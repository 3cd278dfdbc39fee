// Loads and unloads models of --model_repository over REST:
// POST /v2/repository/models/NAME/load and .../unload.
#ifndef ATHANOR_SERVER_REST_MODEL_REPOSITORY_H_
#define ATHANOR_SERVER_REST_MODEL_REPOSITORY_H_

#include <memory>

#include "server/core/core.h"
#include "server/http/exchange.h"

namespace athanor {

inline constexpr char kRepositoryModels[] = "/v2/repository/models/";

// Answers when the model's versions serve, or are gone. The body, if any, is an object with
// parameters.
void AnswerRepositoryModel(ServerCore& core, std::shared_ptr<HttpExchange> exchange);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_MODEL_REPOSITORY_H_
