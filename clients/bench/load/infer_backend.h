// Calls with tensors, over the Open Inference Protocol v2.
//
//   absl::StatusOr<std::unique_ptr<Backend>> backend =
//       MakeInferBackend({"127.0.0.1:50051", {}, /*connections=*/4}, requests);
#ifndef ATHANOR_CLIENTS_BENCH_LOAD_INFER_BACKEND_H_
#define ATHANOR_CLIENTS_BENCH_LOAD_INFER_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/bench/load/call.h"
#include "clients/cpp/client/client.h"

namespace athanor::bench {

struct GrpcTarget {
  std::string address;
  client::ClientOptions client;
  int connections = 1;  // used in rotation
};

// Sends the requests in rotation. INVALID_ARGUMENT names an input whose bytes do not fit its shape.
absl::StatusOr<std::unique_ptr<Backend>> MakeInferBackend(
    const GrpcTarget& target, const std::vector<client::InferRequest>& requests);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_LOAD_INFER_BACKEND_H_
