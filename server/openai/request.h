// A request of the OpenAI interface as the server takes it: what to generate, and how to answer.
//
//   ASSIGN_OR_RETURN(OpenAiRequest request, ReadRequest(Endpoint::kChats, std::move(body.value)));
//   generation->Begin(std::move(request.generate), ...);
//
// Each field of all endpoints has a row in fields.cc.
#ifndef ATHANOR_SERVER_OPENAI_REQUEST_H_
#define ATHANOR_SERVER_OPENAI_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/http/json_body.h"

namespace athanor {

enum class Endpoint : uint8_t { kCompletions, kChats, kEmbeddings };

// Most sequences of a request: prompts times `n`.
inline constexpr int64_t kMostChoices = 128;

struct OpenAiRequest {
  int64_t choices() const { return static_cast<int64_t>(generate.size()) * n; }

  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;                          // as the client names it
  std::vector<v1::GenerateRequest> generate;  // one for each prompt, whose `model` is not set
  int64_t n = 1;                              // choices of each prompt
  bool stream = false;
  bool include_usage = false;  // at the end of a stream
  bool echo = false;           // the prompts' text is ahead of the answers
  bool logprobs = false;
};

// Reads the fields' types and what this interface alone says of their values; Generation checks the
// rest. REQUIRES: `endpoint` generates tokens; embeddings have embeddings_request.h.
// INVALID_ARGUMENT begins with the field's name; UNIMPLEMENTED names a field that asks for
// what there is not.
absl::StatusOr<OpenAiRequest> ReadRequest(Endpoint endpoint, Json body);

}  // namespace athanor

#endif  // ATHANOR_SERVER_OPENAI_REQUEST_H_
