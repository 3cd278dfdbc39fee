// Binds a ModelInfer request to a model. Refuses every mistake a user can make in a request and
// prepares the rest for the executor. Depends on the messages, not on gRPC.
//
//   RequestBinder binder = RequestBinder::Create(graph).value();   // once per model version
//   absl::StatusOr<BoundRequest> bound = binder.Bind(request);
//   // bound->dims {2, 128}; bound->inputs[0] views the bytes of the first input inside `request`
//
// Errors are INVALID_ARGUMENT and name the input, output or parameter and what would be right.
#ifndef ATHANOR_COMPILER_FRONTEND_INFER_REQUEST_H_
#define ATHANOR_COMPILER_FRONTEND_INFER_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/datatype.h"
#include "compiler/frontend/dim_binding.h"
#include "compiler/frontend/element.h"
#include "compiler/frontend/index_check.h"
#include "compiler/ir/graph/graph.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace athanor {

// The request's parameters (see proto/README.md).
struct RequestOptions {
  enum class Wait : uint8_t { kBaseline, kNone };
  Wait wait = Wait::kBaseline;
  int64_t timeout_us = 0;  // 0: no timeout
  int64_t priority = 0;    // 1 is served first; 0: the server's default
  // In the order asked for, each once; the protocol can carry their dtypes.
  std::vector<NodeId> taps;
};

// Limits on a request.
struct RequestLimits {
  int64_t max_taps = 64;
};

// Valid as long as the request lives unchanged.
struct BoundRequest {
  std::vector<int64_t> dims;  // in the order of graph.dims
  // Dense little-endian bytes of each input, in the order of graph.InputIds(), at any alignment.
  // They view the request if its bytes are usable as they are, otherwise `converted`.
  std::vector<std::string_view> inputs;
  std::vector<int> outputs;  // indices into graph.outputs, in the order asked for
  RequestOptions options;
  std::vector<std::unique_ptr<char[]>> converted;
};

// Immutable after Create, so thread-safe.
class RequestBinder {
 public:
  // `graph` is as ImportGraph returns it, and is not kept. `elements` is that of
  // ImportedGraph::input_elements, or empty.
  static absl::StatusOr<RequestBinder> Create(const Graph& graph,
                                              absl::Span<const std::string> elements = {});

  // Besides INVALID_ARGUMENT, returns UNIMPLEMENTED naming a tap whose dtype the protocol cannot
  // carry.
  absl::StatusOr<BoundRequest> Bind(const inference::ModelInferRequest& request,
                                    const RequestLimits& limits = {}) const;

 private:
  using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;
  using InputTensor = inference::ModelInferRequest::InferInputTensor;
  struct Input {
    std::string name;
    const DatatypeRow* datatype;
    const onnx::ElemRow* element = nullptr;  // set if only some of the datatype's values are valid
    std::optional<athanor::Tensor> fixed;    // the only contents the input accepts
  };
  struct Inner {
    NodeId node;
    DType dtype;
  };

  RequestBinder(const Graph& graph, DimBinding dims, absl::Span<const std::string> elements);
  absl::StatusOr<std::vector<int>> MatchInputs(const inference::ModelInferRequest& request) const;
  absl::Status CheckDatatype(const InputTensor& tensor, const Input& input) const;
  absl::Status CheckRawCount(const inference::ModelInferRequest& request) const;
  absl::Status BindDims(const inference::ModelInferRequest& request,
                        absl::Span<const int> tensor_of, BoundRequest* bound) const;
  absl::Status BindBytes(const inference::ModelInferRequest& request,
                         absl::Span<const int> tensor_of, BoundRequest* bound) const;
  static absl::Status CheckContents(const Input& input, std::string_view bytes);
  absl::Status BindOutputs(const inference::ModelInferRequest& request, BoundRequest* bound) const;
  absl::Status ReadOptions(const Parameters& parameters, const RequestLimits& limits,
                           RequestOptions* options) const;
  absl::Status ReadTaps(std::string_view names, const RequestLimits& limits,
                        RequestOptions* options) const;
  absl::Status AddTap(const std::string& name, RequestOptions* options) const;

  std::vector<Input> inputs_;
  std::vector<std::string> outputs_;
  absl::flat_hash_map<std::string, int> input_positions_;
  absl::flat_hash_map<std::string, int> output_positions_;
  absl::flat_hash_map<std::string, Inner> nodes_;
  DimBinding dims_;
  IndexChecks indices_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_INFER_REQUEST_H_
