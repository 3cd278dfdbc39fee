// Functions that take turns on one thread, each on a stack of its own, without a system call.
//
//   Fibre fibre;
//   fibre.Start([](void*) { Fibre::Suspend(); }, nullptr);
//   while (fibre.Resume()) {}
//
// A switch keeps what a call keeps: the registers that the callee saves, and the control words of
// floating point, which each fibre has of its own. Sanitizers are told.
#ifndef ATHANOR_TESTS_EMULATOR_FIBRES_H_
#define ATHANOR_TESTS_EMULATOR_FIBRES_H_

#include <cstddef>

namespace athanor::emulator {

// Keeps its stack from run to run; below it lies a page that faults. A run stays on the thread of
// its first turn.
class Fibre {
 public:
  static constexpr size_t kStackBytes = size_t{256} << 10;

  Fibre();
  ~Fibre();  // ends the run
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // Begins a run, which does nothing before Resume(). REQUIRES: none goes on.
  void Start(void (*run)(void*), void* argument);
  // Gives the run a turn, until it calls Suspend() or ends; reports whether it goes on.
  // REQUIRES: it goes on.
  bool Resume();
  // Ends a run that goes on where it is: what its functions hold is not destroyed.
  void End();

  // In a run: ends its turn.
  static void Suspend();
  // In a run: ends it.
  [[noreturn]] static void Leave();

 private:
  static void Run();
  void SwitchIn();
  void SwitchOut(bool last);
  void ForgetFrames();

  char* const mapping_;  // the page that faults, and the stack
  void* stack_pointer_ = nullptr;
  void* resumer_ = nullptr;  // the stack pointer of who called Resume()
  void (*run_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool goes_on_ = false, ending_ = false, left_ = false;
  // Sanitizers' names for the two stacks and threads.
  [[maybe_unused]] struct {
    void *own_frames = nullptr, *own_thread = nullptr, *resumer_thread = nullptr;
    const void* resumer_stack = nullptr;
    size_t resumer_bytes = 0;
  } told_;
};

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_FIBRES_H_
