#include "tests/emulator/fibres.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATHANOR_ASAN 1
#include <sanitizer/asan_interface.h>
#endif
#if __has_feature(thread_sanitizer)
#define ATHANOR_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif
#endif

// Saves what a callee must keep on the stack, stores the stack pointer, and goes on at another that
// was so stored. Its arguments are where to store, and the other.
extern "C" void athanor_switch_stack(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.hidden athanor_switch_stack
.globl athanor_switch_stack
.type athanor_switch_stack, @function
athanor_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size athanor_switch_stack, . - athanor_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.hidden athanor_switch_stack
.globl athanor_switch_stack
.type athanor_switch_stack, %function
athanor_switch_stack:
  sub sp, sp, #176
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mrs x9, fpcr
  str x9, [sp, #160]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldr x9, [sp, #160]
  msr fpcr, x9
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
.size athanor_switch_stack, . - athanor_switch_stack
)");
#else
#error "fibres.cc has no switch of stacks for this processor"
#endif

namespace athanor::emulator {
namespace {

thread_local Fibre* current = nullptr;  // whose turn it is on this thread

// Writes what athanor_switch_stack() finds at the beginning of a run; returns where.
void* FirstFrame(char* top, void (*enter)()) {
#if defined(__x86_64__)
  // Control words, r15 r14 r13 r12 rbx rbp, the address to return to, and none for `enter`'s own
  // return: at its entry the stack is 8 bytes off a multiple of 16.
  auto* const frame = reinterpret_cast<uint64_t*>(top) - 9;
  std::memset(frame, 0, 72);
  uint32_t mxcsr;
  uint16_t x87;
  asm volatile("stmxcsr %0" : "=m"(mxcsr));
  asm volatile("fnstcw %0" : "=m"(x87));
  frame[0] = mxcsr | uint64_t{x87} << 32;
  frame[7] = reinterpret_cast<uint64_t>(enter);
#elif defined(__aarch64__)
  auto* const frame = reinterpret_cast<uint64_t*>(top) - 22;
  std::memset(frame, 0, 176);
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  frame[11] = reinterpret_cast<uint64_t>(enter);  // x30
  frame[20] = fpcr;
#endif
  return frame;
}

size_t PageBytes() { return sysconf(_SC_PAGESIZE); }

char* MapStack() {
  void* const mapping = mmap(nullptr, PageBytes() + Fibre::kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, PageBytes(), PROT_NONE) != 0) {
    std::perror("the emulator has no memory for the stack of a thread");
    std::abort();
  }
  return static_cast<char*>(mapping);
}

}  // namespace

Fibre::Fibre() : mapping_(MapStack()) {
#ifdef ATHANOR_TSAN
  told_.own_thread = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
  End();
#ifdef ATHANOR_TSAN
  __tsan_destroy_fiber(told_.own_thread);
#endif
  munmap(mapping_, PageBytes() + kStackBytes);
}

void Fibre::Start(void (*run)(void*), void* argument) {
  run_ = run;
  argument_ = argument;
  if (left_) ForgetFrames();
  goes_on_ = true;
  ending_ = left_ = false;
  stack_pointer_ = FirstFrame(mapping_ + PageBytes() + kStackBytes, Run);
}

bool Fibre::Resume() {
  Fibre* const outer = current;
  current = this;
  SwitchIn();
  current = outer;
  return goes_on_;
}

void Fibre::End() {
  if (!goes_on_) return;
  ending_ = true;
  Resume();
}

void Fibre::Suspend() {
  current->SwitchOut(/*last=*/false);
  if (current->ending_) Leave();
}

void Fibre::Leave() {
  current->left_ = true;
  current->goes_on_ = false;
  current->SwitchOut(/*last=*/true);
  std::abort();
}

// Is the first function on a fibre's stack. After the last switch none comes back to it, and
// ThreadSanitizer, which counts calls and returns, counts neither it nor SwitchOut().
[[clang::disable_sanitizer_instrumentation]] void Fibre::Run() {
  Fibre* const self = current;
#ifdef ATHANOR_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->told_.resumer_stack, &self->told_.resumer_bytes);
#endif
  if (!self->ending_) self->run_(self->argument_);
  self->goes_on_ = false;
  self->SwitchOut(/*last=*/true);
  std::abort();
}

// Tells sanitizers that nothing is left of the functions that a run was in.
void Fibre::ForgetFrames() {
#ifdef ATHANOR_ASAN
  __asan_unpoison_memory_region(mapping_ + PageBytes(), kStackBytes);
#endif
#ifdef ATHANOR_TSAN
  __tsan_destroy_fiber(told_.own_thread);
  told_.own_thread = __tsan_create_fiber(0);
#endif
}

void Fibre::SwitchIn() {
#ifdef ATHANOR_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, mapping_ + PageBytes(), kStackBytes);
#endif
#ifdef ATHANOR_TSAN
  told_.resumer_thread = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(told_.own_thread, 0);
#endif
  athanor_switch_stack(&resumer_, stack_pointer_);
#ifdef ATHANOR_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

[[clang::disable_sanitizer_instrumentation]] void Fibre::SwitchOut([[maybe_unused]] bool last) {
#ifdef ATHANOR_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &told_.own_frames, told_.resumer_stack,
                                 told_.resumer_bytes);
#endif
#ifdef ATHANOR_TSAN
  __tsan_switch_to_fiber(told_.resumer_thread, 0);
#endif
  athanor_switch_stack(&stack_pointer_, resumer_);
#ifdef ATHANOR_ASAN
  __sanitizer_finish_switch_fiber(told_.own_frames, &told_.resumer_stack, &told_.resumer_bytes);
#endif
}

}  // namespace athanor::emulator
