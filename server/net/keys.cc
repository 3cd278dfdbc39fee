#include "server/net/keys.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "deploy/bazel/libs/sha256.h"

namespace athanor {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;
constexpr size_t kMostName = 64;
constexpr size_t kLeastKey = 8, kMostKey = 256;

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= kMostName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

bool IsKey(absl::string_view text) {
  return text.size() >= kLeastKey && text.size() <= kMostKey &&
         std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
}

// Takes as long whichever digest fits, or none.
bool Same(const std::string& a, const std::string& b) {
  return CRYPTO_memcmp(a.data(), b.data(), kSha256Bytes) == 0;
}

template <typename... Parts>
absl::Status Wrong(absl::string_view flag, absl::string_view file, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", file, ": ", parts...));
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Load(absl::string_view flag, const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMostFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.eof()) {
    return stream ? Wrong(flag, file, "is longer than ", kMostFileBytes, " bytes")
                  : Wrong(flag, file, "cannot be read");
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  return Parse(flag, file, text);
}

absl::StatusOr<ApiKeys> ApiKeys::Parse(absl::string_view flag, absl::string_view file,
                                       absl::string_view text) {
  ApiKeys keys;
  int line_number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty() || line.front() == '#') continue;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (parts.size() != 2 || !IsName(parts[0])) {
      return Wrong(flag, file, "line ", line_number, " is not NAME KEY, with a name of 1 to ",
                   kMostName, " letters, digits, '-', '_' and '.'");
    }
    if (!IsKey(parts[1])) {
      return Wrong(flag, file, "line ", line_number, ": the key of ", parts[0], " must have ",
                   kLeastKey, " to ", kMostKey, " visible ASCII characters");
    }
    std::string digest = Sha256Of(parts[1]);
    for (const Key& other : keys.keys_) {
      if (other.digest != digest) continue;
      return Wrong(flag, file, "line ", line_number, ": the key of ", parts[0], " is that of ",
                   other.name, " too");
    }
    keys.keys_.push_back({std::string(parts[0]), std::move(digest)});
  }
  if (keys.keys_.empty()) return Wrong(flag, file, "holds no key; give lines of NAME KEY");
  return keys;
}

std::optional<std::string> ApiKeys::NameOf(absl::string_view key) const {
  const std::string digest = Sha256Of(key);
  const Key* found = nullptr;
  for (const Key& each : keys_) {
    if (Same(each.digest, digest)) found = &each;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

std::optional<absl::string_view> BearerToken(absl::string_view header) {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(header, kScheme)) return std::nullopt;
  return absl::StripAsciiWhitespace(header.substr(kScheme.size()));
}

}  // namespace athanor
