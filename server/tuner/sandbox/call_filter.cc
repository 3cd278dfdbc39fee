#include "server/tuner/sandbox/call_filter.h"

#include <linux/audit.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "seccomp: name this architecture's AUDIT_ARCH constant"
#endif
static_assert(std::endian::native == std::endian::little);

// A placeholder for a jump to the end of the rule, filled in once that is known.
constexpr uint8_t kToRefusal = 255;

sock_filter Instruction(int code, uint32_t k, size_t jump_true = 0, size_t jump_false = 0) {
  return {static_cast<uint16_t>(code), static_cast<uint8_t>(jump_true),
          static_cast<uint8_t>(jump_false), k};
}
sock_filter Load(size_t offset) {
  return Instruction(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter Return(uint32_t action) { return Instruction(BPF_RET | BPF_K, action); }
sock_filter IfEqual(uint32_t value, size_t jump_true, size_t jump_false) {
  return Instruction(BPF_JMP | BPF_JEQ | BPF_K, value, jump_true, jump_false);
}
sock_filter IfAny(uint32_t bits, size_t jump_true, size_t jump_false) {
  return Instruction(BPF_JMP | BPF_JSET | BPF_K, bits, jump_true, jump_false);
}

}  // namespace

Argument Argument::OneOf(std::initializer_list<uint32_t> values) const {
  Argument result = *this;
  result.test_ = Test::kOneOf;
  result.values_ = values;
  return result;
}
Argument Argument::HasNoneOf(uint32_t bits) const {
  Argument result = *this;
  result.test_ = Test::kHasNoneOf;
  result.values_ = {bits};
  return result;
}
Argument Argument::HasOneOf(uint32_t bits) const {
  Argument result = *this;
  result.test_ = Test::kHasOneOf;
  result.values_ = {bits};
  return result;
}
Argument Argument::Null() const {
  Argument result = *this;
  result.test_ = Test::kNull;
  return result;
}

CallFilter::CallFilter() {
  code_ = {Load(offsetof(seccomp_data, arch)), IfEqual(kArchitecture, 1, 0), Return(kEndProcess),
           Load(offsetof(seccomp_data, nr))};
#if defined(__x86_64__)
  // The numbers of the x32 ABI would bypass every rule.
  code_.push_back(Instruction(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
  code_.push_back(Return(kEndProcess));
#endif
}

void CallFilter::Allow(std::initializer_list<long> calls) { Refuse(SECCOMP_RET_ALLOW, calls); }

void CallFilter::Refuse(uint32_t action, std::initializer_list<long> calls) {
  for (long call : calls) {
    code_.push_back(IfEqual(static_cast<uint32_t>(call), 0, 1));
    code_.push_back(Return(action));
  }
}

void CallFilter::AllowIf(long call, std::initializer_list<Argument> arguments, uint32_t action) {
  std::vector<sock_filter> rule;
  for (const Argument& argument : arguments) {
    const size_t low = offsetof(seccomp_data, args) + 8 * static_cast<size_t>(argument.index_);
    const std::vector<uint32_t>& values = argument.values_;
    rule.push_back(Load(low));
    switch (argument.test_) {
      case Argument::Test::kOneOf:
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t others = values.size() - 1 - i;
          rule.push_back(IfEqual(values[i], others, others == 0 ? kToRefusal : 0));
        }
        break;
      case Argument::Test::kHasNoneOf:
        rule.push_back(IfAny(values[0], kToRefusal, 0));
        break;
      case Argument::Test::kHasOneOf:
        rule.push_back(IfAny(values[0], 0, kToRefusal));
        break;
      case Argument::Test::kNull:
        rule.push_back(IfEqual(0, 0, kToRefusal));
        rule.push_back(Load(low + 4));
        rule.push_back(IfEqual(0, 0, kToRefusal));
        break;
    }
  }
  rule.push_back(Return(SECCOMP_RET_ALLOW));
  rule.push_back(Return(action));
  for (size_t i = 0; i < rule.size(); ++i) {
    const auto to_refusal = static_cast<uint8_t>(rule.size() - 1 - (i + 1));
    if (rule[i].jt == kToRefusal) rule[i].jt = to_refusal;
    if (rule[i].jf == kToRefusal) rule[i].jf = to_refusal;
  }
  code_.push_back(IfEqual(static_cast<uint32_t>(call), 0, rule.size()));
  code_.insert(code_.end(), rule.begin(), rule.end());
}

absl::Status CallFilter::Install() {
  code_.push_back(Return(kLack));
  sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
  // prctl sets the filter for this thread only; used if an installed filter refuses seccomp(2).
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("system call filter (CONFIG_SECCOMP_FILTER): ", std::strerror(errno)));
}

}  // namespace athanor
