// Errors as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}}.
//
//   const ErrorAnswer error = ErrorAnswerOf(status);
//   exchange->Answer(error.status, "application/json", error.body, error.headers);
#ifndef ATHANOR_SERVER_OPENAI_ERROR_H_
#define ATHANOR_SERVER_OPENAI_ERROR_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/http/exchange.h"

namespace athanor {

struct ErrorAnswer {
  int status = 500;
  std::string body;
  HttpHeaders headers;
};

// Names the fields as the client knows them: a message that begins with "sampling.bias" is told of
// "logit_bias". The `openai` client sends 408, 409, 429 and 5xx again unless x-should-retry says
// otherwise. REQUIRES: it is not OK.
ErrorAnswer ErrorAnswerOf(const absl::Status& status);

// Answers with the error, and logs it.
void AnswerError(HttpExchange& exchange, const absl::Status& status);

// Returns the event of an error in mid-stream, which the client raises.
std::string ErrorEvent(const absl::Status& status);

// Makes errors of the HTTP side: its ErrorBody (http/routes.h).
std::pair<std::string, std::string> OpenAiErrorBody(int status, const std::string& message);

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_ERROR_H_
