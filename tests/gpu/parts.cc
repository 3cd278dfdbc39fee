#include "tests/gpu/parts.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr Part kParts[] = {
    {"environment", "which device, driver and compiler this is", 15, RunEnvironment},
    {"fragments", "where matrix instructions keep their elements", 15, RunFragments},
    {"floors", "how fast it copies, multiplies and launches", 40, RunFloors},
    {"graph", "what a node and a replay of a graph cost", 25, RunGraph},
    {"reading", "what reading sizes from memory costs a kernel", 15, RunReading},
    {"rounding", "how matrix instructions round their sums", 25, RunRounding},
    {"library", "whether cuBLASLt multiplies as plans ask, and how fast", 30, RunLibrary},
    {"tensor-map", "where a tile's descriptor may lie", 15, RunTensorMap},
    {"commit", "what mapping memory costs, and whether it is zero", 20, RunCommit},
    {"events", "how steady times by events are", 15, RunEvents},
    {"respawn", "how soon a new process works, also after a fault and a hang", 45, RunRespawn},
    {"sticky", "what a fault leaves behind", 30, RunSticky},
    {"filter", "which system calls the driver needs", 30, RunFilter},
    {"kernels", "whether the golden kernels compute what the reference does", 20, RunKernels},
    {"conformance", "whether plans and kernels of every kind do", 90, RunConformance},
    {"zoo", "whether small models do", 30, RunZoo},
};

constexpr ChildTask kChildTasks[] = {
    {"present", ChildPresent},
    {"works", ChildWorks},
    {"faults", ChildFaults},
    {"traps", ChildTraps},
    {"hangs", ChildHangs},
    {"stays", ChildStays},
    {"holds", ChildHolds},
    {"filtered-first", ChildFilteredFirst},
    {"filtered-later", ChildFilteredLater},
    {"watched", ChildWatched},
};

}  // namespace

absl::Span<const Part> Parts() { return kParts; }
absl::Span<const ChildTask> ChildTasks() { return kChildTasks; }

absl::StatusOr<Gpu*> PartRun::gpu() {
  if (gpu_ == nullptr) {
    ASSIGN_OR_RETURN(gpu_, Gpu::Open(nvrtc_));
    gpu_->EndBy(end_);
  }
  return gpu_.get();
}

double PartRun::Left(double seconds) const {
  return std::clamp(-MsSince(end_) / 1e3, 0.0, seconds);
}

absl::Status PartRun::InTime() const {
  return Left(1) > 0 ? absl::OkStatus() : absl::DeadlineExceededError("its time is over");
}

void PartRun::End(absl::string_view part) {
  if (gpu_ != nullptr && !gpu_->compiler_failure().empty()) {
    report_.Fact(part, "machine code instead of the compiler", {{"why", gpu_->compiler_failure()}});
  }
}

std::vector<std::string> PartRun::Task(const std::string& name) const {
  std::vector<std::string> arguments = {"--child", name};
  if (!nvrtc_.empty()) arguments.insert(arguments.end(), {"--nvrtc", nvrtc_});
  return arguments;
}

Child PartRun::RunTask(const std::string& name, double seconds, double after_output_seconds,
                       const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = Task(name);
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunChild(arguments, Left(seconds), after_output_seconds);
}

std::unique_ptr<RunningChild> PartRun::StartTask(const std::string& name) const {
  return std::make_unique<RunningChild>(Task(name));
}

void PrintObject(const Json& object) {
  std::printf("%s\n", object.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

int PrintFindings(const absl::Status& status, Json found) {
  if (!status.ok()) found["error"] = status.ToString();
  PrintObject(found);
  return status.ok() ? 0 : 1;
}

Json Printed(const Child& child) {
  absl::string_view line = child.output;
  absl::ConsumeSuffix(&line, "\n");
  line = line.substr(line.rfind('\n') + 1);  // of none, the whole
  Json printed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return printed.is_object() ? printed : Json();
}

double MsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

Json Spread(const Median& median) {
  return {{"median", median.value}, {"low", median.low}, {"high", median.high}};
}

}  // namespace athanor
