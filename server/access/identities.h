// The identities that a server knows, read from a file at once or not at all.
//
//   [team-a]
//   roles = infer, upload
//   models = team-a/*, shared-*
//   token = sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//
//   ASSIGN_OR_RETURN(auto identities, Identities::Parse("auth", "auth.conf", text));
//   identities->OfToken("test", absl::Now())   // team-a
//
// docs/security.md explains the file. Immutable.
#ifndef ATHANOR_SERVER_ACCESS_IDENTITIES_H_
#define ATHANOR_SERVER_ACCESS_IDENTITIES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/access/identity.h"
#include "server/net/peer_certificate.h"

namespace athanor {

class Identities {
 public:
  using Ptr = std::shared_ptr<const Identities>;

  // Reads a file of at most 1 MiB: sections [NAME] with lines `key = value`, and comments that
  // begin with "#". Returns INVALID_ARGUMENT, with the flag, the file and the line, but never a
  // token, if anything is wrong: an unknown key or role, a value out of range, a key or an identity
  // twice, a token or certificate of two identities, roles and quotas that contradict each other,
  // an identity without a role, or with neither token nor certificate, no identity.
  static absl::StatusOr<Ptr> Parse(absl::string_view flag, absl::string_view file,
                                   absl::string_view text);
  // Reads the simpler file of --openai_keys: a line NAME KEY for each key. Each name is an identity
  // that may infer with all models.
  static absl::StatusOr<Ptr> ParseKeys(absl::string_view flag, absl::string_view file,
                                       absl::string_view text);

  // Returns UNAUTHENTICATED, which does not tell the token, if it is nobody's or has expired. Takes
  // the same time whosever it is.
  absl::StatusOr<std::shared_ptr<const Identity>> OfToken(absl::string_view token,
                                                          absl::Time now) const;

  int64_t size() const { return static_cast<int64_t>(identities_.size()); }
  // Finds whose certificate it is by its names. Returns UNAUTHENTICATED, with its names, if it is
  // nobody's, is that of several, or is not valid at `now`, whenever the connection began.
  absl::StatusOr<std::shared_ptr<const Identity>> OfCertificate(const PeerCertificate& certificate,
                                                                absl::Time now) const;

  int64_t certificates() const { return static_cast<int64_t>(owner_of_certificate_.size()); }
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  // Has identities go on with the counts that those of the same name had in `before`.
  static Ptr WithUseOf(const Identities& before, const Identities& now);

 private:
  friend class IdentitiesBuilder;
  struct Token {
    std::string digest;
    absl::Time until = absl::InfiniteFuture();
    int64_t identity = 0;  // its position
  };

  std::vector<std::shared_ptr<const Identity>> identities_;
  std::vector<Token> tokens_;
  absl::flat_hash_map<std::string, int64_t> owner_of_certificate_;  // by PeerCertificate's names
};

// Reads at most 1 MiB. INVALID_ARGUMENT, with the flag and the file: it cannot be read, or is
// longer.
absl::StatusOr<std::string> ReadAuthFile(absl::string_view flag, const std::string& file);

// Returns what follows "Bearer " in an Authorization header; "" if it is of another kind.
absl::string_view BearerToken(absl::string_view header);
// Returns the password of "Basic ...", as browsers send it, whatever the name; "" likewise.
std::string BasicPassword(absl::string_view header);

// Returns a new token of 256 random bits, and the digest that stands for it in a file:
// "sha256:9f86...".
std::string MakeToken();
std::string TokenDigestText(absl::string_view token);

}  // namespace athanor

#endif  // ATHANOR_SERVER_ACCESS_IDENTITIES_H_
