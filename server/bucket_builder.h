// Makes plans for the boxes of a job's version, once its full range is served: the boxes it was
// uploaded with, or those that StartCompile names, which take the place of the others.
//
//   absl::Status s = BuildBuckets({.make = ..., .load = ...}, registry, job);
//
// Every box for which there is memory gets a plan (bucket_choice.h); what serves the others, and
// why, GetModel says. A box whose plan cannot be made costs the job nothing else.
#ifndef ATHANOR_SERVER_BUCKET_BUILDER_H_
#define ATHANOR_SERVER_BUCKET_BUILDER_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"
#include "runtime/prepared_pool.h"
#include "server/compile_job.h"
#include "server/plan_search.h"
#include "server/registry.h"
#include "server/served_plan.h"

namespace athanor {

struct BucketTools {
  // A plan of this graph, checked and with its kernels.
  std::function<absl::StatusOr<std::shared_ptr<const PlanSearch::Found>>(const Graph&)> make;
  // One that can serve.
  std::function<absl::StatusOr<std::shared_ptr<const ServedPlan>>(
      const Graph&, std::shared_ptr<const PlanSearch::Found>)>
      load;
  // Where what is loaded shares its prepared weights; null: nowhere.
  const PreparedPool* pool = nullptr;
  int64_t max_buckets = 64;
};

// CANCELLED: the job was asked to stop; boxes are as before. Another error: buckets that
// StartCompile named could not be stored.
absl::Status BuildBuckets(const BucketTools& tools, Registry& registry, CompileJob& job);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BUCKET_BUILDER_H_
