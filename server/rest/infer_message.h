// A request of KServe's v2 REST protocol as a message of its gRPC protocol: JSON, then the bytes of
// binary tensors, as the header Inference-Header-Content-Length parts them.
//
//   ASSIGN_OR_RETURN(RestRequest request, ReadInferRequest(&exchange->request(), &ledger));
//
// Tensors become `raw_input_contents`, however they came: binary ones are copied once.
#ifndef ATHANOR_SERVER_REST_INFER_MESSAGE_H_
#define ATHANOR_SERVER_REST_INFER_MESSAGE_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/http/exchange.h"
#include "server/memory/server_ledger.h"

namespace athanor {

struct RestRequest {
  // Reports whether the client wants an output as bytes.
  bool WantsBytes(const std::string& output) const {
    const auto found = binary_outputs.find(output);
    return found == binary_outputs.end() ? binary : found->second;
  }

  inference::ModelInferRequest message;  // `model_name` is not set
  ServerLedger::Reservation memory;      // of `message`
  bool binary = false;                   // outputs that say nothing of it are bytes
  absl::flat_hash_map<std::string, bool> binary_outputs;  // by name
};

// The header that says how many bytes of a body are JSON; the rest are tensors.
inline constexpr char kJsonLengthHeader[] = "Inference-Header-Content-Length";

// Returns how many bytes of the body are JSON. INVALID_ARGUMENT: the header is wrong.
absl::StatusOr<size_t> JsonBytesOf(const HttpRequest& http);

// Reads and frees the body. INVALID_ARGUMENT begins with what is wrong: `inputs[0].shape`, `input
// "x"`; UNIMPLEMENTED names what asks for what there is not.
absl::StatusOr<RestRequest> ReadInferRequest(HttpRequest* http, ServerLedger* ledger);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_INFER_MESSAGE_H_
