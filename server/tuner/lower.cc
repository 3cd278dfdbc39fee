#include "server/tuner/lower.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/sample/widen.h"
#include "compiler/pipeline/pipeline.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
absl::StatusOr<internal::LowerReply> LowerGraph(const internal::LowerRequest& request,
                                                int64_t max_bytes) {
  absl::StatusOr<Graph> graph = ParseGraph(request.graph_text(), AcceptedLimits());
  if (!graph.ok()) {
    return absl::InternalError(
        absl::StrCat("lowering the graph: its text is not accepted: ", graph.status().message()));
  }
  if (request.exact()) graph = WidenToF64(*graph);
  if (!graph.ok()) return graph.status();
  ASSIGN_OR_RETURN(CheckedPlan checked,
                   BuildCheckedBaselinePlan(*graph, request.target(), request.plain()));
  internal::LowerReply reply;
  *reply.mutable_plan() = std::move(checked.plan);
  reply.set_plain_because(checked.plain_because);
  for (internal::KernelCheck& check : checked.checks) *reply.add_checks() = std::move(check);
  const auto bytes = static_cast<int64_t>(reply.ByteSizeLong());
  if (bytes > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("lowering the graph: its plan and the checks of its kernels are ", bytes,
                     " bytes, at most ", max_bytes, " are sent to the server"));
  }
  return reply;
}

}  // namespace athanor
