// New processes, and what kernels that fault or hang leave to their own and to others.
#include <chrono>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

int Print(const Json& object) {
  PrintObject(object);
  return 0;
}
int PrintError(const absl::Status& status) {
  Print({{"error", status.ToString()}});
  return 1;
}

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
  return found.ok() ? Print(*found) : PrintError(found.status());
}

absl::Status Stay(const std::string& nvrtc, Json* found) {
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::Open(nvrtc));
  ASSIGN_OR_RETURN(const CudaFunction append, gpu->Kernel("probes.cu", "append"));
  ASSIGN_OR_RETURN(const CudaPointer word, gpu->Allocate(4));
  const auto begin = Clock::now();
  double longest = 0;
  int launches = 0;
  while (MsSince(begin) < 8000) {
    const auto one = Clock::now();
    RETURN_IF_ERROR(AppendOnce(*gpu, append, word));
    longest = std::max(longest, MsSince(one));
    ++launches;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  *found = {{"launches", launches}, {"longest_ms", longest}};
  return absl::OkStatus();
}

absl::Status Wrong(const Child& child, absl::string_view task) {
  const Json printed = Printed(child);
  return absl::InternalError(absl::StrCat("the process \"", task, "\" ended by ", child.End(),
                                          " and printed ", printed.dump()));
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
    Print({{"hanging", true}});
    return gpu->Wait();
  }();
  return status.ok() ? 0 : PrintError(status);
}

int ChildStays(const std::string& nvrtc) {
  Json found;
  const absl::Status status = Stay(nvrtc, &found);
  return status.ok() ? Print(found) : PrintError(status);
}

absl::Status RunRespawn(PartRun& run) {
  std::vector<double> times, inits, contexts;
  Json last;
  for (int i = 0; i < 7; ++i) {
    const Child child = run.RunTask("works", 20);
    const Json printed = Printed(child);
    if (child.exit != 0) return Wrong(child, "works");
    times.push_back(printed["without_compiling_ms"]);
    last = printed;
    last["whole_process_ms"] = child.seconds * 1e3;
  }
  run.report().Answer("respawn.first_launch_ms", MedianOf(times), std::move(last));

  const Child fault = run.RunTask("faults", 20);
  const Child after_fault = run.RunTask("works", 20);
  run.report().Answer("respawn.after_fault", after_fault.exit == 0,
                      {{"fault", fault.End()}, {"after", Printed(after_fault)}});

  const Child hang = run.RunTask("hangs", 20, /*after_output=*/1);
  if (!hang.timed_out || Printed(hang).is_null()) return Wrong(hang, "hangs");
  const Child after_hang = run.RunTask("works", 30);
  run.report().Answer("respawn.kill_ms", hang.kill_seconds * 1e3, {{"end", hang.End()}});
  run.report().Answer("respawn.after_hang", after_hang.exit == 0,
                      {{"seconds", after_hang.seconds}, {"after", Printed(after_hang)}});
  return absl::OkStatus();
}

absl::Status RunSticky(PartRun& run) {
  Child neighbour;
  std::thread beside([&] { neighbour = run.RunTask("stays", 30); });
  // Until the neighbour launches.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  const Child fault = run.RunTask("faults", 20), trap = run.RunTask("traps", 20);
  beside.join();
  run.report().Answer("sticky.neighbour", neighbour.exit == 0, Printed(neighbour));
  double helps = 0;
  for (const auto& [question, child] :
       {std::pair{"sticky.fault_share", &fault}, std::pair{"sticky.trap_share", &trap}}) {
    const Json printed = Printed(*child);
    if (child->exit != 0) return Wrong(*child, question);
    run.report().Answer(question, printed.value("failing_share", 0.0), printed);
    helps += printed.value("reset_helps", false) ? 0.5 : 0;
  }
  run.report().Answer("sticky.reset_helps", helps);
  return absl::OkStatus();
}

}  // namespace athanor
