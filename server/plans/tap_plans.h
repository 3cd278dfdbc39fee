// The plans of a model version that return inner values too: one per set of tapped nodes, the few
// used last.
//
//   absl::StatusOr<std::shared_ptr<TapPlan>> tapped =
//       taps.Get({3, 7}, /*most=*/4, [&](const std::shared_ptr<TapPlan>& added) {
//         return StartJobFor(added);
//       });
//
// Plans that are dropped live on while a call uses them. The plan that serves the version has no
// part in any of this. Thread-safe.
#ifndef ATHANOR_SERVER_PLANS_TAP_PLANS_H_
#define ATHANOR_SERVER_PLANS_TAP_PLANS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/plans/output_shapes.h"
#include "server/plans/plans.h"

namespace athanor {

// A set of taps. Its plan computes the version's graph with the tapped nodes as further outputs.
struct TapPlan {
  TapPlan(const Graph& graph, std::vector<NodeId> tapped);

  const std::vector<NodeId> taps;  // ascending, each once
  const std::vector<std::string> names;
  const OutputShapes shapes;  // the graph's outputs, then the taps
  Plans plans;                // for the full range only

  // `plan with taps "a", "b"`, for messages.
  std::string Describe() const;
};

// Returns `graph` with `taps` as outputs after its own, under names that no output has.
Graph WithTaps(const Graph& graph, absl::Span<const NodeId> taps);

class TapPlans {
 public:
  using Start = absl::FunctionRef<absl::Status(const std::shared_ptr<TapPlan>& added)>;

  // `graph` outlives this.
  explicit TapPlans(const Graph& graph) : graph_(graph) {}

  // The plan for `taps` (ascending, each once). Where it is not there yet, `start` is called, and
  // with OK the plan is added in place of the settled one that was used longest ago.
  // RESOURCE_EXHAUSTED when `most` are being compiled. REQUIRES: most >= 1
  absl::StatusOr<std::shared_ptr<TapPlan>> Get(std::vector<NodeId> taps, int64_t most, Start start);
  // Drops the plans whose job failed, so that they are tried again when they are asked for.
  void ForgetFailed();
  // Drops all plans; calls that wait for them get `status`.
  void Withdraw(const absl::Status& status);
  // For good: calls that wait, and later ones, get `status`.
  void Close(const absl::Status& status);
  // Bytes held by the plans: prepared weights, arenas.
  void AddMemory(PlanRunner::Prepared* prepared, int64_t* arenas) const;

 private:
  const Graph& graph_;
  // Taken before the locks of slots and of whatever `start` works on.
  mutable Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  std::list<std::shared_ptr<TapPlan>> plans_ ABSL_GUARDED_BY(mu_);  // the one used last first
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_TAP_PLANS_H_
