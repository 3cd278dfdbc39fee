// One version of a model while the server knows it: what it is (never changes) and how far it has
// come (state, plan).
//
//   std::shared_ptr<const ServedPlan> plan = version->plan();     // null: nothing serves yet
//   uint64_t id = version->serving().WhenReady([](absl::Status s) { ... });
//
// Held by shared_ptr: a deleted version lives until its last request ends. Thread-safe.
#ifndef ATHANOR_SERVER_MODELS_MODEL_VERSION_H_
#define ATHANOR_SERVER_MODELS_MODEL_VERSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/infer_request.h"
#include "compiler/ir/graph/graph.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/batch/batching.h"
#include "server/metrics/metrics.h"
#include "server/plans/output_shapes.h"
#include "server/plans/plan_slot.h"
#include "server/plans/plans.h"
#include "server/plans/tap_plans.h"
#include "server/storage/registry_db.h"

namespace athanor {

class ModelVersion {
 public:
  // INVALID_ARGUMENT: requests to this graph could not be understood. Proves whether they may share
  // calls.
  static absl::StatusOr<std::shared_ptr<ModelVersion>> Create(VersionRow row, ImportedGraph graph,
                                                              const BatchLimits& limits = {});

  const std::string& name() const { return row_.name; }
  int64_t version() const { return row_.version; }
  const VersionRow& row() const { return row_; }  // without the graph's bytes
  // Parameters have their magnitudes (compiler/ir/graph/magnitude.h), as far as they are known.
  const Graph& graph() const { return graph_; }
  const std::string& graph_hash() const { return graph_hash_; }
  // In the order of graph().ParameterIds().
  const std::vector<std::string>& parameter_hashes() const { return parameter_hashes_; }
  // What values mean where that is no dtype, in the order of graph().InputIds() and outputs.
  const std::vector<std::string>& input_elements() const { return input_elements_; }
  const std::vector<std::string>& output_elements() const { return output_elements_; }
  const RequestBinder& binder() const { return binder_; }
  const OutputShapes& output_shapes() const { return output_shapes_; }
  const VersionBatching& batching() const { return batching_; }
  // What is known of `row` once it is stored; before anyone else sees the version.
  void SetStored(const VersionRow& row) {
    row_.version = row.version;
    row_.created_us = row.created_us;
    row_.tensors = row.tensors;
  }
  // What is known of the parameters' contents, in the order of graph().ParameterIds(); before
  // anyone else sees the version. Part of the graph, and so of its hash.
  void SetMagnitudes(absl::Span<const std::optional<int>> magnitudes);
  // Where its calls are counted; before anyone else sees the version.
  void SetMetrics(std::shared_ptr<VersionMetrics> metrics) { metrics_ = std::move(metrics); }
  // REQUIRES: SetMetrics was called.
  VersionMetrics& metrics() const { return *metrics_; }
  // "model digits, version 1", for messages.
  std::string Describe() const;

  // Plans that calls without taps run, and those with taps. Neither change the others.
  Plans& plans() { return plans_; }
  const Plans& plans() const { return plans_; }
  TapPlans& taps() { return taps_; }
  // The full range's plan, and where it is waited for.
  PlanSlot& serving() { return plans_.full(); }
  std::shared_ptr<const ServedPlan> plan() const { return plans_.full().plan(); }
  v1::Model::State state() const { return StateOf(plans_.full().view()); }

  // Why it can never be served: what is stored of it is no model. Set before anyone else sees the
  // version.
  absl::Status unusable() const { return OwnCopy(unusable_); }
  void SetUnusable(absl::Status why) { unusable_ = std::move(why); }
  // Drops all plans: what they compute with is damaged. Calls get `damage` until there are others.
  void Withdraw(const absl::Status& damage);
  // How often it was.
  int64_t withdrawals() const { return withdrawals_.load(std::memory_order_acquire); }
  // Drops all plans and answers those who wait with NOT_FOUND.
  void SetDeleted();
  // The e-graphs of its regions, as the search that used the rules last drew them.
  using Pictures = std::vector<absl::StatusOr<std::string>>;
  void SetPictures(Pictures pictures);
  // In Graphviz' language, by index into SearchProgress.regions. NOT_FOUND: there is no such
  // region. FAILED_PRECONDITION: no search has used the rules yet, or why this one is not drawn.
  absl::StatusOr<std::string> Picture(int64_t region) const;
  // Id of the plan that the full range is pinned to; empty: none.
  std::string pinned_plan() const { return plans_.pinned(BucketGrid::kFullRange); }

  v1::Model ToProto(bool serving) const;
  // What is known before it is stored.
  v1::Model Interface() const;

 private:
  ModelVersion(VersionRow row, ImportedGraph graph, RequestBinder binder,
               const BatchLimits& limits);
  static v1::Model::State StateOf(const PlanSlot::View& view);
  void AddTensors(v1::Model* model) const;
  static void AddBuckets(const Plans::View& view, v1::Model* model, PlanRunner::Prepared* prepared,
                         int64_t* arenas);

  VersionRow row_;
  Graph graph_;
  std::string graph_hash_;
  const std::vector<std::string> parameter_hashes_;
  const std::vector<std::string> input_elements_, output_elements_;
  const RequestBinder binder_;
  const OutputShapes output_shapes_;
  const VersionBatching batching_;
  std::shared_ptr<VersionMetrics> metrics_;
  absl::Status unusable_;

  Plans plans_;
  TapPlans taps_;
  std::atomic<int64_t> withdrawals_{0};
  mutable Mutex mu_;
  Pictures pictures_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_MODEL_VERSION_H_
