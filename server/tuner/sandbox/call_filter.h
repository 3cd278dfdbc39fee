// A list of the system calls that a process may make, for the kernel's filter (seccomp).
//
//   CallFilter filter;
//   filter.Allow({SYS_read, SYS_write});
//   filter.AllowIf(SYS_prlimit64, {Argument(0).OneOf({0}), Argument(2).Null()}, kEndProcess);
//   absl::Status status = filter.Install();
//
// What is on no list fails with ENOSYS, as on a kernel that lacks it, so that libc falls back on
// what it did before it knew the call. Calls of other ABIs than this program's end the process.
// Filters add up: a call has to pass all that were installed.
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

// What becomes of a call that is refused.
inline constexpr uint32_t kEndProcess = SECCOMP_RET_KILL_PROCESS;  // SIGSYS
inline constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
inline constexpr uint32_t kLack = SECCOMP_RET_ERRNO | ENOSYS;
inline constexpr uint32_t kAskHandler = SECCOMP_RET_TRAP;  // SIGSYS that can be handled

// What an argument of a call has to be. But for Null, its low half alone counts: the kernel takes
// numbers of processes, flags and commands as 32 bits.
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

// Rules in order: the first for a call decides.
class CallFilter {
 public:
  CallFilter();

  void Allow(std::initializer_list<long> calls);
  void Refuse(uint32_t action, std::initializer_list<long> calls);
  // Allowed where all arguments are as they have to be, else `action`.
  void AllowIf(long call, std::initializer_list<Argument> arguments, uint32_t action);

  // For all threads of this process, and all processes that they fork. FAILED_PRECONDITION: this
  // kernel has no such filter. REQUIRES: PR_SET_NO_NEW_PRIVS.
  absl::Status Install();

 private:
  std::vector<sock_filter> code_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_CALL_FILTER_H_
