// A request for embeddings as the server takes it.
//
//   ASSIGN_OR_RETURN(EmbeddingsRequest request, ReadEmbeddings(std::move(body.value)));
#ifndef ATHANOR_SERVER_OPENAI_EMBEDDINGS_REQUEST_H_
#define ATHANOR_SERVER_OPENAI_EMBEDDINGS_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/calls/embedding.h"
#include "server/http/json_body.h"

namespace athanor {

// Most inputs of a request, as OpenAI's.
inline constexpr int64_t kMostEmbeddingInputs = 2048;

struct EmbeddingsRequest {
  int64_t bytes() const;  // of the inputs, in memory

  std::string model;  // as the client names it
  bool base64 = false;
  std::vector<EmbeddingInput> inputs;
};

// Reads the fields' types and what this interface alone says of their values; Embedding checks the
// rest. Errors are as those of ReadRequest.
absl::StatusOr<EmbeddingsRequest> ReadEmbeddings(Json body);

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_EMBEDDINGS_REQUEST_H_
