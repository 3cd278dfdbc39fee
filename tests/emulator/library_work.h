// Tells the emulated driver and a library that enqueues work on its streams of each other. They
// are linked apart, and a test has a driver for each device: a stream says whose it is.
//
//   CudaResult result = WorkOf(stream)->enqueue(stream, Run, state, Release);
#ifndef ATHANOR_TESTS_EMULATOR_LIBRARY_WORK_H_
#define ATHANOR_TESTS_EMULATOR_LIBRARY_WORK_H_

#include <cstddef>

#include "runtime/cuda/driver.h"

namespace athanor::emulator {

// Tells work of the device while it runs.
struct DeviceForWork {
  // Returns where the host finds memory of the device; null if not all of it is allocated.
  void* (*reach)(CudaPointer pointer, size_t bytes);
  // Ends the context, with an explanation.
  void (*lose)(CudaResult result, const char* why);
  // Counts so much time.
  void (*spend)(double ms);
  // Work that takes longer on the host than moving so many bytes is left out.
  size_t most_moved;
};

// Begins each stream.
struct LibraryWork {
  // Has the stream run the work in its turn, as often as a graph that captures it is launched.
  // `release` is called once, when nothing will run it again.
  CudaResult (*enqueue)(CudaStream stream, void (*run)(const DeviceForWork& device, void* state),
                        void* state, void (*release)(void* state));
};

// REQUIRES: the stream is one of the emulator's, and not null
inline const LibraryWork* WorkOf(CudaStream stream) {
  return *reinterpret_cast<const LibraryWork* const*>(stream);
}

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_LIBRARY_WORK_H_
