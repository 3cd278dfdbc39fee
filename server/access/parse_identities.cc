// Reads the files of identities (identities.h).
#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/access/identities.h"
#include "server/base/options.h"

namespace athanor {
namespace {

constexpr size_t kMostName = 64;
constexpr size_t kLeastKey = 8, kMostKey = 256;
constexpr size_t kMostPattern = 1'024;
constexpr size_t kMostPatterns = 256;
// Each call is compared with all.
constexpr size_t kMostTokens = 1'000;
constexpr size_t kMostCertificates = 10'000;

// The group of an identity that names none; no line can name it.
std::string OwnGroup(absl::string_view name) { return absl::StrCat("=", name); }

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

// Returns a name of the file as messages show it: names are short and plain, but typing errors may
// not be. Never used for tokens.
std::string Shown(absl::string_view text) {
  constexpr size_t kMost = 40;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMost)),
                      text.size() > kMost ? "...\"" : "\"");
}

struct QuotaRow {
  absl::string_view key;
  int64_t Quotas::* field;
  bool bytes;
  Role needs;  // kNone: it makes sense for all roles
};
constexpr QuotaRow kQuotas[] = {
    {"calls_per_second", &Quotas::calls_per_second, false, Role::kNone},
    {"concurrent_calls", &Quotas::concurrent_calls, false, Role::kNone},
    {"upload_rate", &Quotas::upload_rate, true, Role::kUpload},
    {"max_models", &Quotas::max_models, false, Role::kUpload},
};
constexpr int64_t kMostQuota = int64_t{1} << 40;

}  // namespace

// Gathers the identities of a file, and says in which line something is wrong.
class IdentitiesBuilder {
 public:
  IdentitiesBuilder(absl::string_view flag, absl::string_view file) : flag_(flag), file_(file) {}

  void NextLine() { ++line_; }
  // Begins an identity.
  absl::Status Begin(absl::string_view name);
  absl::Status Set(absl::string_view key, absl::string_view value);
  absl::StatusOr<Identities::Ptr> Finish();

  // Adds a key to the identity of that name, which may be there.
  absl::Status AddKey(absl::string_view name, absl::string_view key);

  template <typename... Parts>
  absl::Status Wrong(const Parts&... parts) const {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag_, "=", file_, ":", line_, ": ", parts...));
  }
  template <typename... Parts>
  absl::Status WrongFile(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("--", flag_, "=", file_, ": ", parts...));
  }

 private:
  struct Draft {
    Identity identity;
    int line = 0;
    size_t proofs = 0;  // tokens and certificates
    std::set<std::string, std::less<>> keys;
  };

  absl::Status SetRoles(absl::string_view value);
  absl::Status SetModels(absl::string_view value);
  absl::Status SetCacheGroup(absl::string_view value);
  absl::Status SetQuota(const QuotaRow& row, absl::string_view value);
  absl::Status AddToken(absl::string_view value);
  absl::Status AddCertificate(absl::string_view value);
  absl::Status AddDigest(int64_t identity, std::string digest, absl::Time until);
  absl::Status Check(const Draft& draft) const;

  const std::string flag_, file_;
  int line_ = 0;
  std::vector<Draft> drafts_;
  std::vector<Identities::Token> tokens_;
  absl::flat_hash_map<std::string, int64_t> owner_of_;  // by digest
  absl::flat_hash_map<std::string, int64_t> owner_of_certificate_;
};

absl::Status IdentitiesBuilder::Begin(absl::string_view name) {
  if (!IsName(name)) {
    return Wrong("[", Shown(name), "] is not a name of 1 to ", kMostName,
                 " letters, digits, '-', '_' and '.'");
  }
  for (const Draft& draft : drafts_) {
    if (draft.identity.name == name) {
      return Wrong("[", name, "] is there twice, first in line ", draft.line);
    }
  }
  drafts_.push_back({.line = line_});
  drafts_.back().identity.name = std::string(name);
  drafts_.back().identity.cache_group = OwnGroup(name);
  return absl::OkStatus();
}

absl::Status IdentitiesBuilder::Set(absl::string_view key, absl::string_view value) {
  if (drafts_.empty()) return Wrong("stands ahead of the first [NAME]");
  if (key == "token") return AddToken(value);
  if (key == "certificate") return AddCertificate(value);
  if (!drafts_.back().keys.insert(std::string(key)).second) {
    return Wrong(Shown(key), " is there twice in [", drafts_.back().identity.name, "]");
  }
  if (key == "roles") return SetRoles(value);
  if (key == "models") return SetModels(value);
  if (key == "cache_group") return SetCacheGroup(value);
  for (const QuotaRow& row : kQuotas) {
    if (key == row.key) return SetQuota(row, value);
  }
  return Wrong("unknown key ", Shown(key),
               "; there are roles, models, token, certificate, cache_group, calls_per_second, "
               "concurrent_calls, upload_rate, max_models");
}

absl::Status IdentitiesBuilder::SetRoles(absl::string_view value) {
  Roles& roles = drafts_.back().identity.roles;
  for (absl::string_view text : absl::StrSplit(value, ',')) {
    text = absl::StripAsciiWhitespace(text);
    const auto role = std::find_if(std::begin(kAllRoles), std::end(kAllRoles),
                                   [&](Role each) { return NameOf(each) == text; });
    if (role == std::end(kAllRoles)) {
      return Wrong("unknown role ", Shown(text), "; there are infer, upload, monitor, admin");
    }
    if (roles.Has(*role)) return Wrong("role ", text, " is there twice");
    roles.Add(*role);
  }
  return absl::OkStatus();
}

absl::Status IdentitiesBuilder::SetModels(absl::string_view value) {
  std::vector<std::string>& models = drafts_.back().identity.models;
  for (absl::string_view text : absl::StrSplit(value, ',')) {
    text = absl::StripAsciiWhitespace(text);
    if (text.empty() || text.size() > kMostPattern) {
      return Wrong("a pattern of models has ", text.size(), " bytes; it must have 1 to ",
                   kMostPattern);
    }
    models.emplace_back(text);
  }
  if (models.size() <= kMostPatterns) return absl::OkStatus();
  return Wrong(models.size(), " patterns of models; there may be ", kMostPatterns);
}

absl::Status IdentitiesBuilder::SetCacheGroup(absl::string_view value) {
  if (!IsName(value)) {
    return Wrong("cache_group = ", Shown(value), " is not a name of 1 to ", kMostName,
                 " letters, digits, '-', '_' and '.'; leave it out to share with nobody");
  }
  drafts_.back().identity.cache_group = std::string(value);
  return absl::OkStatus();
}

absl::Status IdentitiesBuilder::SetQuota(const QuotaRow& row, absl::string_view value) {
  int64_t number = 0;
  if (row.bytes) {
    number = ParseBytes(value).value_or(0);
  } else if (!absl::SimpleAtoi(value, &number)) {
    number = 0;
  }
  if (number < 1 || number > kMostQuota) {
    return Wrong(row.key, " = ", Shown(value), " is not ",
                 row.bytes ? "a size such as 10MiB" : "a whole number", " from 1 to ", kMostQuota,
                 "; leave it out for no limit");
  }
  drafts_.back().identity.quotas.*row.field = number;
  return absl::OkStatus();
}

// Reads "sha256:HEX" or "sha256:HEX until DATE". Never shows what is there, which may be a token by
// mistake.
absl::Status IdentitiesBuilder::AddToken(absl::string_view value) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(value, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  absl::string_view hex = parts.empty() ? "" : parts[0];
  const bool digest = absl::ConsumePrefix(&hex, "sha256:") && hex.size() == 2 * kSha256Bytes &&
                      std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit);
  if (!digest) {
    return Wrong(
        "token is not sha256: and 64 hexadecimal digits, the digest of a token; "
        "athanord --make_token makes both");
  }
  absl::Time until = absl::InfiniteFuture();
  if (parts.size() > 1) {
    std::string error;
    const bool timed =
        parts.size() == 3 && parts[1] == "until" &&
        (absl::ParseTime("%Y-%m-%d", parts[2], absl::UTCTimeZone(), &until, &error) ||
         absl::ParseTime(absl::RFC3339_full, parts[2], absl::UTCTimeZone(), &until, &error));
    if (!timed) {
      return Wrong(
          "behind the token's digest there may be `until` and a time, such as 2027-01-31 "
          "or 2027-01-31T12:00:00Z");
    }
  }
  return AddDigest(static_cast<int64_t>(drafts_.size()) - 1, absl::HexStringToBytes(hex), until);
}

absl::Status IdentitiesBuilder::AddDigest(int64_t identity, std::string digest, absl::Time until) {
  const auto [owner, added] = owner_of_.emplace(digest, identity);
  if (!added) {
    return Wrong("the token of ", drafts_[identity].identity.name, " is that of ",
                 drafts_[owner->second].identity.name, " too");
  }
  if (tokens_.size() == kMostTokens) return Wrong("more than ", kMostTokens, " tokens");
  tokens_.push_back({std::move(digest), until, identity});
  ++drafts_[identity].proofs;
  return absl::OkStatus();
}

absl::Status IdentitiesBuilder::AddCertificate(absl::string_view value) {
  const absl::StatusOr<std::string> name = CertificateName(value);
  if (!name.ok()) return Wrong("certificate = ", Shown(value), ": ", name.status().message());
  const auto identity = static_cast<int64_t>(drafts_.size()) - 1;
  const auto [owner, added] = owner_of_certificate_.emplace(*name, identity);
  if (!added) {
    return Wrong("the certificate ", Shown(value), " of ", drafts_[identity].identity.name,
                 " is that of ", drafts_[owner->second].identity.name, " too");
  }
  if (owner_of_certificate_.size() > kMostCertificates) {
    return Wrong("more than ", kMostCertificates, " certificates");
  }
  ++drafts_[identity].proofs;
  return absl::OkStatus();
}

absl::Status IdentitiesBuilder::AddKey(absl::string_view name, absl::string_view key) {
  if (!IsName(name)) {
    return Wrong("is not NAME KEY, with a name of 1 to ", kMostName,
                 " letters, digits, '-', '_' and '.'");
  }
  if (!IsKey(key)) {
    return Wrong("the key of ", name, " must have ", kLeastKey, " to ", kMostKey,
                 " visible ASCII characters");
  }
  const auto same = std::find_if(drafts_.begin(), drafts_.end(),
                                 [&](const Draft& draft) { return draft.identity.name == name; });
  const int64_t identity = same - drafts_.begin();
  if (same == drafts_.end()) {
    RETURN_IF_ERROR(Begin(name));
    drafts_.back().identity.roles = {Role::kInfer};
    drafts_.back().identity.models = {"*"};
  }
  return AddDigest(identity, Sha256Of(key), absl::InfiniteFuture());
}

absl::Status IdentitiesBuilder::Check(const Draft& draft) const {
  const Identity& identity = draft.identity;
  const auto wrong = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag_, "=", file_, ":", draft.line, ": [",
                                                   identity.name, "] ", parts...));
  };
  const Roles roles = identity.roles;
  if (roles.empty()) return wrong("has no roles; give infer, upload, monitor or admin");
  if (draft.proofs == 0) return wrong("has no token and no certificate, so nobody could be it");
  if (roles.Has(Role::kAdmin) && roles.Text() != NameOf(Role::kAdmin)) {
    return wrong("has roles ", roles.Text(), ", but admin has every role: give it alone");
  }
  const bool named = roles.Has(Role::kInfer) || roles.Has(Role::kUpload);
  if (named && identity.models.empty()) {
    return wrong("has no models; give patterns of names, or * for all");
  }
  if (!named && !identity.models.empty()) {
    return wrong("has models, which do nothing for the roles ", roles.Text());
  }
  if (identity.cache_group != OwnGroup(identity.name) && !Roles({Role::kInfer}).Admit(roles)) {
    return wrong("has cache_group, but not the role infer");
  }
  for (const QuotaRow& row : kQuotas) {
    if (row.needs == Role::kNone || identity.quotas.*row.field == 0) continue;
    if (!Roles({row.needs}).Admit(roles)) {
      return wrong("has ", row.key, ", but not the role ", NameOf(row.needs));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Identities::Ptr> IdentitiesBuilder::Finish() {
  if (drafts_.empty()) return WrongFile("names no identity, so nobody could call");
  auto made = std::make_shared<Identities>();
  for (Draft& draft : drafts_) {
    RETURN_IF_ERROR(Check(draft));
    made->identities_.push_back(std::make_shared<const Identity>(std::move(draft.identity)));
  }
  made->tokens_ = std::move(tokens_);
  made->owner_of_certificate_ = std::move(owner_of_certificate_);
  return made;
}

absl::StatusOr<Identities::Ptr> Identities::Parse(absl::string_view flag, absl::string_view file,
                                                  absl::string_view text) {
  IdentitiesBuilder builder(flag, file);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    builder.NextLine();
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    if (absl::ConsumePrefix(&line, "[")) {
      if (!absl::ConsumeSuffix(&line, "]")) return builder.Wrong("begins with [ and lacks its ]");
      RETURN_IF_ERROR(builder.Begin(absl::StripAsciiWhitespace(line)));
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) {
      return builder.Wrong("is neither [NAME], nor key = value, nor a comment (#)");
    }
    RETURN_IF_ERROR(builder.Set(absl::StripAsciiWhitespace(line.substr(0, equals)),
                                absl::StripAsciiWhitespace(line.substr(equals + 1))));
  }
  return builder.Finish();
}

absl::StatusOr<Identities::Ptr> Identities::ParseKeys(absl::string_view flag,
                                                      absl::string_view file,
                                                      absl::string_view text) {
  IdentitiesBuilder builder(flag, file);
  bool any = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    builder.NextLine();
    if (absl::StripAsciiWhitespace(line).empty() || line.front() == '#') continue;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (parts.size() != 2) return builder.Wrong("is not NAME KEY");
    RETURN_IF_ERROR(builder.AddKey(parts[0], parts[1]));
    any = true;
  }
  if (!any) return builder.WrongFile("holds no key; give lines of NAME KEY");
  return builder.Finish();
}

}  // namespace athanor
