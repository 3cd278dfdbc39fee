// Runs the plans of a check (plan_check.h) on the same inputs.
//
//   // In a process of its own:
//   PlanSubject baseline = {&request.baseline(), &graph, outputs};
//   RunSubjects(graph, runs, threads, {&baseline}, planned, nullptr, nullptr);   // of states too
//   // baseline.outputs holds the results, baseline.marks which runs were made
#ifndef ATHANOR_SERVER_TUNER_CHECK_PLAN_SUBJECTS_H_
#define ATHANOR_SERVER_TUNER_CHECK_PLAN_SUBJECTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/internal/worker.pb.h"
#include "server/tuner/check/plan_runs.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Result of one run, written by the forked process.
struct PlanMark {
  bool ran = false;
  bool refused = false;  // it found an index out of range
};

// A plan and the memory for its outputs, by run and by output of the graph. The memory is shared,
// so that it outlives the process that writes it.
struct PlanSubject {
  const internal::MeasuredPlan* plan = nullptr;
  // Graph with the types of the outputs, among them states that it writes (state_outputs.h).
  const Graph* types = nullptr;
  std::vector<std::vector<GuardedBytes>> outputs;
  std::optional<SharedMemory> marks_memory;
  PlanMark* marks = nullptr;  // in that

  // Places marks for so many runs.
  void Mark(SharedMemory memory, size_t runs);
};

// Runs every subject on the `planned` runs (those with memory for their outputs). Without
// `references`, optional runs begin only while processor time is left; with `references`, the marks
// of subjects that ran before, the runs are exactly the same. Marks an index out of range; any
// other error names the run. Returns INVALID_ARGUMENT for a plan whose dims, inputs or outputs
// differ from the graph's. Puts large prepared weights into `window` while there is room; null:
// into memory.
absl::Status RunSubjects(const Graph& graph, const PlanRuns& runs, int threads,
                         const std::vector<PlanSubject*>& subjects,
                         const std::vector<bool>& planned, const std::vector<PlanMark>* references,
                         const SharedMemory* window);

// The job that has the device worker do the same, with runs of these inputs.
internal::PlanJob PlanJobOf(internal::PlanJob::PlanInputs inputs, int threads,
                            const std::vector<PlanSubject*>& subjects,
                            const std::vector<bool>& planned,
                            const std::vector<PlanMark>* references);

// Serves such jobs, in the worker. Keeps the inputs that it drew last. Used by one thread.
class PlanJobs {
 public:
  // As RunSubjects, and calls `drawn` when it has the inputs. INVALID_ARGUMENT: the job does not
  // fit together.
  absl::Status Serve(const internal::PlanJob& job, absl::FunctionRef<void()> drawn);

 private:
  absl::Status Draw(const internal::PlanJob::PlanInputs& inputs);

  std::string key_;
  Graph graph_;
  std::optional<PlanRuns> runs_;
};

// Returns the size of the window that the subjects fill.
int64_t WindowBytes(const Graph& graph, const PlanRuns& runs,
                    const std::vector<PlanSubject*>& subjects);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_PLAN_SUBJECTS_H_
