// The answer to one request for embeddings.
//
//   AnswerEmbeddings(core, exchange, {.model = "text-embedding-3-small"}, std::move(request));
#ifndef ATHANOR_SERVER_OPENAI_EMBEDDINGS_H_
#define ATHANOR_SERVER_OPENAI_EMBEDDINGS_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "server/calls/embedding.h"
#include "server/core/core.h"
#include "server/http/exchange.h"

namespace athanor {

struct EmbeddingsCall {
  std::string model;  // as the client names it
  bool base64 = false;
};

// Answers in the order of the inputs, or with an error. `request` names the model as the server
// does. A client that leaves ends the runs.
void AnswerEmbeddings(ServerCore& core, std::shared_ptr<HttpExchange> exchange, EmbeddingsCall call,
                      EmbeddingRequest request);

// Returns the answer's JSON. Numbers are the shortest that give the same f32; what is no number is
// null.
std::string EmbeddingsText(const EmbeddingsCall& call, const EmbeddingResult& result);

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_EMBEDDINGS_H_
