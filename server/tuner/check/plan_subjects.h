// The plans of a check (plan_check.h), run side by side on the same inputs.
//
//   PlanSubject baseline = {&request.baseline(), &graph, outputs, marks};
//   RunSubjects(graph, runs, threads, {&baseline}, planned, nullptr, nullptr);  // in a process of
//   its own
//   // baseline.outputs holds what it computed, baseline.marks which runs there were
#ifndef ATHANOR_SERVER_TUNER_CHECK_PLAN_SUBJECTS_H_
#define ATHANOR_SERVER_TUNER_CHECK_PLAN_SUBJECTS_H_

#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/check/plan_runs.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// What the forked processes leave of one run.
struct PlanMark {
  bool ran = false;
  bool refused = false;  // found an index out of range
};

// A plan and where its outputs go, by run and output of the graph: shared memory, so that they
// outlive the process that wrote them.
struct PlanSubject {
  const internal::MeasuredPlan* plan = nullptr;
  const Graph* types = nullptr;  // of the outputs
  std::vector<std::vector<GuardedBytes>> outputs;
  PlanMark* marks = nullptr;
};

// Runs every subject on the runs that are `planned` (there is memory for their outputs). Without
// `references` those that are not required begin only while processor time is left; with them, the
// marks of subjects that ran before, there are exactly the same runs. An index out of range is
// marked; any other error names the run. INVALID_ARGUMENT: a plan whose dims, inputs or outputs are
// not the graph's. Large prepared weights lie in `window`, where it has room for them; null: in
// memory.
absl::Status RunSubjects(const Graph& graph, const PlanRuns& runs, int threads,
                         const std::vector<PlanSubject*>& subjects,
                         const std::vector<bool>& planned, const std::vector<PlanMark>* references,
                         const SharedMemory* window);

// How large a window the subjects fill.
int64_t WindowBytes(const Graph& graph, const PlanRuns& runs,
                    const std::vector<PlanSubject*>& subjects);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_PLAN_SUBJECTS_H_
