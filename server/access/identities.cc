#include "server/access/identities.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/sha256.h"
#include "server/base/log.h"

namespace athanor {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;
constexpr size_t kMostTokenBytes = 4'096;  // hashed; a longer one is nobody's
constexpr size_t kTokenBytes = 32;

// Takes as long whichever byte differs.
bool Same(const std::string& a, const std::string& b) {
  return CRYPTO_memcmp(a.data(), b.data(), kSha256Bytes) == 0;
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// Returns the certificate's names as messages show them: its maker chose them.
std::string Shown(const PeerCertificate& certificate) {
  constexpr size_t kMost = 300;
  const std::string text = absl::CHexEscape(absl::StrJoin(certificate.names, ", "));
  return absl::StrCat(text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

// Tells the administrator whose certificate it is. Its client learns no identity's name by it.
void LogAmbiguous(const PeerCertificate& certificate, const Identity& one, const Identity& other) {
  static LogLimit limit;
  const std::optional<int64_t> held_back = limit.Pass();
  if (!held_back.has_value()) return;
  LogWarn("ambiguous certificate", {{"certificate", Shown(certificate)},
                                    {"identity", one.name},
                                    {"other", other.name},
                                    {"held_back", *held_back}});
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Identity>> Identities::OfToken(absl::string_view token,
                                                                    absl::Time now) const {
  const Token* found = nullptr;
  if (token.size() <= kMostTokenBytes) {
    const std::string digest = Sha256Of(token);
    for (const Token& each : tokens_) {
      if (Same(each.digest, digest)) found = &each;
    }
  }
  if (found == nullptr) return absl::UnauthenticatedError("the token is none of this server's");
  const std::shared_ptr<const Identity>& identity = identities_[found->identity];
  if (now < found->until) return identity;
  return absl::UnauthenticatedError(
      absl::StrCat("the token of ", identity->name, " has expired, on ", TimeText(found->until)));
}

absl::StatusOr<std::shared_ptr<const Identity>> Identities::OfCertificate(
    const PeerCertificate& certificate, absl::Time now) const {
  const Identity* found = nullptr;
  std::shared_ptr<const Identity> identity;
  for (const std::string& name : certificate.names) {
    const auto owner = owner_of_certificate_.find(name);
    if (owner == owner_of_certificate_.end()) continue;
    identity = identities_[owner->second];
    if (found != nullptr && found != identity.get()) {
      LogAmbiguous(certificate, *found, *identity);
      return absl::UnauthenticatedError(absl::StrCat("the client certificate (", Shown(certificate),
                                                     ") is that of several identities"));
    }
    found = identity.get();
  }
  if (found == nullptr) {
    return absl::UnauthenticatedError(
        absl::StrCat("the client certificate (", Shown(certificate),
                     ") is that of none of this server's identities"));
  }
  if (now >= certificate.from && now < certificate.until) return identity;
  const bool late = now >= certificate.until;
  return absl::UnauthenticatedError(
      absl::StrCat("the client certificate of ", identity->name,
                   late ? " has expired, on " : " is not valid yet, until ",
                   TimeText(late ? certificate.until : certificate.from)));
}

Identities::Ptr Identities::WithUseOf(const Identities& before, const Identities& now) {
  auto joined = std::make_shared<Identities>(now);
  for (std::shared_ptr<const Identity>& each : joined->identities_) {
    const auto same = std::find_if(before.identities_.begin(), before.identities_.end(),
                                   [&](const auto& old) { return old->name == each->name; });
    if (same == before.identities_.end()) continue;
    Identity copy = *each;
    copy.use = (*same)->use;
    each = std::make_shared<const Identity>(std::move(copy));
  }
  return joined;
}

absl::StatusOr<std::string> ReadAuthFile(absl::string_view flag, const std::string& file) {
  std::error_code unknown;
  if (std::filesystem::exists(file, unknown) && !std::filesystem::is_regular_file(file, unknown)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", file, ": is not a regular file"));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMostFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.eof()) {
    return absl::InvalidArgumentError(
        stream ? absl::StrCat("--", flag, "=", file, ": is longer than ", kMostFileBytes, " bytes")
               : absl::StrCat("--", flag, "=", file, ": cannot be read"));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

absl::string_view BearerToken(absl::string_view header) {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(header, kScheme)) return "";
  return absl::StripAsciiWhitespace(header.substr(kScheme.size()));
}

std::string BasicPassword(absl::string_view header) {
  constexpr absl::string_view kScheme = "Basic ";
  std::string decoded;
  if (!absl::StartsWithIgnoreCase(header, kScheme) ||
      !absl::Base64Unescape(absl::StripAsciiWhitespace(header.substr(kScheme.size())), &decoded)) {
    return "";
  }
  const size_t colon = decoded.find(':');
  return colon == std::string::npos ? "" : decoded.substr(colon + 1);
}

std::string MakeToken() {
  std::array<unsigned char, kTokenBytes> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return "";
  return absl::StrCat("ath_", absl::WebSafeBase64Escape(absl::string_view(
                                  reinterpret_cast<const char*>(bytes.data()), bytes.size())));
}

std::string TokenDigestText(absl::string_view token) {
  return absl::StrCat("sha256:", Sha256Hex(token));
}

}  // namespace athanor
