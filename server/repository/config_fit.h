// Holds what a configuration says of inputs and outputs against the model itself.
//
//   FittedConfig fitted = FitConfig(config, upload.Outline().value(), "onnx").value();
//   upload.Give(fitted.dims, fitted.batch_dim);
//
// With max_batch_size, the first axis of every input is the batch, `dims` are the others, and the
// batch may have 1 to max_batch_size rows; with dynamic_batching, requests share calls along it. A
// size that the model leaves open and the configuration states is that size. Pure.
#ifndef ATHANOR_SERVER_REPOSITORY_CONFIG_FIT_H_
#define ATHANOR_SERVER_REPOSITORY_CONFIG_FIT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/repository/model_config.h"

namespace athanor {

struct FittedConfig {
  google::protobuf::RepeatedPtrField<v1::DimGiven> dims;
  std::string batch_dim;  // empty: requests share no calls
};

// Parses "batch=1:64, seq=:128, frames=300, total=past + seq": bounds, from 1 where the first is
// left out, or what a dim equals. INVALID_ARGUMENT names the part that is wrong.
absl::StatusOr<google::protobuf::RepeatedPtrField<v1::DimGiven>> ParseDims(std::string_view text);

// `outline` has the inputs and outputs that the model's files state; none of a checkpoint. Only
// models of format "onnx" take dims: of others the graph has its bounds, and FAILED_PRECONDITION
// says which part of the configuration would change them. INVALID_ARGUMENT names the input or
// output, what the configuration says, and what the model has; or all sizes that nothing bounds.
absl::StatusOr<FittedConfig> FitConfig(const RepositoryConfig& config, const v1::Model& outline,
                                       std::string_view format);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REPOSITORY_CONFIG_FIT_H_
