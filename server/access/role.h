// Says who may call what: a call names the roles that may make it, an identity those it has.
//
//   constexpr Roles kReads = {Role::kInfer, Role::kUpload};
//   kReads.Admit({Role::kInfer})   // true
//   Roles().Admit({})              // true: a public call
#ifndef ATHANOR_SERVER_ACCESS_ROLE_H_
#define ATHANOR_SERVER_ACCESS_ROLE_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace athanor {

// kNone: of a route, anybody. kAdmin has every role.
enum class Role : uint8_t { kNone, kInfer, kUpload, kAdmin, kMonitor };

inline constexpr Role kAllRoles[] = {Role::kInfer, Role::kUpload, Role::kMonitor, Role::kAdmin};

// Returns "infer", "upload", "monitor" or "admin"; "none".
absl::string_view NameOf(Role role);

class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }

  constexpr void Add(Role role) {
    if (role != Role::kNone) bits_ |= Bit(role);
  }
  constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  // Reports whether a call that wants these needs no role.
  constexpr bool empty() const { return bits_ == 0; }
  // Reports whether a caller with the roles `held` may make a call that wants these.
  constexpr bool Admit(Roles held) const {
    return empty() || (held.bits_ & (bits_ | Bit(Role::kAdmin))) != 0;
  }
  // "infer, upload"
  std::string Text() const;

 private:
  static constexpr uint32_t Bit(Role role) { return uint32_t{1} << static_cast<uint32_t>(role); }

  uint32_t bits_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_ACCESS_ROLE_H_
