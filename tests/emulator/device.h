// A GPU that is not there: what the driver's functions in this folder share. Linked together they
// are a libcuda.so.1 whose memory is this process's, whose time is counted and not measured, and
// whose kernels run on the host.
//
//   const Machine& TheMachine() { static const Machine machine = {...}; return machine; }
//
// Each library that links them says so what its device is.
#ifndef ATHANOR_TESTS_EMULATOR_DEVICE_H_
#define ATHANOR_TESTS_EMULATOR_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "deploy/bazel/libs/mutex.h"
#include "runtime/cuda/driver.h"
#include "tests/emulator/athanor/launch.h"
#include "tests/emulator/library_work.h"

namespace athanor::emulator {

// Results that only a driver names.
inline constexpr CudaResult kCudaInvalidContext = 201, kCudaInvalidHandle = 400,
                            kCudaNotSupported = 801;

// Returns where the host finds an address of the device.
inline void* HostAddress(CudaPointer pointer) {
  return reinterpret_cast<void*>(pointer & ~kDeviceBit);
}

struct Threads {
  int64_t blocks = 1;
  int64_t threads = 1;  // of a block
};

struct Kernel {
  std::string name;
  // A launch keeps copies of its arguments, of these sizes.
  std::vector<size_t> argument_bytes;
  // Calls Lose() where a GPU would fault. Empty: has no result.
  std::function<void(void** arguments, Threads)> run;
  size_t shared_bytes = 0;  // of a block
};

// What a module holds. Kernels live as long as it.
struct Program {
  virtual ~Program() = default;
  virtual Kernel* Find(std::string_view name) = 0;  // null: it has none of this name
};

struct Machine {
  std::string name;
  size_t bytes = 0;                 // of its memory
  int (*attribute)(int) = nullptr;  // of CudaDeviceAttribute; 0: not known
  // Loads an image of a program; a result other than success says why not.
  CudaResult (*load)(const void* image, std::unique_ptr<Program>* program) = nullptr;
  // Reports whether a stream's work waits until the host waits for it, as late as a GPU may take
  // it up. Otherwise it is done within the call.
  bool (*late)() = [] { return false; };
  // Reports whether the device breaks now, as hardware may at any time.
  bool (*breaks)() = [] { return false; };
  // Of each copy and fill, more bytes than these are left out.
  size_t most_moved = SIZE_MAX;
  // Instantiates graphs with their first two nodes swapped: a defect.
  bool swaps_nodes = false;
};
// Each library that links the emulator defines it.
const Machine& TheMachine();

// Lets libraries enqueue work (streams.cc).
extern const LibraryWork kLibraryWork;

struct Block {
  size_t bytes = 0;
  bool mapped = false;  // by cuMemMap: kernels may reach from one such block into the next
  bool access = true;
  CudaAllocation allocation = 0;  // if mapped
};

// Is cuMemCreate's; gone once it is released and nothing maps it.
struct Allocation {
  size_t bytes = 0;
  int mappings = 0;
  bool released = false;
};

// Is what a capture met so far.
struct Capture {
  std::vector<std::function<void()>> work;
  bool broken = false;  // the host waited for the stream
};

struct Stream {
  const LibraryWork* const library = &kLibraryWork;  // the first member: libraries look for it
  std::deque<std::function<void()>> waiting;
  int64_t enqueued = 0, done = 0;
  std::unique_ptr<Capture> capture;  // null: none is under way
};

// Guarded by `mutex`, which every function of the driver holds for its whole time.
struct Device {
  Mutex mutex;
  bool initialised = false;
  int retained = 0;  // of the primary context
  double now_ms = 1;
  CudaResult lost = kCudaSuccess;  // ended the context; every later call returns it
  std::string fault;               // explains `lost` if not empty
  bool hanging = false;
  size_t used_bytes = 0;
  std::map<CudaPointer, Block> blocks;
  std::deque<std::pair<void*, size_t>> freed;  // the oldest first; not yet the host's again
  size_t freed_bytes = 0;
  std::map<CudaPointer, size_t> reserved;  // bytes of cuMemAddressReserve's
  std::map<CudaAllocation, Allocation> allocations;
  CudaAllocation last_allocation = 0;
  std::map<CudaModule, std::unique_ptr<Program>> modules;
  std::set<Stream*> streams;
  Stream null_stream;  // waits for no other
};
extern Device& device;

// Returns where the host finds [pointer, pointer + bytes) of the device's memory; null if not all
// of it is allocated.
void* Reach(CudaPointer pointer, size_t bytes);

// Ends the context, with an explanation.
void Lose(CudaResult result, std::string why);

// Returns the stream of a handle; null if there is none.
Stream* FindStream(CudaStream handle);
// Does `work` in its turn: at once, or when the host waits for the stream. A stream that is
// captured keeps it for the graph.
void Enqueue(Stream& stream, std::function<void()> work);
// Does what was enqueued before `number`.
void RunUntil(Stream& stream, int64_t number);
void RunAll();  // of all streams

// Enqueues the recording of an event.
void EnqueueEvent(Stream& stream, CudaEvent event);
// Enqueues a kernel, with copies of its arguments.
CudaResult EnqueueKernel(Stream& stream, Kernel* kernel, Threads threads,
                         std::vector<std::vector<char>> arguments);
// Copies arguments as a launch takes them, by pointers to each. One block of all (`extra`) is not
// known here: where others than the first lie depends on their types.
CudaResult TakeArguments(const Kernel& kernel, void** arguments, void** extra,
                         std::vector<std::vector<char>>* kept);

// Describes one side of a copy.
struct CopyEnd {
  CudaPointer device = 0;
  void* host = nullptr;  // if not null: on the host
};
// Returns kCudaInvalidValue for memory that is not allocated, and for a device's address as the
// host's.
CudaResult CheckCopy(const CopyEnd& to, const CopyEnd& from, size_t bytes);
// Copies now; memory that was freed since CheckCopy() loses the device.
void Copy(const CopyEnd& to, const CopyEnd& from, size_t bytes);

// Each function of the driver is one call of these: of any thread, or of one with a context.
CudaResult OnDevice(absl::FunctionRef<CudaResult()> call);
CudaResult InContext(absl::FunctionRef<CudaResult()> call);
void SetContextOfThread(bool current);

}  // namespace athanor::emulator

// Exports a function of the driver.
#define ATHANOR_DRIVER extern "C" __attribute__((visibility("default"))) ::athanor::CudaResult

#endif  // ATHANOR_TESTS_EMULATOR_DEVICE_H_
