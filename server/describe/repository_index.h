// Tells clients which versions there are, and whether they serve.
#ifndef ATHANOR_SERVER_DESCRIBE_REPOSITORY_INDEX_H_
#define ATHANOR_SERVER_DESCRIBE_REPOSITORY_INDEX_H_

#include "proto/inference/open_inference_grpc.pb.h"
#include "server/access/access.h"
#include "server/core/core.h"

namespace athanor {

// Lists the versions that the caller may use, with their states, and what --model_repository has
// that is not loaded; `ready`: only those that serve. May look at the disk.
void FillRepositoryIndex(ServerCore& core, bool ready, const Caller& caller,
                         inference::RepositoryIndexResponse* index);

}  // namespace athanor

#endif  // ATHANOR_SERVER_DESCRIBE_REPOSITORY_INDEX_H_
