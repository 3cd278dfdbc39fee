// Admits calls: who calls, whether they may, and whether it is not one too many.
//
//   ASSIGN_OR_RETURN(auto access, Access::Open(Access::Source::kIdentities, "auth.conf"));
//   Caller caller;
//   RETURN_IF_ERROR(access->Admit({Role::kInfer}, "ModelInfer", token, nullptr, &caller));
//   RETURN_IF_ERROR(caller.MayUse("team-a/digits"));
//
// Each protocol asks in one place: server/rpc/rpc_admission.h and server/server.cc. Thread-safe.
#ifndef ATHANOR_SERVER_ACCESS_ACCESS_H_
#define ATHANOR_SERVER_ACCESS_ACCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/access/identities.h"
#include "server/access/role.h"
#include "server/net/peer_certificate.h"

namespace athanor {

// Stands for who makes a call, for as long as it runs: it counts among its identity's calls.
class Caller {
 public:
  // Nobody: may do nothing that is not public.
  Caller() = default;
  // Anybody, of a server that asks nobody: may do everything.
  static Caller Anybody();
  ~Caller() { End(); }
  Caller(Caller&& other) noexcept;
  Caller& operator=(Caller&& other) noexcept;
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Counts the call among its identity's until it ends. RESOURCE_EXHAUSTED with RetryAfter
  // (server/base/retry_after.h): it is one too many. Called once.
  absl::Status Begin();
  // The call does not count any more. What the caller may do stays.
  void End();
  // Returns the identity's name; "" if there is none.
  const std::string& name() const;
  // Callers of another group share no computed beginnings of prompts with it; "" if there is none.
  const std::string& cache_group() const;
  bool administers() const { return identity_ != nullptr && identity_->roles.Has(Role::kAdmin); }
  // PERMISSION_DENIED, whether or not there is such a model; UNAUTHENTICATED if nobody is known.
  absl::Status MayUse(absl::string_view model) const;
  bool Sees(absl::string_view model) const;
  // Returns how long to wait before more of an upload is read.
  IdentityUse::Clock::duration TakeUpload(int64_t bytes) const;
  // Returns the most names of models that the identity's patterns may have; 0: no limit.
  int64_t max_models() const;

 private:
  friend class Access;
  std::shared_ptr<const Identity> identity_;  // null: none is known
  bool counted_ = false;
  bool open_ = false;
};

class Access {
 public:
  // The files: --auth's, or the simpler one of --openai_keys.
  enum class Source : uint8_t { kIdentities, kKeys };

  // Admits everybody.
  Access() = default;
  // `certificates`: clients are asked for certificates. INVALID_ARGUMENT: see Identities; or the
  // file names certificates, but clients are asked for none.
  static absl::StatusOr<std::unique_ptr<Access>> Open(Source source, std::string file,
                                                      bool certificates = false);

  // Reports whether everybody is admitted to everything.
  bool open() const { return file_.empty(); }

  // Finds out who calls, and whether it may; counts nothing. `what` names the call in errors.
  // `token` is "" if there is none; if there is one, it alone says who calls, and the certificate
  // (null: none) does not. Public calls (`wanted` is empty) are admitted whatever they show.
  // Otherwise UNAUTHENTICATED, or PERMISSION_DENIED. Sets `caller` to who it is, if that is known,
  // also of a call that is refused: the log names it.
  absl::Status Find(Roles wanted, absl::string_view what, absl::string_view token,
                    const PeerCertificate* certificate, Caller* caller) const;
  // Finds the caller and begins its call, unless that is public.
  absl::Status Admit(Roles wanted, absl::string_view what, absl::string_view token,
                     const PeerCertificate* certificate, Caller* caller) const;
  // Knows the certificates of gRPC's clients; null if this server asks clients for none.
  PeerCertificates* certificates() const { return certificates_.get(); }
  // Has each call ask whether the authority of its certificate is still one (TlsCertificate).
  // Called ahead of the first call.
  void TrustBy(std::function<bool(const PeerCertificate&)> trusts) { trusts_ = std::move(trusts); }

  // Reads the file again. If it is wrong, keeps what was read before. Calls that run go on.
  absl::Status Reload();
  // The same if the file is another one than when it was read last; logs what comes of it.
  void ReloadIfChanged();

 private:
  // Tells whether a file was changed or replaced.
  using Stamp = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;

  Access(Source source, std::string file, bool certificates)
      : source_(source),
        file_(std::move(file)),
        certificates_(certificates ? std::make_unique<PeerCertificates>() : nullptr) {}
  absl::StatusOr<Identities::Ptr> Read() const;
  absl::StatusOr<std::shared_ptr<const Identity>> IdentityOf(
      absl::string_view token, const PeerCertificate* certificate) const;
  Stamp StampNow() const;
  absl::string_view flag() const;
  Identities::Ptr identities() const;

  const Source source_ = Source::kIdentities;
  const std::string file_;
  const std::unique_ptr<PeerCertificates> certificates_;
  std::function<bool(const PeerCertificate&)> trusts_;  // null: all
  mutable Mutex mu_;
  Identities::Ptr identities_ ABSL_GUARDED_BY(mu_);
  Stamp read_ ABSL_GUARDED_BY(mu_){};  // of the file that was read last, right or wrong
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_ACCESS_ACCESS_H_
