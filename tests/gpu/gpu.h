// A device with its primary context, for questions: compiles the kernels of kernels/, keeps what is
// allocated until its end, launches and times.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(""));
//   ASSIGN_OR_RETURN(CudaFunction empty, gpu->Kernel("probes.cu", "empty"));
//   ASSIGN_OR_RETURN(Timing t, gpu->Time(20, 1, [&] { return gpu->Launch(empty, {}); }));
#ifndef ATHANOR_TESTS_GPU_GPU_H_
#define ATHANOR_TESTS_GPU_GPU_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cuda/driver.h"
#include "server/tuner/measure/median.h"

namespace athanor {

// Returns from a function of Status if a function of the driver's table fails.
#define RETURN_IF_CUDA_ERROR(cuda, call) \
  RETURN_IF_ERROR(::athanor::CudaStatus((cuda), (cuda).call, #call))

// Returns the texts of kernels/, by file name.
const std::map<std::string, std::string>& KernelTexts();
// Machine code for these travels with the program, for machines without a compiler.
inline constexpr const char* kArchitectures[] = {"sm_80", "sm_90a", "sm_100a"};
// Writes the machine code of all kernels for all of these into `folder`, which it makes.
absl::Status WriteMachineCode(const Nvrtc& nvrtc, const std::string& folder);
// Reports whether an architecture can run a file's kernels.
bool CanRun(absl::string_view file, absl::string_view arch);

struct Grid {
  unsigned blocks = 1, threads = 32, shared_bytes = 0;
};

struct Timing {
  Median ms;                             // of one unit of work
  double ghz_before = 0, ghz_after = 0;  // of the round that was kept, on an otherwise idle chip
  int rounds = 0;
  double largest_change = 0;  // of the clock, among all rounds
  bool Steady() const;        // the clock changed by 3 % at most in the round that was kept
};

// Used by one thread.
class Gpu {
 public:
  // Opens device 0; the compiler is opened when it is first needed. FAILED_PRECONDITION, in one
  // sentence, if there is no driver or device.
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(const std::string& nvrtc_folder);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Has every wait, timing and compilation fail with DEADLINE_EXCEEDED from then on.
  void EndBy(std::chrono::steady_clock::time_point end) { end_ = end; }

  const CudaDriver& cuda() const { return cuda_; }
  // FAILED_PRECONDITION if this machine has no compiler.
  absl::StatusOr<const Nvrtc*> nvrtc() const { return Nvrtc::Load(nvrtc_folder_); }
  // FAILED_PRECONDITION if there is neither a compiler nor a folder "kernels" of machine code
  // beside this program.
  absl::Status HasKernels() const;
  CudaDeviceHandle device() const { return device_; }
  CudaContext context() const { return context_; }
  CudaStream stream() const { return stream_; }
  int Attribute(CudaDeviceAttribute attribute) const;
  int multiprocessors() const { return Attribute(kCudaMultiprocessors); }
  std::string arch() const;  // as compilers name it: "sm_90a"

  // Compiles a file of kernels/, or reads its machine code where the compiler is missing or fails
  // by itself (one without its builtins library opens, and fails at the first compilation).
  absl::StatusOr<std::string> MachineCode(const std::string& file);
  // Returns why machine code was read though there is a compiler; empty: it was not.
  const std::string& compiler_failure() const { return compiler_failure_; }
  absl::StatusOr<CudaFunction> Kernel(const std::string& file, const char* name);
  absl::StatusOr<CudaPointer> Allocate(size_t bytes);
  // Frees what Allocate() gave, so that a part can go through sizes.
  void FreeAll();
  absl::StatusOr<void*> AllocatePinned(size_t bytes);

  template <typename... T>
  absl::Status Launch(CudaFunction function, Grid grid, T... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    RETURN_IF_CUDA_ERROR(cuda_, LaunchKernel(function, grid.blocks, 1, 1, grid.threads, 1, 1,
                                             grid.shared_bytes, stream_, pointers, nullptr));
    return absl::OkStatus();
  }
  absl::Status Wait();
  // Instantiates a graph to which `add` adds nodes; the caller destroys it.
  absl::StatusOr<CudaGraphExec> Record(absl::FunctionRef<absl::Status(CudaGraph)> add) const;

  template <typename T>
  absl::StatusOr<CudaPointer> Upload(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    absl::StatusOr<CudaPointer> to = Allocate(bytes);
    if (!to.ok()) return to.status();
    RETURN_IF_CUDA_ERROR(cuda_, CopyToDevice(*to, values.data(), bytes, stream_));
    RETURN_IF_ERROR(Wait());
    return to;
  }
  template <typename T>
  absl::StatusOr<std::vector<T>> Download(CudaPointer from, size_t count) {
    std::vector<T> values(count);
    RETURN_IF_CUDA_ERROR(cuda_, CopyToHost(values.data(), from, count * sizeof(T), stream_));
    RETURN_IF_ERROR(Wait());
    return values;
  }
  absl::Status Fill(CudaPointer to, unsigned char value, size_t bytes);

  // Runs `work` until the clock had time to settle, and waits.
  absl::Status WarmUp(absl::FunctionRef<absl::Status()> work);
  // Returns the milliseconds between events around `work`, which has ended then.
  absl::StatusOr<double> OnceMs(absl::FunctionRef<absl::Status()> work);
  // Times `work`, which enqueues `units` equal units on stream(), by events, after
  // WarmUp(). If the clock changes by more than 3 % while measuring it measures
  // again, three times at most; Timing says how it was.
  absl::StatusOr<Timing> Time(int samples, int units, absl::FunctionRef<absl::Status()> work);
  // Returns the multiprocessors' clock now, read by one warp.
  absl::StatusOr<double> Gigahertz();

 private:
  Gpu(const CudaDriver& cuda, std::string nvrtc_folder)
      : cuda_(cuda), nvrtc_folder_(std::move(nvrtc_folder)) {}
  absl::Status Start();
  absl::Status InTime() const;

  const CudaDriver& cuda_;
  const std::string nvrtc_folder_;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
  std::string compiler_failure_;
  CudaDeviceHandle device_ = 0;
  CudaContext context_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaEvent begin_event_ = nullptr, end_event_ = nullptr;
  std::map<std::string, CudaModule> modules_;
  std::vector<CudaPointer> allocations_;
  std::vector<void*> pinned_;
  CudaPointer clock_ = 0;  // what the kernel `spin` writes
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_GPU_H_
