// Names clients by the keys they send.
//
//   // keys.txt:   team-a sk-3f9c...
//   ApiKeys keys = ApiKeys::Load("openai_keys", "keys.txt").value();
//   keys.NameOf("sk-3f9c...");   // "team-a"
//
// Keeps SHA-256 digests, not keys, and compares with all of them in a time that does not depend on
// which one fits. Immutable.
#ifndef ATHANOR_SERVER_NET_KEYS_H_
#define ATHANOR_SERVER_NET_KEYS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

class ApiKeys {
 public:
  // Reads a file of at most 1 MiB with a line NAME KEY for each key; a name may have several keys.
  // Skips empty lines and those that begin with "#". Names have 1 to 64 letters, digits, "-", "_"
  // and "."; keys have 8 to 256 visible ASCII characters. Returns INVALID_ARGUMENT, with the flag,
  // the file and the line, but never a key, if a line is none of these, a key is there twice, or
  // there is no key.
  static absl::StatusOr<ApiKeys> Load(absl::string_view flag, const std::string& file);
  static absl::StatusOr<ApiKeys> Parse(absl::string_view flag, absl::string_view file,
                                       absl::string_view text);

  std::optional<std::string> NameOf(absl::string_view key) const;

 private:
  struct Key {
    std::string name;
    std::string digest;
  };
  std::vector<Key> keys_;
};

// Returns what follows "Bearer " in an Authorization header; null if it is of another kind.
std::optional<absl::string_view> BearerToken(absl::string_view header);

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_KEYS_H_
