#include "absl/strings/str_cat.h"
#include "server/rpc/call.h"
#include "server/rpc/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::MissingTensors(Context* context, const Bytes* request,
                                                       Bytes* reply) {
  return AnswerUnary<v1::MissingTensorsRequest, v1::MissingTensorsResponse>(
      core_, {.name = "MissingTensors", .uses_disk = true}, context, request, reply,
      [this](const v1::MissingTensorsRequest& asked, v1::MissingTensorsResponse* answer) {
        for (int i = 0; i < asked.hashes_size(); ++i) {
          if (asked.hashes(i).size() == kSha256Bytes) continue;
          return absl::InvalidArgumentError(absl::StrCat(
              "hashes[", i, "]: ", asked.hashes(i).size(), " bytes; a SHA-256 has ", kSha256Bytes));
        }
        const std::vector<std::string> hashes(asked.hashes().begin(), asked.hashes().end());
        for (std::string& hash : core_.registry().Missing(hashes)) {
          answer->add_hashes(std::move(hash));
        }
        return absl::OkStatus();
      });
}

}  // namespace athanor
