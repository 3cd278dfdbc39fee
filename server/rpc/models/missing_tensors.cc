#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {
namespace {

// Returns the tensors whose proofs are right. The other proofs do not reveal whether the server has
// their tensors.
absl::flat_hash_set<std::string> Proved(const v1::MissingTensorsRequest& asked,
                                        Registry& registry) {
  absl::flat_hash_set<std::string> proved;
  if (!registry.challenges().IsGood(asked.nonce(), Challenges::Clock::now())) return proved;
  for (const v1::TensorProof& proof : asked.proofs()) {
    if (registry.Proves(asked.nonce(), proof.hash(), proof.proof())) proved.insert(proof.hash());
  }
  return proved;
}

}  // namespace

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
        absl::flat_hash_set<std::string> left_out = Proved(asked, core_.registry());
        for (const std::string& hash : asked.hashes()) {
          if (left_out.insert(hash).second) answer->add_hashes(hash);
        }
        if (asked.nonce().empty()) {
          answer->set_nonce(core_.registry().challenges().New(Challenges::Clock::now()));
        }
        return absl::OkStatus();
      });
}

}  // namespace athanor
