// Runs the driver in a process that is confined as the tuner's is, and counts the system calls that
// it makes at each step.
#include <sys/prctl.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/sandbox/allowed_calls.h"
#include "tests/gpu/call_watch.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

absl::Status Confine() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return absl::InternalError("prctl(PR_SET_NO_NEW_PRIVS) fails");
  }
  return FilterTunerCalls();
}

// Does what a request does on a plan that is loaded: copies, launches, replays, waits.
class Steady {
 public:
  static absl::StatusOr<std::unique_ptr<Steady>> Make(Gpu* gpu) {
    std::unique_ptr<Steady> made(new Steady(gpu));
    Steady& steady = *made;
    ASSIGN_OR_RETURN(steady.append_, gpu->Kernel("probes.cu", "append"));
    ASSIGN_OR_RETURN(steady.word_, gpu->Allocate(kBytes));
    ASSIGN_OR_RETURN(void* const host, gpu->AllocatePinned(kBytes));
    steady.host_ = static_cast<uint32_t*>(host);
    const CudaDriver& cuda = gpu->cuda();
    RETURN_IF_CUDA_ERROR(cuda, EventCreate(&steady.done_, kCudaEventDisableTiming));
    CudaGraphNode node = nullptr;
    uint32_t factor = 2;
    void* arguments[] = {&steady.word_, &factor};
    const CudaKernelNode kernel = {.function = steady.append_, .arguments = arguments};
    const auto add = [&](CudaGraph graph) -> absl::Status {
      RETURN_IF_CUDA_ERROR(cuda, GraphAddKernel(&node, graph, nullptr, 0, &kernel));
      return absl::OkStatus();
    };
    ASSIGN_OR_RETURN(steady.replay_, gpu->Record(add));
    return made;
  }
  ~Steady() {
    if (replay_ != nullptr) gpu_->cuda().GraphExecDestroy(replay_);
    if (done_ != nullptr) gpu_->cuda().EventDestroy(done_);
  }
  Steady(const Steady&) = delete;
  Steady& operator=(const Steady&) = delete;

  absl::Status Once() const {
    const CudaDriver& cuda = gpu_->cuda();
    host_[0] = 5;
    RETURN_IF_CUDA_ERROR(cuda, CopyToDevice(word_, host_, kBytes, gpu_->stream()));
    RETURN_IF_ERROR(gpu_->Launch(append_, {1, 1}, word_, 2u));
    RETURN_IF_CUDA_ERROR(cuda, GraphLaunch(replay_, gpu_->stream()));
    RETURN_IF_CUDA_ERROR(cuda, CopyToHost(host_, word_, kBytes, gpu_->stream()));
    RETURN_IF_CUDA_ERROR(cuda, EventRecord(done_, gpu_->stream()));
    RETURN_IF_CUDA_ERROR(cuda, EventSynchronize(done_));
    RETURN_IF_ERROR(gpu_->Wait());
    if (host_[0] == 23) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("two kernels made ", host_[0], " of 5, not 23"));
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 20;

  explicit Steady(Gpu* gpu) : gpu_(gpu) {}

  Gpu* gpu_;
  CudaFunction append_ = nullptr;
  CudaPointer word_ = 0;
  uint32_t* host_ = nullptr;
  CudaEvent done_ = nullptr;
  CudaGraphExec replay_ = nullptr;
};

absl::Status StartConfined(const std::string& nvrtc) {
  // Libraries are there already, as in a process that was made ready for it.
  RETURN_IF_ERROR(CudaDriver::Load().status());
  (void)Nvrtc::Load(nvrtc);  // without it there is machine code
  RETURN_IF_ERROR(Confine());
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
  ASSIGN_OR_RETURN(const std::unique_ptr<Steady> steady, Steady::Make(gpu.get()));
  return steady->Once();
}

absl::Status ConfineLater(const std::string& nvrtc, Json* found) {
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
  ASSIGN_OR_RETURN(const std::unique_ptr<Steady> steady, Steady::Make(gpu.get()));
  RETURN_IF_ERROR(steady->Once());
  RETURN_IF_ERROR(Confine());
  for (int i = 0; i < 1000; ++i) RETURN_IF_ERROR(steady->Once());
  (*found)["steady"] = true;
  PrintObject(*found);  // what follows may end the process
  (*found)["allocate"] = gpu->Allocate(size_t{64} << 20).status().ToString();
  (*found)["load"] = gpu->Kernel("floors.cu", "read_all").status().ToString();
  return absl::OkStatus();
}

Json Calls(CallWatch& watch) {
  Json calls = Json::object();
  for (const auto& [number, count] : watch.Take()) calls[std::to_string(number)] = count;
  return calls;
}

absl::Status Watched(const std::string& nvrtc, Json* found) {
  // The watch has to outlive the process's last call.
  ASSIGN_OR_RETURN(std::unique_ptr<CallWatch> started, CallWatch::Start());
  CallWatch& watch = *started.release();
  (void)Nvrtc::Load(nvrtc);  // its calls are not the driver's
  watch.Take();
  ASSIGN_OR_RETURN(const CudaDriver* cuda, CudaDriver::Load());
  (*found)["load library"] = Calls(watch);
  RETURN_IF_CUDA_ERROR(*cuda, Init(0));
  (*found)["initialise"] = Calls(watch);
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
  (*found)["open context"] = Calls(watch);
  ASSIGN_OR_RETURN(const std::unique_ptr<Steady> steady, Steady::Make(gpu.get()));
  (*found)["compile, load, allocate, instantiate"] = Calls(watch);
  RETURN_IF_ERROR(steady->Once());
  (*found)["first use"] = Calls(watch);
  int64_t all = 0;
  for (int i = 0; i < 1000; ++i) RETURN_IF_ERROR(steady->Once());
  for (const auto& [number, count] : watch.Take()) {
    (*found)["thousand uses"][std::to_string(number)] = count;
    all += count;
  }
  (*found)["steady_calls"] = static_cast<double>(all) / 1000;
  RETURN_IF_ERROR(gpu->Allocate(size_t{64} << 20).status());
  (*found)["allocate 64 MiB"] = Calls(watch);
  return absl::OkStatus();
}

}  // namespace

int ChildFilteredFirst(const std::string& nvrtc) {
  return PrintFindings(StartConfined(nvrtc), Json::object());
}

int ChildFilteredLater(const std::string& nvrtc) {
  Json found;
  const absl::Status status = ConfineLater(nvrtc, &found);
  return PrintFindings(status, std::move(found));
}

int ChildWatched(const std::string& nvrtc) {
  Json found;
  const absl::Status status = Watched(nvrtc, &found);
  return PrintFindings(status, std::move(found));
}

absl::Status RunFilter(PartRun& run) {
  GpuReport& report = run.report();
  const Child first = run.RunTask("filtered-first", 12);
  RETURN_IF_ERROR(run.InTime());
  report.Answer("filter.first", first.exit == 0,
                {{"end", first.End()}, {"printed", Printed(first)}});
  const Child later = run.RunTask("filtered-later", 12);
  RETURN_IF_ERROR(run.InTime());
  const Json printed = Printed(later);
  report.Answer("filter.later", printed.is_object() && printed.contains("steady"),
                {{"end", later.End()}, {"printed", printed}});
  const Child watched = run.RunTask("watched", 14);
  RETURN_IF_ERROR(run.InTime());
  const Json calls = Printed(watched);
  if (watched.exit != 0 || !calls.is_object()) {
    report.Failed("filter.steady_calls", absl::StrCat(watched.End(), ": ", calls.dump()));
    return absl::OkStatus();
  }
  report.Answer("filter.steady_calls", calls.value("steady_calls", 0.0), {{"by_step", calls}});
  return absl::OkStatus();
}

}  // namespace athanor
