// Holds an identity of --auth's file: who may call, and what.
#ifndef ATHANOR_SERVER_ACCESS_IDENTITY_H_
#define ATHANOR_SERVER_ACCESS_IDENTITY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/access/role.h"
#include "server/access/use.h"

namespace athanor {

// Reports whether all of `name` is what `pattern` says: "*" stands for any characters, also none
// and also "/", every other character for itself. Takes time linear in the product of their lengths
// at most.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Immutable, but for `use`, which counts.
struct Identity {
  std::string name;
  Roles roles;
  std::vector<std::string> models;  // patterns of names
  std::string
      cache_group;  // within which beginnings of prompts are shared: its name, or a given one
  Quotas quotas;
  std::shared_ptr<IdentityUse> use = std::make_shared<IdentityUse>();

  bool MayUse(absl::string_view model) const;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_ACCESS_IDENTITY_H_
