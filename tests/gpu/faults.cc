// Starts new processes, and kernels that fault or hang, and looks at what is left to their own
// process and to others.
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

std::string Named(const CudaDriver& cuda, CudaResult result) {
  const char* name = nullptr;
  cuda.GetErrorName(result, &name);
  return absl::StrCat(name ? name : "", " (", result, ")");
}

// Launches a kernel that adds to a word, and checks the word.
absl::Status AppendOnce(Gpu& gpu, CudaFunction append, CudaPointer word) {
  RETURN_IF_ERROR(gpu.Fill(word, 0, 4));
  RETURN_IF_ERROR(gpu.Launch(append, {1, 1}, word, 2u));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> value, gpu.Download<uint32_t>(word, 1));
  if (value[0] == 1) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a kernel left ", value[0], " instead of 1"));
}

absl::StatusOr<Json> FirstLaunch(const std::string& nvrtc) {
  const auto begin = Clock::now();
  ASSIGN_OR_RETURN(const CudaDriver* cuda, CudaDriver::Load());
  RETURN_IF_CUDA_ERROR(*cuda, Init(0));
  const double init = MsSince(begin);
  const auto opening = Clock::now();
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
  const double context = MsSince(opening);
  const auto compiling = Clock::now();
  ASSIGN_OR_RETURN(const std::string code, gpu->MachineCode("probes.cu"));
  const double compile = MsSince(compiling);
  const auto launching = Clock::now();
  CudaModule module = nullptr;
  CudaFunction append = nullptr;
  RETURN_IF_CUDA_ERROR(*cuda, ModuleLoadData(&module, code.data()));
  RETURN_IF_CUDA_ERROR(*cuda, ModuleGetFunction(&append, module, "append"));
  ASSIGN_OR_RETURN(const CudaPointer word, gpu->Allocate(4));
  RETURN_IF_ERROR(AppendOnce(*gpu, append, word));
  return Json{{"init_ms", init},
              {"context_ms", context},
              {"compile_ms", compile},
              {"first_launch_ms", MsSince(launching)},
              {"without_compiling_ms", MsSince(begin) - compile}};
}

// Lets `fault` lose the context, and tries what a process could do then.
absl::StatusOr<Json> Fault(const std::string& nvrtc,
                           absl::FunctionRef<absl::Status(Gpu&, CudaPointer)> fault) {
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
  const CudaDriver& cuda = gpu->cuda();
  ASSIGN_OR_RETURN(const CudaFunction append, gpu->Kernel("probes.cu", "append"));
  ASSIGN_OR_RETURN(CudaPointer word, gpu->Allocate(4));
  RETURN_IF_ERROR(AppendOnce(*gpu, append, word));
  RETURN_IF_ERROR(fault(*gpu, word));
  const CudaResult first = cuda.StreamSynchronize(gpu->stream());

  CudaPointer other = 0;
  uint32_t value = 0, factor = 2;
  size_t free = 0, total = 0;
  void* arguments[] = {&word, &factor};
  struct Later {
    const char* name;
    std::function<CudaResult()> call;
  };
  const Later calls[] = {
      {"launch",
       [&] {
         return cuda.LaunchKernel(append, 1, 1, 1, 1, 1, 1, 0, gpu->stream(), arguments, nullptr);
       }},
      {"synchronise", [&] { return cuda.StreamSynchronize(gpu->stream()); }},
      {"copy", [&] { return cuda.CopyToHost(&value, word, 4, gpu->stream()); }},
      {"allocate", [&] { return cuda.MemAlloc(&other, 4096); }},
      {"free", [&] { return cuda.MemFree(word); }},
      {"ask", [&] { return cuda.MemGetInfo(&free, &total); }},
  };
  Json later;
  int failing = 0;
  for (const Later& one : calls) {
    const CudaResult result = one.call();
    later[one.name] = Named(cuda, result);
    failing += result != kCudaSuccess;
  }
  Json found = {{"first", Named(cuda, first)},
                {"first_is_sticky", IsStickyError(first)},
                {"later", std::move(later)},
                {"failing_share", failing / static_cast<double>(std::size(calls))}};
  const CudaResult reset = cuda.PrimaryCtxReset(gpu->device());
  gpu.release();  // its handles belong to a context that is gone
  absl::StatusOr<std::unique_ptr<Gpu>> again = Gpu::Open(nvrtc);
  absl::Status works = again.status();
  if (works.ok()) {
    absl::StatusOr<CudaFunction> kernel = (*again)->Kernel("probes.cu", "append");
    absl::StatusOr<CudaPointer> place = (*again)->Allocate(4);
    works = !kernel.ok() ? kernel.status() : place.status();
    if (works.ok()) works = AppendOnce(**again, *kernel, *place);
  }
  found["reset"] = Named(cuda, reset);
  found["after_reset"] = works.ToString();
  found["reset_helps"] = works.ok();
  return found;
}

int Shown(const absl::StatusOr<Json>& found) {
  return PrintFindings(found.status(), found.ok() ? *found : Json::object());
}

// Reports whether standard input has ended after waiting for it `ms`.
bool InputEnded(int ms) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, ms) > 0;  // nobody writes to it
}

// Launches every 2 ms until input ends, and once after that.
absl::StatusOr<Json> Stay(const std::string& nvrtc) {
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
  ASSIGN_OR_RETURN(const CudaFunction append, gpu->Kernel("probes.cu", "append"));
  ASSIGN_OR_RETURN(const CudaPointer word, gpu->Allocate(4));
  double longest = 0;
  int launches = 0;
  for (bool last = false; !last; ++launches) {
    last = launches > 0 && InputEnded(2);
    const auto begin = Clock::now();
    RETURN_IF_ERROR(AppendOnce(*gpu, append, word));
    longest = std::max(longest, MsSince(begin));
    if (launches == 0) PrintObject({{"ready", true}});
  }
  return Json{{"launches", launches}, {"longest_ms", longest}};
}

absl::Status Unexpected(const Child& child, absl::string_view task) {
  const Json printed = Printed(child);
  return absl::InternalError(absl::StrCat("the process \"", task, "\" ended by ", child.End(),
                                          " and printed ", printed.dump()));
}

// Returns an error unless the child lost its context as it should.
absl::Status CheckFault(const Child& child, absl::string_view task) {
  const Json printed = Printed(child);
  if (child.exit == 0 && printed.is_object() && printed.value("first_is_sticky", false))
    return absl::OkStatus();
  return Unexpected(child, task);
}

// Times first launches of new processes, `samples` of them.
absl::StatusOr<Median> FirstLaunches(const PartRun& run, int samples, Json* last) {
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) {
    const Child child = run.RunTask("works", 20);
    RETURN_IF_ERROR(run.InTime());
    if (child.exit != 0) return Unexpected(child, "works");
    *last = Printed(child);
    times.push_back((*last)["without_compiling_ms"]);
    (*last)["whole_process_ms"] = child.seconds * 1e3;
  }
  return MedianOf(std::move(times));
}

}  // namespace

int ChildWorks(const std::string& nvrtc) { return Shown(FirstLaunch(nvrtc)); }

int ChildFaults(const std::string& nvrtc) {
  return Shown(Fault(nvrtc, [](Gpu& gpu, CudaPointer word) -> absl::Status {
    ASSIGN_OR_RETURN(const CudaFunction write, gpu.Kernel("probes.cu", "write_word"));
    return gpu.Launch(write, {1, 1}, word + (uint64_t{1} << 40), 1u);  // nothing is mapped there
  }));
}

int ChildTraps(const std::string& nvrtc) {
  return Shown(Fault(nvrtc, [](Gpu& gpu, CudaPointer) -> absl::Status {
    ASSIGN_OR_RETURN(const CudaFunction trap, gpu.Kernel("probes.cu", "trap"));
    return gpu.Launch(trap, {1, 1});
  }));
}

int ChildHangs(const std::string& nvrtc) {
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
    ASSIGN_OR_RETURN(const CudaFunction hang, gpu->Kernel("probes.cu", "hang"));
    // Ends by itself in the end, should nothing else end it.
    RETURN_IF_ERROR(gpu->Launch(hang, {1, 1}, uint64_t{20'000'000'000}));
    PrintObject({{"hanging", true}});
    return gpu->Wait();
  }();
  return PrintFindings(status, Json::object());
}

int ChildStays(const std::string& nvrtc) { return Shown(Stay(nvrtc)); }

int ChildHolds(const std::string& nvrtc) {
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
    PrintObject({{"holding", true}});
    InputEnded(-1);
    return absl::OkStatus();
  }();
  return PrintFindings(status, Json::object());
}

absl::Status RunRespawn(PartRun& run) {
  Json last;
  ASSIGN_OR_RETURN(const Median alone, FirstLaunches(run, 5, &last));
  // Beside a process that holds the device, as the server does.
  const std::unique_ptr<RunningChild> holder = run.StartTask("holds");
  const bool holds = holder->WaitForOutput(run.Left(20));
  RETURN_IF_ERROR(run.InTime());
  if (!holds) return Unexpected(holder->Finish(1), "holds");
  ASSIGN_OR_RETURN(const Median beside, FirstLaunches(run, 5, &last));
  const Child held = holder->Finish(run.Left(10));
  RETURN_IF_ERROR(run.InTime());
  if (held.exit != 0) return Unexpected(held, "holds");
  last["device_held_by_none_ms"] = Spread(alone);
  run.report().Answer("respawn.first_launch_ms", beside, std::move(last));

  const Child fault = run.RunTask("faults", 20);
  RETURN_IF_ERROR(run.InTime());
  RETURN_IF_ERROR(CheckFault(fault, "faults"));
  const Child after_fault = run.RunTask("works", 20);
  RETURN_IF_ERROR(run.InTime());
  run.report().Answer("respawn.after_fault", after_fault.exit == 0,
                      {{"fault", Printed(fault)}, {"after", Printed(after_fault)}});

  const Child hang = run.RunTask("hangs", 20, /*after_output_seconds=*/1);
  RETURN_IF_ERROR(run.InTime());
  if (!hang.timed_out || Printed(hang).is_null()) return Unexpected(hang, "hangs");
  const Child after_hang = run.RunTask("works", 30);
  RETURN_IF_ERROR(run.InTime());
  run.report().Answer("respawn.kill_ms", hang.kill_seconds * 1e3, {{"end", hang.End()}});
  run.report().Answer("respawn.after_hang", after_hang.exit == 0,
                      {{"seconds", after_hang.seconds}, {"after", Printed(after_hang)}});
  return absl::OkStatus();
}

absl::Status RunSticky(PartRun& run) {
  const std::unique_ptr<RunningChild> neighbour = run.StartTask("stays");
  if (!neighbour->WaitForOutput(run.Left(20))) return Unexpected(neighbour->Finish(1), "stays");
  const Child fault = run.RunTask("faults", 20), trap = run.RunTask("traps", 20);
  const Child stayed = neighbour->Finish(run.Left(10));
  RETURN_IF_ERROR(run.InTime());
  struct Lost {
    const char *task, *share, *reset;
    const Child* child;
  };
  const Lost both[] = {{"faults", "sticky.fault_share", "sticky.fault_reset", &fault},
                       {"traps", "sticky.trap_share", "sticky.trap_reset", &trap}};
  for (const Lost& one : both) RETURN_IF_ERROR(CheckFault(*one.child, one.task));
  run.report().Answer("sticky.neighbour", stayed.exit == 0,
                      {{"end", stayed.End()}, {"printed", Printed(stayed)}});
  for (const Lost& one : both) {
    const Json printed = Printed(*one.child);
    run.report().Answer(one.share, printed.value("failing_share", 0.0), printed);
    run.report().Answer(one.reset, printed.value("reset_helps", false));
  }
  return absl::OkStatus();
}

}  // namespace athanor
