#include "server/access/identity.h"

#include <cstddef>

namespace athanor {

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  // On a mismatch goes back to the last "*", which then takes one character more.
  size_t p = 0, n = 0;
  size_t star = absl::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool Identity::MayUse(absl::string_view model) const {
  if (roles.Has(Role::kAdmin)) return true;
  for (const std::string& pattern : models) {
    if (MatchesPattern(pattern, model)) return true;
  }
  return false;
}

}  // namespace athanor
