#include "server/access/access.h"

#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"

namespace athanor {
namespace {

constexpr char kWantsToken[] =
    "this server asks who calls: send a token, as authorization: Bearer TOKEN";
constexpr char kOrCertificate[] = ", or show a client certificate";

const Identity& Nobody() {
  static const auto* const nobody = new Identity();
  return *nobody;
}

}  // namespace

Caller Caller::Anybody() {
  Caller anybody;
  anybody.open_ = true;
  return anybody;
}

absl::Status Caller::Begin() {
  if (identity_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(
      identity_->use->BeginCall(identity_->name, identity_->quotas, IdentityUse::Clock::now()));
  counted_ = true;
  return absl::OkStatus();
}

void Caller::End() {
  if (std::exchange(counted_, false)) identity_->use->EndCall();
}

Caller::Caller(Caller&& other) noexcept
    : identity_(std::move(other.identity_)),
      counted_(std::exchange(other.counted_, false)),
      open_(std::exchange(other.open_, false)) {}

Caller& Caller::operator=(Caller&& other) noexcept {
  std::swap(identity_, other.identity_);
  std::swap(counted_, other.counted_);
  std::swap(open_, other.open_);
  return *this;
}

const std::string& Caller::name() const {
  return identity_ == nullptr ? Nobody().name : identity_->name;
}

const std::string& Caller::cache_group() const {
  return identity_ == nullptr ? Nobody().cache_group : identity_->cache_group;
}

bool Caller::Sees(absl::string_view model) const {
  return open_ || (identity_ != nullptr && identity_->MayUse(model));
}

absl::Status Caller::MayUse(absl::string_view model) const {
  if (Sees(model)) return absl::OkStatus();
  if (identity_ == nullptr) return absl::UnauthenticatedError(kWantsToken);
  return absl::PermissionDeniedError(absl::StrCat(
      identity_->name, " may not use model ", Quoted(std::string(model)),
      identity_->models.empty() ? ": it has no models"
                                : absl::StrCat(", only ", absl::StrJoin(identity_->models, ", "))));
}

IdentityUse::Clock::duration Caller::TakeUpload(int64_t bytes) const {
  if (identity_ == nullptr) return {};
  return identity_->use->TakeUpload(bytes, identity_->quotas, IdentityUse::Clock::now());
}

int64_t Caller::max_models() const {
  return identity_ == nullptr ? 0 : identity_->quotas.max_models;
}

absl::StatusOr<std::unique_ptr<Access>> Access::Open(Source source, std::string file,
                                                     bool certificates) {
  std::unique_ptr<Access> access(new Access(source, std::move(file), certificates));
  RETURN_IF_ERROR(access->Reload());
  return access;
}

absl::string_view Access::flag() const { return source_ == Source::kKeys ? "openai_keys" : "auth"; }

Identities::Ptr Access::identities() const {
  MutexLock lock(mu_);
  return identities_;
}

absl::StatusOr<std::shared_ptr<const Identity>> Access::IdentityOf(
    absl::string_view token, const PeerCertificate* certificate) const {
  const Identities::Ptr known = identities();
  if (!token.empty()) return known->OfToken(token, absl::Now());
  if (trusts_ == nullptr || trusts_(*certificate)) {
    return known->OfCertificate(*certificate, absl::Now());
  }
  return absl::UnauthenticatedError(
      "the client certificate is signed by none of the authorities that this server trusts now "
      "(--tls_client_ca); show another one, with a new connection");
}

absl::Status Access::Find(Roles wanted, absl::string_view what, absl::string_view token,
                          const PeerCertificate* certificate, Caller* caller) const {
  if (open()) {
    *caller = Caller::Anybody();
    return absl::OkStatus();
  }
  if (token.empty() && certificate == nullptr) {
    if (wanted.empty()) return absl::OkStatus();
    return absl::UnauthenticatedError(
        absl::StrCat(kWantsToken, certificates_ == nullptr ? "" : kOrCertificate));
  }
  const absl::StatusOr<std::shared_ptr<const Identity>> found = IdentityOf(token, certificate);
  if (!found.ok()) return wanted.empty() ? absl::OkStatus() : found.status();
  const Identity& identity = **found;
  caller->identity_ = *found;
  if (wanted.empty() || wanted.Admit(identity.roles)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(identity.name, " has the roles ", identity.roles.Text(), "; ", what,
                   " needs one of ", wanted.Text(), wanted.Has(Role::kAdmin) ? "" : ", admin"));
}

absl::Status Access::Admit(Roles wanted, absl::string_view what, absl::string_view token,
                           const PeerCertificate* certificate, Caller* caller) const {
  RETURN_IF_ERROR(Find(wanted, what, token, certificate, caller));
  return wanted.empty() ? absl::OkStatus() : caller->Begin();
}

absl::StatusOr<Identities::Ptr> Access::Read() const {
  ASSIGN_OR_RETURN(const std::string text, ReadAuthFile(flag(), file_));
  if (source_ == Source::kKeys) return Identities::ParseKeys(flag(), file_, text);
  ASSIGN_OR_RETURN(Identities::Ptr now, Identities::Parse(flag(), file_, text));
  if (now->certificates() == 0 || certificates_ != nullptr) return now;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag(), "=", file_,
                   ": names certificates, but the server asks clients for none; give "
                   "--tls_client_ca, the certificates of their authority"));
}

absl::Status Access::Reload() {
  if (open()) return absl::OkStatus();
  const Stamp stamp = StampNow();  // first: what comes behind is read the next time
  absl::StatusOr<Identities::Ptr> now = Read();
  MutexLock lock(mu_);
  read_ = stamp;
  if (!now.ok()) return now.status();
  identities_ =
      identities_ == nullptr ? *std::move(now) : Identities::WithUseOf(*identities_, **now);
  return absl::OkStatus();
}

void Access::ReloadIfChanged() {
  if (open()) return;
  {
    const Stamp now = StampNow();
    MutexLock lock(mu_);
    if (now == read_) return;
  }
  if (const absl::Status s = Reload(); !s.ok()) {
    LogError("identities kept", {{"reason", s.message()}});
    return;
  }
  const Identities::Ptr now = identities();
  LogInfo("identities read", {{"identities", now->size()},
                              {"tokens", now->tokens()},
                              {"certificates", now->certificates()}});
}

Access::Stamp Access::StampNow() const {
  struct stat about{};
  if (stat(file_.c_str(), &about) != 0) return {};
  return {about.st_dev, about.st_ino, about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec};
}

}  // namespace athanor
