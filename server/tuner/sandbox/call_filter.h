// A list of the system calls that a process may make, for the kernel's filter (seccomp).
//
//   CallFilter filter;
//   filter.Allow({SYS_read, SYS_write});
//   filter.AllowIf(SYS_prlimit64, {Argument(0).OneOf({0}), Argument(2).Null()}, kEndProcess);
//   absl::Status status = filter.Install();
//
// Calls on no list fail with ENOSYS, as on a kernel without them, so that libc falls back on older
// calls. Calls of another ABI than this program's end the process. Filters add up: a call must pass
// all installed filters.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_CALL_FILTER_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_CALL_FILTER_H_

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "absl/status/status.h"

namespace athanor {

// Action for a refused call.
inline constexpr uint32_t kEndProcess = SECCOMP_RET_KILL_PROCESS;  // SIGSYS
inline constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
inline constexpr uint32_t kLack = SECCOMP_RET_ERRNO | ENOSYS;
inline constexpr uint32_t kAskHandler = SECCOMP_RET_TRAP;  // SIGSYS that can be handled

// A condition on an argument of a call. All but Null test only the argument's low half: the kernel
// takes process ids, flags and commands as 32 bits.
class Argument {
 public:
  explicit Argument(int index) : index_(index) {}
  Argument OneOf(std::initializer_list<uint32_t> values) const;
  Argument HasNoneOf(uint32_t bits) const;
  Argument HasOneOf(uint32_t bits) const;
  Argument Null() const;

 private:
  friend class CallFilter;
  enum class Test : uint8_t { kOneOf, kHasNoneOf, kHasOneOf, kNull };
  int index_;
  Test test_ = Test::kNull;
  std::vector<uint32_t> values_;
};

// Rules in order: the first rule for a call decides.
class CallFilter {
 public:
  CallFilter();

  void Allow(std::initializer_list<long> calls);
  void Refuse(uint32_t action, std::initializer_list<long> calls);
  // Allows the call if all arguments meet their conditions, otherwise applies `action`.
  void AllowIf(long call, std::initializer_list<Argument> arguments, uint32_t action);

  // Installs the filter for all threads of this process and all processes they fork. Returns
  // FAILED_PRECONDITION if the kernel does not support such filters. REQUIRES: PR_SET_NO_NEW_PRIVS.
  absl::Status Install();

 private:
  std::vector<sock_filter> code_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_CALL_FILTER_H_
