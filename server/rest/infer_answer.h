// The reply to an inference as KServe's v2 REST protocol has it: JSON, then the bytes of binary
// outputs.
//
//   ASSIGN_OR_RETURN(RestAnswer answer, WriteInferAnswer(reply, request));
//   exchange->Answer(200, answer.type(), std::move(answer.body), answer.headers());
//
// Pure functions.
#ifndef ATHANOR_SERVER_REST_INFER_ANSWER_H_
#define ATHANOR_SERVER_REST_INFER_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/http/exchange.h"
#include "server/rest/infer_message.h"

namespace athanor {

struct RestAnswer {
  std::string type() const { return binary ? "application/octet-stream" : "application/json"; }
  HttpHeaders headers() const;

  std::string body;
  size_t json_bytes = 0;
  bool binary = false;  // tensors follow the JSON
};

// INVALID_ARGUMENT: the client wants an output as JSON whose datatype has no JSON form. `reply`
// need not have contents.
absl::Status CheckForms(const inference::ModelInferResponse& reply, const RestRequest& request);

// Reports whether an output lies in shared memory: the answer has none of its elements.
bool IsShared(const inference::ModelInferResponse::InferOutputTensor& output);

// Returns an upper bound on the bytes of the answer's JSON; `reply` need not have contents.
// REQUIRES: CheckForms is OK.
int64_t MostJsonBytes(const inference::ModelInferResponse& reply, const RestRequest& request);
// Returns the bytes that follow the JSON.
int64_t BinaryBytes(const inference::ModelInferResponse& reply, const RestRequest& request);
// REQUIRES: CheckForms is OK.
RestAnswer WriteInferAnswer(const inference::ModelInferResponse& reply, const RestRequest& request);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_INFER_ANSWER_H_
