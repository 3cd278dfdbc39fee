// The parts of a run: each answers questions of expect.json, in a process of its own.
#ifndef ATHANOR_TESTS_GPU_PARTS_H_
#define ATHANOR_TESTS_GPU_PARTS_H_

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/process.h"
#include "tests/gpu/report.h"

namespace athanor {

// What a part works with. A part that never asks for gpu() opens no context in its process.
class PartRun {
 public:
  PartRun(GpuReport report, std::string nvrtc)
      : report_(std::move(report)), nvrtc_(std::move(nvrtc)) {}

  GpuReport& report() { return report_; }
  absl::StatusOr<Gpu*> gpu();
  // Runs a task of ChildTasks().
  Child RunTask(const std::string& name, double seconds,
                double after_output = std::numeric_limits<double>::infinity()) const;

 private:
  GpuReport report_;
  std::string nvrtc_;
  std::unique_ptr<Gpu> gpu_;
};

struct Part {
  absl::string_view name;
  absl::string_view answers;
  double seconds;  // longer than this it is taken to hang
  absl::Status (*run)(PartRun& run);
};
// In the order in which they run: what most decisions wait for comes first.
absl::Span<const Part> Parts();

// What a child of a part does: what would end or hang the part, or what has to start from nothing.
// It prints one object of JSON and returns how to exit.
struct ChildTask {
  absl::string_view name;
  int (*run)(const std::string& nvrtc);
};
absl::Span<const ChildTask> ChildTasks();

// For a child: one line.
void PrintObject(const Json& object);
// A child's object; null if it printed none.
Json Printed(const Child& child);
// Milliseconds from `begin` to now.
double MsSince(std::chrono::steady_clock::time_point begin);
// {"median": ..., "low": ..., "high": ...}
Json Spread(const Median& median);

absl::Status RunEnvironment(PartRun& run);
absl::Status RunFloors(PartRun& run);
absl::Status RunFragments(PartRun& run);
absl::Status RunGraph(PartRun& run);
absl::Status RunReading(PartRun& run);
absl::Status RunCommit(PartRun& run);
absl::Status RunEvents(PartRun& run);
absl::Status RunTensorMap(PartRun& run);
absl::Status RunRounding(PartRun& run);
absl::Status RunSticky(PartRun& run);
absl::Status RunRespawn(PartRun& run);
absl::Status RunFilter(PartRun& run);

int ChildPresent(const std::string& nvrtc);
int ChildWorks(const std::string& nvrtc);
int ChildFaults(const std::string& nvrtc);
int ChildTraps(const std::string& nvrtc);
int ChildHangs(const std::string& nvrtc);
int ChildStays(const std::string& nvrtc);
int ChildFilteredFirst(const std::string& nvrtc);
int ChildFilteredLater(const std::string& nvrtc);
int ChildWatched(const std::string& nvrtc);

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_PARTS_H_
