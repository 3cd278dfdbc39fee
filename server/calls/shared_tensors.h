// The tensors of a request for inference that lie in shared memory (server/shared_memory): copies
// inputs into the request ahead of all checks of it, and outputs from the reply.
//
//   RETURN_IF_ERROR(shared.Take(core.regions(), user, &request));     // parameters leave it
//   RETURN_IF_ERROR(shared.ReadInputs(&core.ledger(), &request));
//   ... RequestBinder sees raw contents ...
//   RETURN_IF_ERROR(shared.DescribeOutputs(&reply));                  // ahead of the run
//   RETURN_IF_ERROR(shared.WriteOutputs(&reply));                     // behind it
//
// Not thread-safe.
#ifndef ATHANOR_SERVER_CALLS_SHARED_TENSORS_H_
#define ATHANOR_SERVER_CALLS_SHARED_TENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/memory/server_ledger.h"
#include "server/shared_memory/shared_regions.h"

namespace athanor {

class SharedTensors {
 public:
  // Finds the regions that parameters name, and takes these off the request. INVALID_ARGUMENT: they
  // are wrong, or a tensor does not lie in its region; else the error of SharedRegions::Find.
  absl::Status Take(const SharedRegions& regions, const SharedUser& user,
                    inference::ModelInferRequest* request);
  // Returns the bytes that ReadInputs copies.
  int64_t input_bytes() const { return input_bytes_; }

  // Makes the inputs the request's raw contents, once, and holds memory for them.
  // RESOURCE_EXHAUSTED: there is none; FAILED_PRECONDITION: an object has changed.
  absl::Status ReadInputs(ServerLedger* ledger, inference::ModelInferRequest* request);

  // Says in the reply, which has names and shapes, where its tensors will lie. INVALID_ARGUMENT:
  // one is larger than the bytes that the request gave it.
  absl::Status DescribeOutputs(inference::ModelInferResponse* reply) const;
  // Copies the reply's raw contents to their regions, and empties them.
  absl::Status WriteOutputs(inference::ModelInferResponse* reply) const;

 private:
  using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;
  struct Place {
    SharedRegions::RegionPtr region;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  struct Input {
    int tensor = 0;  // position in the request
    Place place;
  };
  struct Output {
    std::string name;
    Place place;
  };

  static absl::StatusOr<std::optional<Place>> TakePlace(const SharedRegions& regions,
                                                        const SharedUser& user,
                                                        Parameters* parameters);

  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  int64_t input_bytes_ = 0;
  ServerLedger::Reservation memory_;  // of the inputs
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_SHARED_TENSORS_H_
