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

}  // namespace

Caller Caller::Anybody() {
  Caller anybody;
  anybody.open_ = true;
  return anybody;
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
  static const auto* const kNobody = new std::string();
  return identity_ == nullptr ? *kNobody : identity_->name;
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

absl::StatusOr<std::unique_ptr<Access>> Access::Open(Source source, std::string file) {
  std::unique_ptr<Access> access(new Access(source, std::move(file)));
  RETURN_IF_ERROR(access->Reload());
  return access;
}

absl::string_view Access::flag() const { return source_ == Source::kKeys ? "openai_keys" : "auth"; }

Identities::Ptr Access::identities() const {
  MutexLock lock(mu_);
  return identities_;
}

absl::StatusOr<Caller> Access::Admit(Roles wanted, absl::string_view what,
                                     absl::string_view token) const {
  if (open()) return Caller::Anybody();
  if (token.empty()) {
    if (wanted.empty()) return Caller();
    return absl::UnauthenticatedError(kWantsToken);
  }
  absl::StatusOr<std::shared_ptr<const Identity>> found = identities()->OfToken(token, absl::Now());
  if (wanted.empty()) return Caller(found.ok() ? *std::move(found) : nullptr, false);
  if (!found.ok()) return found.status();
  const std::shared_ptr<const Identity>& identity = *found;
  if (!wanted.Admit(identity->roles)) {
    return absl::PermissionDeniedError(
        absl::StrCat(identity->name, " has the roles ", identity->roles.Text(), "; ", what,
                     " needs one of ", wanted.Text(), wanted.Has(Role::kAdmin) ? "" : ", admin"));
  }
  RETURN_IF_ERROR(
      identity->use->BeginCall(identity->name, identity->quotas, IdentityUse::Clock::now()));
  return Caller(identity, true);
}

absl::Status Access::Reload() {
  if (open()) return absl::OkStatus();
  const Stamp stamp = StampNow();  // first: what comes behind is read the next time
  const auto read = [this]() -> absl::StatusOr<Identities::Ptr> {
    ASSIGN_OR_RETURN(const std::string text, ReadAuthFile(flag(), file_));
    return source_ == Source::kKeys ? Identities::ParseKeys(flag(), file_, text)
                                    : Identities::Parse(flag(), file_, text);
  };
  absl::StatusOr<Identities::Ptr> now = read();
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
  LogInfo("identities read", {{"identities", now->size()}, {"tokens", now->tokens()}});
}

Access::Stamp Access::StampNow() const {
  struct stat about{};
  if (stat(file_.c_str(), &about) != 0) return {};
  return {about.st_dev, about.st_ino, about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec};
}

}  // namespace athanor
