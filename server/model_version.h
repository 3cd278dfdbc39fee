// One version of a model while the server knows it: what it is (never changes) and how far it has
// come (state, plan).
//
//   std::shared_ptr<const ServedPlan> plan = version->plan();     // null: nothing serves yet
//   uint64_t id = version->WhenReady([](absl::Status s) { ... });
//
// Held by shared_ptr: a deleted version lives until its last request ends. Thread-safe.
#ifndef ATHANOR_SERVER_MODEL_VERSION_H_
#define ATHANOR_SERVER_MODEL_VERSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/infer_request.h"
#include "compiler/ir/graph.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/model.pb.h"
#include "server/output_shapes.h"
#include "server/registry_db.h"
#include "server/served_plan.h"

namespace athanor {

class ModelVersion {
 public:
  using Waiter = absl::AnyInvocable<void(absl::Status)>;

  // INVALID_ARGUMENT: requests to this graph could not be understood.
  static absl::StatusOr<std::shared_ptr<ModelVersion>> Create(VersionRow row, ImportedGraph graph);

  const std::string& name() const { return row_.name; }
  int64_t version() const { return row_.version; }
  const VersionRow& row() const { return row_; }  // without the graph's bytes
  const Graph& graph() const { return graph_; }
  const std::string& graph_hash() const { return graph_hash_; }
  // In the order of graph().ParameterIds().
  const std::vector<std::string>& parameter_hashes() const { return parameter_hashes_; }
  const RequestBinder& binder() const { return binder_; }
  const OutputShapes& output_shapes() const { return output_shapes_; }
  // What is known of `row` once it is stored; before anyone else sees the version.
  void SetStored(const VersionRow& row) {
    row_.version = row.version;
    row_.created_us = row.created_us;
    row_.tensors = row.tensors;
  }
  // "model digits, version 1", for messages.
  std::string Describe() const;

  v1::Model::State state() const;
  std::shared_ptr<const ServedPlan> plan() const;
  std::string job_id() const;
  std::string pinned_plan() const;

  // Calls `waiter` once, outside every lock: with OK when a plan serves, else with why none will
  // (NOT_FOUND after a deletion). At once if that is known. The result is for StopWaiting; 0 if the
  // waiter was called.
  uint64_t WhenReady(Waiter waiter);
  // True: the waiter will not be called.
  bool StopWaiting(uint64_t id);

  void SetJob(const std::string& job_id, v1::Model::State state);
  // False if the version was deleted meanwhile; then the plan is dropped.
  bool SetPlan(std::shared_ptr<const ServedPlan> plan);
  void SetFailed(const absl::Status& error);
  // Answers every waiter, later ones too, with `status` while no plan serves; leaves the state.
  void RefuseWaiters(const absl::Status& status);
  void SetDeleted();
  bool deleted() const;
  void SetPinnedPlan(const std::string& plan_id);

  v1::Model ToProto(bool serving) const;

 private:
  ModelVersion(VersionRow row, ImportedGraph graph, RequestBinder binder);
  using Waiters = std::vector<std::pair<uint64_t, Waiter>>;
  // What a waiter would be told now; nullopt while it is open.
  std::optional<absl::Status> Verdict() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddTensors(v1::Model* model) const;

  VersionRow row_;
  const Graph graph_;
  const std::string graph_hash_;
  const std::vector<std::string> parameter_hashes_;
  const RequestBinder binder_;
  const OutputShapes output_shapes_;

  mutable Mutex mu_;
  v1::Model::State state_ ABSL_GUARDED_BY(mu_) = v1::Model::UPLOADED;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::string job_id_ ABSL_GUARDED_BY(mu_);
  std::string pinned_plan_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const ServedPlan> plan_ ABSL_GUARDED_BY(mu_);
  bool deleted_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  uint64_t last_waiter_ ABSL_GUARDED_BY(mu_) = 0;
  Waiters waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_MODEL_VERSION_H_
