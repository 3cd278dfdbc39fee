// Makes plans for the boxes of a job's version, once its full range is served: the boxes it was
// uploaded with, or those that StartCompile names, which take the place of the others.
//
//   absl::Status s = BuildBuckets({.make = ..., .load = ...}, registry, job);
//
// Of a box's plans that are known the one is loaded that saves most of the time that the full
// range's plan takes there, as far as there is memory for all (bucket_choice.h); what serves the
// others, and why, GetModel says. A box whose plan cannot be made costs the job nothing else.
#ifndef ATHANOR_SERVER_JOBS_BUCKET_BUILDER_H_
#define ATHANOR_SERVER_JOBS_BUCKET_BUILDER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "runtime/memory/prepared_pool.h"
#include "server/jobs/compile_job.h"
#include "server/models/registry.h"
#include "server/plans/compiled_plan.h"
#include "server/plans/served_plan.h"

namespace athanor {

struct BucketTools {
  // Returns plans of this graph, checked and whole; at least one. ABORTED: the job gives way.
  std::function<absl::StatusOr<CompiledPlans>(const Graph&)> make;
  // Returns the pinned plan of this graph by its id.
  std::function<absl::StatusOr<std::shared_ptr<const CompiledPlan>>(const Graph&,
                                                                    const std::string&)>
      pinned;
  // Loads a plan of this graph, so that it can serve.
  std::function<absl::StatusOr<std::shared_ptr<const ServedPlan>>(
      const Graph&, std::shared_ptr<const CompiledPlan>)>
      load;
  // Pool in which loaded plans share their weights, in the memory of the device that executes them;
  // null: they share none, in the server's.
  const PreparedPool* pool = nullptr;
  int64_t max_buckets = 64;
};

// CANCELLED: the job was asked to stop; boxes are as before. ABORTED: it gives way, and boxes are
// made when it comes back. Another error: buckets that
// StartCompile named could not be stored.
absl::Status BuildBuckets(const BucketTools& tools, Registry& registry, CompileJob& job);

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_BUCKET_BUILDER_H_
