// Whether a plan that a search found computes what its graph means: compares it, whole, with the
// baseline and with the graph's twin in f64 (server/tuner/check/plan_check.h).
//
//   PlanVerifier verifier(graph, maker, tuner, target, seed, /*approximate=*/false);
//   while (!verifier.Prepare().value()) {}            // once, in pieces of some hundred ms
//   absl::Status right = verifier.Verify(found, sizes);
//
// Baseline and twin are plans of checked kernels, made like any baseline (plan_way.h) and kept as
// long as this: every plan is held against the same ones, so that errors do not add up from plan to
// plan.
#ifndef ATHANOR_SERVER_SEARCH_PLAN_VERIFIER_H_
#define ATHANOR_SERVER_SEARCH_PLAN_VERIFIER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/child/tuner_process.h"
#include "server/plans/plan_search.h"
#include "server/plans/plan_way.h"
#include "server/search/kernel_maker.h"

namespace athanor {

// Borrows the tuner and what the maker borrows; used by one thread at a time.
class PlanVerifier {
 public:
  // `approximate`: plans may be off as much as bf16 is.
  PlanVerifier(const Graph& graph, KernelMaker maker, TunerProcess* tuner, const v1::Target& target,
               uint64_t seed, bool approximate)
      : graph_(graph),
        graph_text_(ToText(graph)),
        maker_(maker),
        tuner_(*tuner),
        target_(target),
        seed_(seed),
        approximate_(approximate) {}

  // Lowers, compiles and checks some of what plans are compared with; true: nothing is left. What
  // cannot be made is remembered; the errors are CANCELLED and ABORTED (the time is up).
  absl::StatusOr<bool> Prepare();

  // The baseline as it is lowered, whatever serves.
  absl::StatusOr<const v1::Plan*> BaselinePlan();

  // DATA_LOSS: it is wrong; names output, sizes and error. FAILED_PRECONDITION: there is no
  // baseline to compare it with. UNAVAILABLE: somebody killed the child. Else how the plan, or the
  // child, was lost: the plan's fault.
  // REQUIRES: Prepare() returned true.
  absl::Status Verify(const CompiledPlan& found,
                      const google::protobuf::RepeatedPtrField<internal::Sizes>& sizes);

 private:
  struct Reference {
    bool exact = false;
    bool done = false;
    PlanWay way;
    absl::Status status;  // why it cannot be made
    internal::MeasuredPlan plan;
    std::vector<internal::KernelCheck> checks;
    size_t checked = 0;  // that have passed
  };

  // Lost with its child, it is asked again so often.
  static constexpr int kMostLostChildren = 4;

  // One kernel, or the lowering. After CANCELLED, ABORTED or UNAVAILABLE it may be asked again.
  absl::Status Advance(Reference* reference);
  // Begins again, plain, where that may help; else the reference is done without a plan.
  void GiveUp(Reference* reference, const absl::Status& why);

  int lost_children_ = 0;
  std::optional<Graph> graph_;  // until it is lowered
  const std::string graph_text_;
  KernelMaker maker_;
  TunerProcess& tuner_;
  const v1::Target& target_;
  const uint64_t seed_;
  const bool approximate_;
  Reference baseline_{.exact = false}, exact_{.exact = true};
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_PLAN_VERIFIER_H_
