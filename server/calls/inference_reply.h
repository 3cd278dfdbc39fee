// The tensors of a reply to an inference request: the outputs and taps asked for, their shapes, and
// the memory that a run writes them into.
//
//   RETURN_IF_ERROR(tensors.Choose(*version, bound));
//   ASSIGN_OR_RETURN(int64_t bytes, tensors.Describe(shapes, bound.dims, &reply));
//   tensors.Allocate(&reply);
//   ... a run fills tensors.outputs() ...
//   tensors.Repeat(&reply);
//
// Not thread-safe.
#ifndef ATHANOR_SERVER_CALLS_INFERENCE_REPLY_H_
#define ATHANOR_SERVER_CALLS_INFERENCE_REPLY_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/infer_request.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/models/model_version.h"

namespace athanor {

class InferenceReply {
 public:
  // Determines the tensors. `version` must live as long as this. Returns INVALID_ARGUMENT if the
  // reply would have two tensors of one name.
  absl::Status Choose(const ModelVersion& version, const BoundRequest& bound);
  // Returns the tapped nodes that only a tap plan computes, ascending.
  std::vector<NodeId>& inner() { return inner_; }

  // Adds each tensor's name, type and shape to `reply`, and returns the bytes of all. `shapes` are
  // those of the plan that runs. RESOURCE_EXHAUSTED: they are more than one reply can have.
  absl::StatusOr<int64_t> Describe(const OutputShapes& shapes, absl::Span<const int64_t> dims,
                                   inference::ModelInferResponse* reply);
  // Allocates the tensors in `reply`, in which they stay.
  void Allocate(inference::ModelInferResponse* reply);
  // Returns what a run writes: each output once.
  absl::Span<const RunOutput> outputs() const { return outputs_; }
  // Copies what is in the reply twice.
  void Repeat(inference::ModelInferResponse* reply) const;

 private:
  struct Wanted {
    int output;                // of the plan
    std::string_view name;     // points into the version
    std::string_view element;  // points into the version; empty: the dtype is enough
  };

  absl::Status AddTap(const Graph& graph, const BoundRequest& bound, NodeId node, int output);

  std::vector<Wanted> wanted_;
  size_t asked_ = 0;  // tensors that are no taps
  std::vector<NodeId> inner_;
  std::vector<int64_t> bytes_;                 // of the reply's tensors
  std::vector<RunOutput> outputs_;             // each output once
  std::vector<std::pair<int, int>> repeated_;  // positions in the reply: from, to
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_INFERENCE_REPLY_H_
