#include "server/storage/cache_keys.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr absl::string_view kBegin = "-----BEGIN ";

std::string Where(absl::string_view flag, const std::string& path) {
  return absl::StrCat("--", flag, ": '", path, "': ");
}

absl::StatusOr<std::string> ReadKeyFile(absl::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(Where(flag, path), "cannot be read"));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Parses each PEM block separately: OpenSSL reads only the first block of a file.
absl::Status AddPublicKeys(const std::string& path, std::vector<std::string>* keys) {
  constexpr absl::string_view kFlag = "cache_trusted_keys";
  ASSIGN_OR_RETURN(std::string text, ReadKeyFile(kFlag, path));
  size_t at = text.find(std::string(kBegin));
  if (at == std::string::npos) at = 0;  // without a block, the parser reports what is wrong
  while (at != std::string::npos) {
    const size_t next = text.find(std::string(kBegin), at + 1);
    absl::StatusOr<std::string> key =
        Ed25519PublicKey(absl::string_view(text).substr(at, next - at));
    if (!key.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(Where(kFlag, path), key.status().message()));
    }
    keys->push_back(*std::move(key));
    at = next;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CacheKeys> ReadCacheKeys(const ServerOptions& options) {
  CacheKeys keys;
  if (!options.cache_signing_key.empty()) {
    constexpr absl::string_view kFlag = "cache_signing_key";
    ASSIGN_OR_RETURN(std::string pem, ReadKeyFile(kFlag, options.cache_signing_key));
    absl::StatusOr<Ed25519Key> key = Ed25519Key::FromPem(pem);
    if (!key.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(kFlag, options.cache_signing_key), key.status().message()));
    }
    keys.signing = *std::move(key);
  }
  for (absl::string_view path :
       absl::StrSplit(options.cache_trusted_keys, ',', absl::SkipWhitespace())) {
    const std::string trimmed(absl::StripAsciiWhitespace(path));
    RETURN_IF_ERROR(AddPublicKeys(trimmed, &keys.trusted));
  }
  return keys;
}

}  // namespace athanor
