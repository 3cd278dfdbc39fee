// Proves that a client that names a tensor by its SHA-256 has its bytes, without sending them.
//
//   client                                      server
//                        <- nonce               // new for each call
//   PossessionProof(nonce, hash, SealOf(bytes)) ->
//                                               == PossessionProof(nonce, hash, seal it keeps)
//
// A tensor's seal is the SHA-256 of its bytes followed by kSealSuffix. The seal cannot be derived
// from the hash: extending a hash gives digests of longer inputs in which SHA-256's padding byte
// 0x80 follows the tensor's bytes, and the suffix begins with another byte. So only a client that
// had every byte knows the seal, and the seal never travels. Hash and seal come out of one pass.
// Checking a proof costs the server no access to the bytes, and its time does not depend on them.
//
// The attack, in which a hash stands for a file, is that of Halevi, Harnik, Pinkas and
// Shulman-Peleg, "Proofs of Ownership in Remote Storage Systems" (CCS 2011). They ask for more:
// nothing short may be handed on in place of the bytes, which takes a tree of hashes and access to
// the bytes. Here a client that has a tensor may hand on the bytes themselves, so a short secret is
// enough.
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_

#include <string>

#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {

inline constexpr absl::string_view kSealSuffix = "athanor possession";

// Returns 32 bytes, like all functions here.
inline std::string SealOf(absl::string_view bytes) {
  return Sha256().Update(bytes).Update(kSealSuffix).Finish();
}

inline std::string PossessionProof(absl::string_view nonce, absl::string_view hash,
                                   absl::string_view seal) {
  return Sha256().Update(nonce).Update(hash).Update(seal).Finish();
}

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_
