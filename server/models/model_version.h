// A version of a model: its definition (immutable) and its progress (state, plans).
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

struct EncoderModel;
struct LanguageModel;

class ModelVersion {
 public:
  // Creates a version. Returns INVALID_ARGUMENT if requests to this graph would be ambiguous.
  // Determines whether its requests may share calls.
  static absl::StatusOr<std::shared_ptr<ModelVersion>> Create(VersionRow row, ImportedGraph graph,
                                                              const BatchLimits& limits = {});

  ModelVersion(const ModelVersion&) = delete;
  ModelVersion& operator=(const ModelVersion&) = delete;
  // Ends its engine, also one that waits for a plan.
  ~ModelVersion();

  const std::string& name() const { return row_.name; }
  int64_t version() const { return row_.version; }
  const VersionRow& row() const { return row_; }  // without the graph's bytes
  // The device that executes it, as --device names it.
  const std::string& device() const { return row_.device; }
  // Parameters carry their magnitudes if known (compiler/ir/graph/magnitude.h).
  const Graph& graph() const { return graph_; }
  const std::string& graph_hash() const { return graph_hash_; }
  // By position in graph().ParameterIds().
  const std::vector<std::string>& parameter_hashes() const { return parameter_hashes_; }
  // Element types that are not dtypes, by position in graph().InputIds() and outputs; empty for
  // dtypes.
  const std::vector<std::string>& input_elements() const { return input_elements_; }
  const std::vector<std::string>& output_elements() const { return output_elements_; }
  const RequestBinder& binder() const { return binder_; }
  const OutputShapes& output_shapes() const { return output_shapes_; }
  const VersionBatching& batching() const { return batching_; }
  // Sets the fields of `row` known only once it is stored. Call it before the version is shared.
  void SetStored(const VersionRow& row) {
    row_.version = row.version;
    row_.created_us = row.created_us;
    row_.tensors = row.tensors;
  }
  // Sets the magnitudes of the parameters, in the order of graph().ParameterIds(). They become part
  // of the graph and of its hash. Call it before the version is shared.
  void SetMagnitudes(absl::Span<const std::optional<int>> magnitudes);
  // Sets where its calls are counted. Call it before the version is shared.
  void SetMetrics(std::shared_ptr<VersionMetrics> metrics) { metrics_ = std::move(metrics); }
  // REQUIRES: SetMetrics was called.
  VersionMetrics& metrics() const { return *metrics_; }
  const std::shared_ptr<VersionMetrics>& shared_metrics() const { return metrics_; }
  // Makes it one of a language model. Call it before the version is shared.
  void SetLanguageModel(std::shared_ptr<const LanguageModel> model) {
    language_model_ = std::move(model);
  }
  // Null: it is no language model, and ModelInfer serves it.
  const LanguageModel* language_model() const { return language_model_.get(); }
  // Makes it one of an encoder. Call it before the version is shared.
  void SetEncoder(std::shared_ptr<const EncoderModel> encoder) { encoder_ = std::move(encoder); }
  // Null: it is no encoder. ModelInfer serves encoders too.
  std::shared_ptr<const EncoderModel> encoder() const { return encoder_; }
  // Returns "model digits, version 1" for messages.
  std::string Describe() const;

  // The plans that requests without taps run. Requests with taps use taps(); neither affects the
  // other.
  Plans& plans() { return plans_; }
  const Plans& plans() const { return plans_; }
  TapPlans& taps() { return taps_; }
  // The slot of the full range's plan.
  PlanSlot& serving() { return plans_.full(); }
  std::shared_ptr<const ServedPlan> plan() const { return plans_.full().plan(); }
  v1::Model::State state() const { return StateOf(plans_.full().view()); }

  // Why the version can never be served: its stored data is not a valid model. Set before the
  // version is shared.
  absl::Status unusable() const { return OwnCopy(unusable_); }
  void SetUnusable(absl::Status why) { unusable_ = std::move(why); }
  // Drops all plans, because data they compute with is damaged. Calls get `damage` until there are
  // new plans.
  void Withdraw(const absl::Status& damage);
  // Returns the error to serve it by while its tensor is damaged; names the parameter or the file.
  absl::Status Damaged(const std::string& hash, absl::string_view why) const;
  // Number of calls of Withdraw.
  int64_t withdrawals() const { return withdrawals_.load(std::memory_order_acquire); }
  // Drops all plans, and answers waiting calls and ends sequences with NOT_FOUND.
  void SetDeleted();
  // The e-graphs of its regions, drawn by the last search that used the rules.
  using Pictures = std::vector<absl::StatusOr<std::string>>;
  void SetPictures(Pictures pictures);
  // Returns the e-graph of a region, in the Graphviz language; `region` is an index into
  // SearchProgress.regions. Returns NOT_FOUND if there is no such region, FAILED_PRECONDITION if no
  // search has used the rules yet, as none does with states, or if this region could not be drawn.
  absl::StatusOr<std::string> Picture(int64_t region) const;
  // Id of the plan that the full range is pinned to; empty: none.
  std::string pinned_plan() const { return plans_.pinned(BucketGrid::kFullRange); }

  v1::Model ToProto(bool serving) const;
  // Returns the fields that are known before the version is stored.
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
  std::shared_ptr<const LanguageModel> language_model_;  // its engine runs plans_
  std::shared_ptr<const EncoderModel> encoder_;
  std::atomic<int64_t> withdrawals_{0};
  mutable Mutex mu_;
  Pictures pictures_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODELS_MODEL_VERSION_H_
