// Answers one request for inference over KServe's v2 REST protocol.
#ifndef ATHANOR_SERVER_REST_INFER_H_
#define ATHANOR_SERVER_REST_INFER_H_

#include <memory>
#include <string>

#include "server/core/core.h"
#include "server/http/exchange.h"

namespace athanor {

struct RestModel {
  std::string name, version;  // "": the version that serves
};

// Reads the body here, or on the queue "text" if that may take long. A client that leaves ends the
// request.
void AnswerInfer(ServerCore& core, const RestModel& model, std::shared_ptr<HttpExchange> exchange);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_INFER_H_
