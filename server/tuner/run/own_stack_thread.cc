#include "server/tuner/run/own_stack_thread.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr size_t kBytes = size_t{8} << 20;  // as much as other threads have by default

}  // namespace

absl::StatusOr<std::unique_ptr<OwnStackThread>> OwnStackThread::Start(std::function<void()> work) {
  std::unique_ptr<OwnStackThread> thread(new OwnStackThread(std::move(work)));
  const auto guard = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* stack = mmap(nullptr, guard + kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return absl::UnavailableError("no memory for a thread's stack");
  thread->stack_ = stack;
  mprotect(stack, guard, PROT_NONE);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, static_cast<char*>(stack) + guard, kBytes);
  const auto run = [](void* self) -> void* {
    static_cast<OwnStackThread*>(self)->work_();
    return nullptr;
  };
  const int error = pthread_create(&thread->thread_, &attributes, run, thread.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    munmap(stack, guard + kBytes);
    return absl::UnavailableError(absl::StrCat("no further thread: ", std::strerror(error)));
  }
  thread->runs_ = true;
  return thread;
}

void OwnStackThread::Join() {
  if (!std::exchange(runs_, false)) return;
  pthread_join(thread_, nullptr);
  munmap(stack_, static_cast<size_t>(sysconf(_SC_PAGESIZE)) + kBytes);
}

}  // namespace athanor
