// The key that signs exported cache entries, and the public keys whose signatures are trusted.
//
//   absl::StatusOr<CacheKeys> keys = ReadCacheKeys(options);
#ifndef ATHANOR_SERVER_STORAGE_CACHE_KEYS_H_
#define ATHANOR_SERVER_STORAGE_CACHE_KEYS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/bazel/libs/ed25519.h"
#include "server/base/options.h"

namespace athanor {

struct CacheKeys {
  std::optional<Ed25519Key> signing;
  std::vector<std::string> trusted;  // public keys, 32 bytes each
};

// Reads the files that --cache_signing_key and --cache_trusted_keys name; a file of the latter may
// hold several keys. Returns INVALID_ARGUMENT naming the flag and the file.
absl::StatusOr<CacheKeys> ReadCacheKeys(const ServerOptions& options);

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_CACHE_KEYS_H_
