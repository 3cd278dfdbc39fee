#include "tests/gpu/gpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr double kMostClockChange = 0.03;
constexpr int kMostRounds = 3;
// Clocks rise within some milliseconds of load; caches and code are warm long before.
constexpr std::chrono::milliseconds kWarmUp{30};

// Returns the folder of machine code that came with this program.
std::filesystem::path OwnFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "kernels";
}

std::string CodeName(absl::string_view file, absl::string_view arch) {
  return absl::StrCat(file, ".", arch, ".cubin");
}

}  // namespace

const std::map<std::string, std::string>& KernelTexts() {
  static const auto* const texts = new std::map<std::string, std::string>{
#include "tests/gpu/kernels.inc"
  };
  return *texts;
}

bool CanRun(absl::string_view file, absl::string_view arch) {
  return file != "tensor_map.cu" || arch != "sm_80";  // the copy engine came with sm_90
}

absl::Status WriteMachineCode(const Nvrtc& nvrtc, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto& [file, text] : KernelTexts()) {
    for (const char* arch : kArchitectures) {
      if (!CanRun(file, arch)) continue;
      ASSIGN_OR_RETURN(const Cubin cubin,
                       nvrtc.Compile({.source = text, .arch = arch, .name = file}));
      const std::string path = folder + "/" + CodeName(file, arch);
      std::ofstream out(path, std::ios::binary);
      if (!(out << cubin.code).flush()) {
        return absl::FailedPreconditionError(absl::StrCat(path, " cannot be written"));
      }
    }
  }
  return absl::OkStatus();
}

bool Timing::Steady() const {
  return std::fabs(ghz_after - ghz_before) <= kMostClockChange * ghz_before;
}

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(const std::string& nvrtc_folder) {
  ASSIGN_OR_RETURN(const CudaDriver* cuda, CudaDriver::Load());
  std::unique_ptr<Gpu> gpu(new Gpu(*cuda, nvrtc_folder));
  RETURN_IF_ERROR(gpu->Start());
  return gpu;
}

absl::Status Gpu::HasKernels() const {
  std::error_code error;
  return std::filesystem::exists(OwnFolder(), error) ? absl::OkStatus() : nvrtc().status();
}

absl::Status Gpu::Start() {
  RETURN_IF_CUDA_ERROR(cuda_, Init(0));
  RETURN_IF_CUDA_ERROR(cuda_, DeviceGet(&device_, 0));
  RETURN_IF_CUDA_ERROR(cuda_, PrimaryCtxRetain(&context_, device_));
  RETURN_IF_CUDA_ERROR(cuda_, CtxSetCurrent(context_));
  RETURN_IF_CUDA_ERROR(cuda_, StreamCreate(&stream_, kCudaStreamNonBlocking));
  RETURN_IF_CUDA_ERROR(cuda_, EventCreate(&begin_event_, 0));
  RETURN_IF_CUDA_ERROR(cuda_, EventCreate(&end_event_, 0));
  RETURN_IF_CUDA_ERROR(cuda_, MemAlloc(&clock_, 2 * sizeof(uint64_t)));
  return absl::OkStatus();
}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  FreeAll();
  for (void* pointer : pinned_) cuda_.MemFreeHost(pointer);
  if (clock_ != 0) cuda_.MemFree(clock_);
  for (const auto& [file, module] : modules_) cuda_.ModuleUnload(module);
  if (begin_event_ != nullptr) cuda_.EventDestroy(begin_event_);
  if (end_event_ != nullptr) cuda_.EventDestroy(end_event_);
  if (stream_ != nullptr) cuda_.StreamDestroy(stream_);
  cuda_.PrimaryCtxRelease(device_);
}

int Gpu::Attribute(CudaDeviceAttribute attribute) const {
  int value = 0;
  return cuda_.DeviceGetAttribute(&value, attribute, device_) == kCudaSuccess ? value : 0;
}

std::string Gpu::arch() const {
  const int major = Attribute(kCudaComputeMajor), minor = Attribute(kCudaComputeMinor);
  // From 9.0 on, matrix instructions belong to the chip's own variant.
  return absl::StrCat("sm_", major, minor, major >= 9 ? "a" : "");
}

absl::StatusOr<std::string> Gpu::MachineCode(const std::string& file) {
  const absl::StatusOr<const Nvrtc*> compiler = nvrtc();
  absl::Status why = compiler.status();
  if (compiler.ok()) {
    absl::StatusOr<Cubin> cubin =
        (*compiler)->Compile({.source = KernelTexts().at(file), .arch = arch(), .name = file});
    if (cubin.ok()) return std::move(cubin->code);
    why = cubin.status();
    if (!absl::IsInternal(why)) return why;
    compiler_failure_ = std::string(why.message());
  }
  const std::filesystem::path path = OwnFolder() / CodeName(file, arch());
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::FailedPreconditionError(
        absl::StrCat(why.message(), "; and there is no ", path.string()));
  }
  return std::string(std::istreambuf_iterator<char>(in), {});
}

absl::StatusOr<CudaFunction> Gpu::Kernel(const std::string& file, const char* name) {
  RETURN_IF_ERROR(InTime());
  CudaModule& module = modules_[file];
  if (module == nullptr) {
    ASSIGN_OR_RETURN(const std::string code, MachineCode(file));
    RETURN_IF_CUDA_ERROR(cuda_, ModuleLoadData(&module, code.data()));
  }
  CudaFunction function = nullptr;
  RETURN_IF_CUDA_ERROR(cuda_, ModuleGetFunction(&function, module, name));
  return function;
}

absl::StatusOr<CudaPointer> Gpu::Allocate(size_t bytes) {
  CudaPointer pointer = 0;
  RETURN_IF_CUDA_ERROR(cuda_, MemAlloc(&pointer, std::max<size_t>(bytes, 1)));
  allocations_.push_back(pointer);
  return pointer;
}

void Gpu::FreeAll() {
  for (CudaPointer pointer : allocations_) cuda_.MemFree(pointer);
  allocations_.clear();
}

absl::StatusOr<void*> Gpu::AllocatePinned(size_t bytes) {
  void* pointer = nullptr;
  RETURN_IF_CUDA_ERROR(cuda_, MemHostAlloc(&pointer, bytes, kCudaHostPortable));
  pinned_.push_back(pointer);
  return pointer;
}

absl::Status Gpu::Wait() {
  RETURN_IF_CUDA_ERROR(cuda_, StreamSynchronize(stream_));
  return InTime();
}

absl::Status Gpu::InTime() const {
  if (std::chrono::steady_clock::now() < end_) return absl::OkStatus();
  return absl::DeadlineExceededError("its time is over");
}

absl::StatusOr<CudaGraphExec> Gpu::Record(absl::FunctionRef<absl::Status(CudaGraph)> add) const {
  CudaGraph graph = nullptr;
  RETURN_IF_CUDA_ERROR(cuda_, GraphCreate(&graph, 0));
  absl::Cleanup destroy = [&] { cuda_.GraphDestroy(graph); };
  RETURN_IF_ERROR(add(graph));
  CudaGraphExec exec = nullptr;
  RETURN_IF_CUDA_ERROR(cuda_, GraphInstantiate(&exec, graph, 0));
  return exec;
}

absl::Status Gpu::Fill(CudaPointer to, unsigned char value, size_t bytes) {
  RETURN_IF_CUDA_ERROR(cuda_, FillBytes(to, value, bytes, stream_));
  return Wait();
}

absl::StatusOr<double> Gpu::OnceMs(absl::FunctionRef<absl::Status()> work) {
  RETURN_IF_CUDA_ERROR(cuda_, EventRecord(begin_event_, stream_));
  RETURN_IF_ERROR(work());
  RETURN_IF_CUDA_ERROR(cuda_, EventRecord(end_event_, stream_));
  RETURN_IF_CUDA_ERROR(cuda_, EventSynchronize(end_event_));
  float ms = 0;
  RETURN_IF_CUDA_ERROR(cuda_, EventElapsedTime(&ms, begin_event_, end_event_));
  RETURN_IF_ERROR(InTime());
  return ms;
}

absl::Status Gpu::WarmUp(absl::FunctionRef<absl::Status()> work) {
  const auto end = std::chrono::steady_clock::now() + kWarmUp;
  do {
    RETURN_IF_ERROR(work());
    RETURN_IF_ERROR(Wait());
  } while (std::chrono::steady_clock::now() < end);
  return absl::OkStatus();
}

absl::StatusOr<Timing> Gpu::Time(int samples, int units, absl::FunctionRef<absl::Status()> work) {
  RETURN_IF_ERROR(WarmUp(work));
  Timing timing;
  while (timing.rounds < kMostRounds) {
    ++timing.rounds;
    std::vector<double> ms;
    ASSIGN_OR_RETURN(timing.ghz_before, Gigahertz());
    for (int i = 0; i < samples; ++i) {
      ASSIGN_OR_RETURN(double once, OnceMs(work));
      ms.push_back(once / units);
    }
    ASSIGN_OR_RETURN(timing.ghz_after, Gigahertz());
    timing.ms = MedianOf(std::move(ms));
    if (timing.ghz_before > 0) {
      timing.largest_change =
          std::max(timing.largest_change, std::fabs(timing.ghz_after / timing.ghz_before - 1));
    }
    if (timing.Steady()) break;
  }
  return timing;
}

absl::StatusOr<double> Gpu::Gigahertz() {
  ASSIGN_OR_RETURN(CudaFunction spin, Kernel("probes.cu", "spin"));
  // Long against the ticks of the device's clock, of up to a microsecond.
  RETURN_IF_ERROR(Launch(spin, {}, uint64_t{400'000}, clock_));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> took, Download<uint64_t>(clock_, 2));
  return took[1] == 0 ? 0.0 : static_cast<double>(took[0]) / static_cast<double>(took[1]);
}

}  // namespace athanor
