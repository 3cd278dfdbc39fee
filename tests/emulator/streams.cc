// The driver's functions for streams and events.
#include <unistd.h>

#include <memory>
#include <utility>

#include "tests/emulator/device.h"

using namespace athanor;            // NOLINT: every function below is of its interface
using namespace athanor::emulator;  // NOLINT

namespace {

// Is one passing of an event in its stream; recorded again, the event has another.
struct Passing {
  Stream* stream = nullptr;  // alive until it is reached
  int64_t number = 0;        // of the stream's work
  double ms = 0;
  bool reached = false;
};
struct Event {
  std::shared_ptr<Passing> last;  // null: never recorded
};

void RunOfLibrary(void (*run)(const DeviceForWork&, void*), void* state) {
  run({.reach = Reach,
       .lose = [](CudaResult result, const char* why) { Lose(result, why); },
       .spend = [](double ms) { device.now_ms += ms; },
       .most_moved = TheMachine().most_moved},
      state);
}

CudaResult EnqueueOfLibrary(CudaStream handle, void (*run)(const DeviceForWork&, void*),
                            void* state, void (*release)(void*)) {
  const std::shared_ptr<void> kept(state, release);
  return InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (stream == nullptr) return kCudaInvalidHandle;
    Enqueue(*stream, [run, kept] { RunOfLibrary(run, kept.get()); });
    return kCudaSuccess;
  });
}

}  // namespace

namespace athanor::emulator {

const LibraryWork kLibraryWork = {.enqueue = EnqueueOfLibrary};

}  // namespace athanor::emulator

void athanor::emulator::EnqueueEvent(Stream& stream, CudaEvent event) {
  auto passing = std::make_shared<Passing>(Passing{&stream, stream.enqueued + 1});
  reinterpret_cast<Event*>(event)->last = passing;
  Enqueue(stream, [passing = std::move(passing)] {
    passing->ms = device.now_ms += 0.001;
    passing->reached = true;
  });
}

ATHANOR_DRIVER cuStreamCreate(CudaStream* stream, unsigned) {
  return InContext([&] {
    auto* const made = new Stream;
    device.streams.insert(made);
    *stream = reinterpret_cast<CudaStream>(made);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuStreamDestroy_v2(CudaStream handle) {
  return InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (handle == nullptr || stream == nullptr) return kCudaInvalidHandle;
    RunUntil(*stream, stream->enqueued);
    device.streams.erase(stream);
    delete stream;
    return device.lost;
  });
}
ATHANOR_DRIVER cuStreamSynchronize(CudaStream handle) {
  bool hanging = false;
  const CudaResult result = InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (stream == nullptr) return kCudaInvalidHandle;
    if (stream->capture != nullptr) {
      stream->capture->broken = true;
      return kCudaCaptureUnsupported;
    }
    RunUntil(*stream, stream->enqueued);
    hanging = device.hanging;
    return device.lost;
  });
  if (hanging) sleep(20);
  return result;
}

ATHANOR_DRIVER cuEventCreate(CudaEvent* event, unsigned) {
  return InContext([&] {
    *event = reinterpret_cast<CudaEvent>(new Event);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuEventDestroy_v2(CudaEvent event) {
  return InContext([&] {
    delete reinterpret_cast<Event*>(event);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuEventRecord(CudaEvent event, CudaStream handle) {
  return InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (stream == nullptr) return kCudaInvalidHandle;
    EnqueueEvent(*stream, event);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuEventSynchronize(CudaEvent event) {
  return InContext([&] {
    const Passing* const last = reinterpret_cast<Event*>(event)->last.get();
    if (last != nullptr && !last->reached) RunUntil(*last->stream, last->number);
    return device.lost;
  });
}
ATHANOR_DRIVER cuEventElapsedTime(float* ms, CudaEvent begin_event, CudaEvent end_event) {
  return InContext([&]() -> CudaResult {
    const Passing* const begin = reinterpret_cast<Event*>(begin_event)->last.get();
    const Passing* const end = reinterpret_cast<Event*>(end_event)->last.get();
    if (begin == nullptr || end == nullptr) return kCudaInvalidHandle;
    if (!begin->reached || !end->reached) return kCudaNotReady;
    *ms = float(end->ms - begin->ms);
    return kCudaSuccess;
  });
}
