#include "server/describe/server_metadata.h"

#include "deploy/bazel/libs/version.h"

namespace athanor {
namespace {

// Triton's names of what a server may do beside the protocol.
constexpr const char* kExtensions[] = {
    "binary_tensor_data", "model_configuration", "model_repository",
    "parameters",         "schedule_policy",     "statistics",
};

}  // namespace

void FillServerMetadata(ServerCore& core, inference::ServerMetadataResponse* metadata) {
  metadata->set_name("athanor");
  metadata->set_version(kVersion);
  for (const char* extension : kExtensions) metadata->add_extensions(extension);
  if (core.regions().on()) metadata->add_extensions("system_shared_memory");
}

}  // namespace athanor
