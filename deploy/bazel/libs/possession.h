// Proves that a client that names a tensor by its SHA-256 has its bytes, without sending them.
//
//   client                                      server
//                        <- nonce               // new for each call
//   PossessionProof(nonce, hash, SealOf(bytes)) ->
//                                               == PossessionProof(nonce, hash, seal it keeps)
//
// A tensor's seal is the SHA-256 of its bytes followed by kSealSuffix. It cannot be derived from
// the tensor's hash: extending a hash gives only digests of inputs that continue with SHA-256's
// padding, whose first byte is 0x80, and the suffix begins with another byte. So only those who had
// every byte know the seal, and it is never sent. One pass computes both digests. Checking a proof
// does not read the bytes, so its time does not depend on the tensor.
//
//
// The attack, in which a hash stands for a file, is described by Halevi, Harnik, Pinkas and
// Shulman-Peleg, "Proofs of Ownership in Remote Storage Systems" (CCS 2011). They require more:
// that nothing short can be passed on in place of the bytes, which takes a hash tree over the bytes
// and reads of them. Here whoever has a tensor's bytes may pass on the bytes themselves, so a short
// secret is enough.
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_

#include <string>

#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {

inline constexpr absl::string_view kSealSuffix = "athanor possession";

// Returns 32 bytes, as do the other functions here.
inline std::string SealOf(absl::string_view bytes) {
  return Sha256().Update(bytes).Update(kSealSuffix).Finish();
}

inline std::string PossessionProof(absl::string_view nonce, absl::string_view hash,
                                   absl::string_view seal) {
  return Sha256().Update(nonce).Update(hash).Update(seal).Finish();
}

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_POSSESSION_H_
