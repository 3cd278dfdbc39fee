// Tells clients of any protocol what a version's inputs and outputs are.
//
//   inference::ModelMetadataResponse metadata;
//   RETURN_IF_ERROR(FillMetadata(core, "digits", "", &metadata));
#ifndef ATHANOR_SERVER_DESCRIBE_MODEL_METADATA_H_
#define ATHANOR_SERVER_DESCRIBE_MODEL_METADATA_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/core/core.h"

namespace athanor {

// Returns NOT_FOUND if there is no such version; an empty `version` is the one that serves.
absl::Status FillMetadata(ServerCore& core, const std::string& name, const std::string& version,
                          inference::ModelMetadataResponse* metadata);

// Reports whether there is such a version, a plan of it serves, and its device is there.
bool IsModelReady(ServerCore& core, const std::string& name, const std::string& version);

}  // namespace athanor

#endif  // ATHANOR_SERVER_DESCRIBE_MODEL_METADATA_H_
