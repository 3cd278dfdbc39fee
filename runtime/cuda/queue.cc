#include "runtime/cuda/queue.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int64_t kWaveThreads = 32;

class CudaKernel : public DeviceKernel {
 public:
  CudaKernel(const CudaDevice& device, CudaModule module) : device_(device), module_(module) {}
  ~CudaKernel() override {
    if (device_.Enter().ok()) {
      device_.Check(device_.driver().ModuleUnload(module_), "cuModuleUnload").IgnoreError();
    }
  }
  absl::Status FindFunction() {
    RETURN_IF_ERROR(
        device_.Check(device_.driver().ModuleGetFunction(&function_, module_, kCudaKernelSymbol),
                      absl::StrCat("cuModuleGetFunction of '", kCudaKernelSymbol, "'")));
    ASSIGN_OR_RETURN(resident_threads_, device_.ResidentThreads(function_, kCudaBlockThreads));
    return absl::OkStatus();
  }
  CudaFunction function() const { return function_; }
  int64_t resident_threads() const { return resident_threads_; }

 private:
  const CudaDevice& device_;
  const CudaModule module_;
  CudaFunction function_ = nullptr;
  int64_t resident_threads_ = 0;
};

// A graph of kernels and library calls, each of which waits for the one before it; if it keeps
// times, between two events.
class CudaRecording : public DeviceRecording {
 public:
  CudaRecording(const CudaDevice& device, bool timed)
      : device_(device), cuda_(device.driver()), timed_(timed) {}
  ~CudaRecording() override {
    if (!device_.Enter().ok()) return;
    if (graph_ != nullptr) cuda_.GraphDestroy(graph_);
    if (exec_ != nullptr) cuda_.GraphExecDestroy(exec_);
    for (const CudaEvent event : {begin_, end_}) {
      if (event != nullptr) cuda_.EventDestroy(event);
    }
  }

  absl::Status Start() {
    RETURN_IF_ERROR(device_.Check(cuda_.GraphCreate(&graph_, 0), "cuGraphCreate"));
    return timed_ ? AddEvent(&begin_) : absl::OkStatus();
  }
  absl::Status Add(CudaFunction function, CudaGeometry geometry, const void* arguments) {
    CudaPointer address = AddressOnDevice(arguments);
    void* pointers[] = {&address};
    const CudaKernelNode kernel = {.function = function,
                                   .grid_x = geometry.blocks,
                                   .block_x = geometry.threads,
                                   .arguments = pointers};
    const CudaGraphNode before = last_;
    return device_.Check(
        cuda_.GraphAddKernel(&last_, graph_, &before, before != nullptr ? 1 : 0, &kernel),
        "cuGraphAddKernelNode");
  }
  // Adds what the library enqueues for a call, as a graph of its own.
  absl::Status Add(const CudaLibrary& library, const RecordedLaunch& launch, CudaStream stream) {
    // The library may load code at its first call, which stricter captures forbid.
    RETURN_IF_ERROR(device_.Check(cuda_.StreamBeginCapture(stream, kCudaCaptureRelaxed),
                                  "cuStreamBeginCapture"));
    const absl::Status enqueued = library.Enqueue(*launch.call, launch.call_buffers, stream);
    CudaGraph child = nullptr;
    // Ends the capture after an error, too.
    const absl::Status ended =
        device_.Check(cuda_.StreamEndCapture(stream, &child), "cuStreamEndCapture");
    absl::Status status = enqueued.ok() ? ended : enqueued;
    const CudaGraphNode before = last_;
    if (status.ok()) {
      status = device_.Check(
          cuda_.GraphAddChild(&last_, graph_, &before, before != nullptr ? 1 : 0, child),
          "cuGraphAddChildGraphNode");
    }
    if (child != nullptr) cuda_.GraphDestroy(child);
    return status;
  }
  // Makes it ready, so that the first replay takes no longer than the others.
  absl::Status Finish(CudaStream stream) {
    if (timed_) RETURN_IF_ERROR(AddEvent(&end_));
    RETURN_IF_ERROR(
        device_.Check(cuda_.GraphInstantiate(&exec_, graph_, 0), "cuGraphInstantiateWithFlags"));
    const CudaGraph graph = std::exchange(graph_, nullptr);
    RETURN_IF_ERROR(device_.Check(cuda_.GraphDestroy(graph), "cuGraphDestroy"));
    return device_.Check(cuda_.GraphUpload(exec_, stream), "cuGraphUpload");
  }
  absl::Status Replay(CudaStream stream) const {
    return device_.Check(cuda_.GraphLaunch(exec_, stream), "cuGraphLaunch");
  }
  absl::StatusOr<std::optional<double>> Seconds() const override {
    if (!timed_) return std::nullopt;
    RETURN_IF_ERROR(device_.Enter());
    float ms = 0;
    RETURN_IF_ERROR(device_.Check(cuda_.EventElapsedTime(&ms, begin_, end_), "cuEventElapsedTime"));
    return 1e-3 * ms;
  }

 private:
  absl::Status AddEvent(CudaEvent* event) {
    RETURN_IF_ERROR(device_.Check(cuda_.EventCreate(event, 0), "cuEventCreate"));
    const CudaGraphNode before = last_;
    return device_.Check(
        cuda_.GraphAddEvent(&last_, graph_, &before, before != nullptr ? 1 : 0, *event),
        "cuGraphAddEventRecordNode");
  }

  const CudaDevice& device_;
  const CudaDriver& cuda_;
  const bool timed_;
  CudaEvent begin_ = nullptr, end_ = nullptr;
  CudaGraph graph_ = nullptr;
  CudaGraphNode last_ = nullptr;
  CudaGraphExec exec_ = nullptr;
};

class CudaQueue : public DeviceQueue {
 public:
  CudaQueue(const CudaDevice& device, std::unique_ptr<DeviceMemory> workspace, int64_t stride)
      : device_(device),
        cuda_(device.driver()),
        workspace_(std::move(workspace)),
        stride_(stride),
        teams_(device.Teams(stride)) {}

  ~CudaQueue() override {
    // Waits for launches that still use the workspace.
    if (stream_ != nullptr) Wait().IgnoreError();
    if (!device_.Enter().ok()) return;
    if (stream_ != nullptr) cuda_.StreamDestroy(stream_);
  }

  absl::Status Start() {
    RETURN_IF_ERROR(device_.Enter());
    return device_.Check(cuda_.StreamCreate(&stream_, kCudaStreamNonBlocking), "cuStreamCreate");
  }

  absl::StatusOr<std::unique_ptr<DeviceRecording>> Record(
      absl::Span<const RecordedLaunch> launches) override {
    RETURN_IF_ERROR(device_.Enter());
    auto recording = std::make_unique<CudaRecording>(device_, timed_);
    RETURN_IF_ERROR(recording->Start());
    for (const RecordedLaunch& launch : launches) {
      if (launch.call != nullptr) {
        ASSIGN_OR_RETURN(const CudaLibrary* const library, device_.library());
        const absl::Status added = recording->Add(*library, launch, stream_);
        if (added.ok()) continue;
        return absl::Status(added.code(),
                            absl::StrCat("step '", launch.label, "': ", added.message()));
      }
      const auto& kernel = static_cast<const CudaKernel&>(*launch.kernel);
      RETURN_IF_ERROR(
          recording->Add(kernel.function(), Geometry(kernel, launch), launch.arguments));
    }
    RETURN_IF_ERROR(recording->Finish(stream_));
    return recording;
  }

  void TimeRecordings() override { timed_ = true; }

  absl::Status Replay(const DeviceRecording& recording) override {
    RETURN_IF_ERROR(device_.Enter());
    return static_cast<const CudaRecording&>(recording).Replay(stream_);
  }

  Workspace workspace() const override {
    return {workspace_ != nullptr ? workspace_->data() : nullptr, stride_};
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
    RETURN_IF_ERROR(device_.Enter());
    if (bytes == 0) return absl::OkStatus();
    switch (kind) {
      case CopyKind::kToDevice:
        return device_.Check(cuda_.CopyToDevice(AddressOnDevice(to), from, bytes, stream_),
                             "cuMemcpyHtoDAsync");
      case CopyKind::kToHost:
        return device_.Check(cuda_.CopyToHost(to, AddressOnDevice(from), bytes, stream_),
                             "cuMemcpyDtoHAsync");
      case CopyKind::kOnDevice:
        break;
    }
    return device_.Check(
        cuda_.CopyOnDevice(AddressOnDevice(to), AddressOnDevice(from), bytes, stream_),
        "cuMemcpyDtoDAsync");
  }

  absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
    RETURN_IF_ERROR(device_.Enter());
    if (bytes == 0) return absl::OkStatus();
    return device_.Check(cuda_.FillBytes(AddressOnDevice(to), byte, bytes, stream_),
                         "cuMemsetD8Async");
  }

  absl::Status Wait() override {
    const absl::Status status = device_.Enter();
    // Waits after an error, too.
    const absl::Status waited =
        device_.Check(cuda_.StreamSynchronize(stream_), "cuStreamSynchronize");
    return status.ok() ? waited : status;
  }

 private:
  CudaGeometry Geometry(const CudaKernel& kernel, const RecordedLaunch& launch) const {
    if (launch.one_thread) return {1, static_cast<unsigned>(launch.team)};
    return GeometryOf(launch.most_items, launch.team, teams_, kernel.resident_threads(),
                      device_.properties().multiprocessors);
  }

  const CudaDevice& device_;
  const CudaDriver& cuda_;
  const std::unique_ptr<DeviceMemory> workspace_;  // null: no kernel needs scratch
  const int64_t stride_;
  const int64_t teams_;
  bool timed_ = false;
  CudaStream stream_ = nullptr;
};

}  // namespace

CudaGeometry GeometryOf(int64_t grid, int team, int64_t most_teams, int64_t most_threads,
                        int64_t multiprocessors) {
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // Each team that is launched has its workspace.
  const int64_t most = std::max<int64_t>(std::min(most_teams, most_threads / team), 1);
  const int64_t teams = std::min(grid, most);
  const int64_t share = ceil(teams, std::max<int64_t>(multiprocessors, 1));
  const int64_t waves = ceil(share * team, kWaveThreads);
  // Whole waves are whole teams.
  const int64_t threads = std::min({waves * kWaveThreads, int64_t{kCudaBlockThreads}, most * team});
  const int64_t in_block = threads / team;
  const int64_t blocks = std::min(ceil(teams, in_block), most / in_block);
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(threads)};
}

absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadCudaKernel(const CudaDevice& device,
                                                             absl::string_view cubin) {
  CudaModule module = nullptr;
  // The driver reads headers where they lie, at multiples of 8 bytes.
  std::vector<uint64_t> aligned((cubin.size() + 7) / 8);
  std::memcpy(aligned.data(), cubin.data(), cubin.size());
  RETURN_IF_ERROR(
      device.Check(device.driver().ModuleLoadData(&module, aligned.data()), "cuModuleLoadData"));
  auto kernel = std::make_unique<CudaKernel>(device, module);
  RETURN_IF_ERROR(kernel->FindFunction());
  return kernel;
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(const CudaDevice& device,
                                                          std::unique_ptr<DeviceMemory> workspace,
                                                          int64_t stride) {
  auto queue = std::make_unique<CudaQueue>(device, std::move(workspace), stride);
  RETURN_IF_ERROR(queue->Start());
  return queue;
}

}  // namespace athanor
