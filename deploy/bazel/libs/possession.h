// Proof that who names a tensor by its SHA-256 has its bytes, without sending them.
//
//   client                                      server
//                        <- nonce               // new for each call
//   PossessionProof(nonce, hash, SealOf(bytes)) ->
//                                               == PossessionProof(nonce, hash, seal it keeps)
//
// A tensor's seal is the SHA-256 of its bytes with kSealSuffix behind them. Its hash does not give
// it away: to go on from a hash gives digests of longer inputs, whose next byte behind the tensor's
// own is SHA-256's padding, 0x80, and the suffix begins otherwise. So the seal is known to who had
// every byte, and never travels. Both digests come out of one pass, and a proof costs the server no
// look at the bytes, however many they are: nothing about an answer depends on them.
//
// The attack, a hash that stands for a file, is that of Halevi, Harnik, Pinkas and Shulman-Peleg,
// "Proofs of Ownership in Remote Storage Systems" (CCS 2011). They ask for more: nothing short may
// be handed on in the place of the bytes, which takes a tree of hashes over them and looks into
// them. Who has a tensor's bytes here may hand on the bytes themselves, so a short secret does.
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_

#include <string>

#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {

inline constexpr absl::string_view kSealSuffix = "athanor possession";

// 32 bytes, as all of these.
inline std::string SealOf(absl::string_view bytes) {
  return Sha256().Update(bytes).Update(kSealSuffix).Finish();
}

inline std::string PossessionProof(absl::string_view nonce, absl::string_view hash,
                                   absl::string_view seal) {
  return Sha256().Update(nonce).Update(hash).Update(seal).Finish();
}

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_
