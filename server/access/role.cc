#include "server/access/role.h"

#include "absl/strings/str_cat.h"

namespace athanor {

absl::string_view NameOf(Role role) {
  switch (role) {
    case Role::kNone:
      return "none";
    case Role::kInfer:
      return "infer";
    case Role::kUpload:
      return "upload";
    case Role::kAdmin:
      return "admin";
    case Role::kMonitor:
      return "monitor";
  }
  return "none";
}

std::string Roles::Text() const {
  std::string text;
  for (const Role role : kAllRoles) {
    if (Has(role)) absl::StrAppend(&text, text.empty() ? "" : ", ", NameOf(role));
  }
  return text;
}

}  // namespace athanor
