// Tells clients what the server is.
#ifndef ATHANOR_SERVER_DESCRIBE_SERVER_METADATA_H_
#define ATHANOR_SERVER_DESCRIBE_SERVER_METADATA_H_

#include "proto/inference/open_inference_grpc.pb.h"
#include "server/core/core.h"

namespace athanor {

void FillServerMetadata(ServerCore& core, inference::ServerMetadataResponse* metadata);

}  // namespace athanor

#endif  // ATHANOR_SERVER_DESCRIBE_SERVER_METADATA_H_
