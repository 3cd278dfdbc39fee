// The parts of a run: each answers questions of expect.json, in a process of its own.
#ifndef ATHANOR_TESTS_GPU_PARTS_H_
#define ATHANOR_TESTS_GPU_PARTS_H_

#include <algorithm>
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

// The longest time for all parts together, unless a run says otherwise, and that for the look for a
// GPU before them.
inline constexpr double kDefaultSeconds = 480, kLookSeconds = 20;

// Gives a part what it works with. A part that never asks for gpu() opens no context in its
// process.
class PartRun {
 public:
  PartRun(GpuReport report, std::string nvrtc, double seconds, std::string tests)
      : report_(std::move(report)),
        nvrtc_(std::move(nvrtc)),
        seconds_(seconds),
        tests_(std::move(tests)),
        end_(std::chrono::steady_clock::now() +
             std::chrono::nanoseconds(
                 static_cast<int64_t>(1e9 * std::max(seconds - kEndSeconds, seconds / 2)))) {}

  GpuReport& report() { return report_; }
  // Fails what it does with DEADLINE_EXCEEDED before the part's process is killed, so that the part
  // can end.
  absl::StatusOr<Gpu*> gpu();
  // Returns `seconds`, or what is left until then; 0 if nothing is.
  double Left(double seconds) const;
  // Returns DEADLINE_EXCEEDED if nothing is: what a task was cut short for is no finding.
  absl::Status InTime() const;
  // Returns when the part's process is killed, from its start.
  double seconds() const { return seconds_; }
  // Returns the pattern of the tests that are wanted; "": all.
  const std::string& tests() const { return tests_; }
  // Writes what the report has to say of gpu() itself, when the part has ended.
  void End(absl::string_view part);
  // Runs a task of ChildTasks() for as long as Left(seconds), or starts one that stays until it is
  // finished. `more` are further flags. Any thread may run tasks.
  Child RunTask(const std::string& name, double seconds,
                double after_output_seconds = std::numeric_limits<double>::infinity(),
                const std::vector<std::string>& more = {}) const;
  std::unique_ptr<RunningChild> StartTask(const std::string& name) const;

 private:
  // The time for ending in order.
  static constexpr double kEndSeconds = 2;

  std::vector<std::string> Task(const std::string& name) const;

  GpuReport report_;
  std::string nvrtc_;
  double seconds_;
  std::string tests_;
  const std::chrono::steady_clock::time_point end_;
  std::unique_ptr<Gpu> gpu_;
};

struct Part {
  absl::string_view name;
  absl::string_view answers;
  double seconds;  // longer than this, beside others, it is taken to hang
  absl::Status (*run)(PartRun& run);
};
// Returns the parts in the order in which they run: those that most decisions wait for come first.
absl::Span<const Part> Parts();

// A task for a child of a part: it would end or hang the part, or has to start from nothing. It
// prints objects of JSON, one a line, the last its findings, and returns how to exit.
struct ChildTask {
  absl::string_view name;
  int (*run)(const std::string& nvrtc);
};
absl::Span<const ChildTask> ChildTasks();

// Prints a child's object as one line.
void PrintObject(const Json& object);
// Prints a child's findings, or its error beside them, and returns how to exit.
int PrintFindings(const absl::Status& status, Json found);
// Returns the last object that a child printed; null if it printed none.
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
absl::Status RunLibrary(PartRun& run);
absl::Status RunSticky(PartRun& run);
absl::Status RunRespawn(PartRun& run);
absl::Status RunFilter(PartRun& run);
// Run tests (suites.h).
absl::Status RunKernels(PartRun& run);
absl::Status RunConformance(PartRun& run);
absl::Status RunZoo(PartRun& run);

int ChildPresent(const std::string& nvrtc);
int ChildWorks(const std::string& nvrtc);
int ChildFaults(const std::string& nvrtc);
int ChildTraps(const std::string& nvrtc);
int ChildHangs(const std::string& nvrtc);
int ChildStays(const std::string& nvrtc);
int ChildHolds(const std::string& nvrtc);
int ChildFilteredFirst(const std::string& nvrtc);
int ChildFilteredLater(const std::string& nvrtc);
int ChildWatched(const std::string& nvrtc);

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_PARTS_H_
