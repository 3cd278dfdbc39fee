#include "server/model_version.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace athanor {

ModelVersion::ModelVersion(VersionRow row, ImportedGraph graph, RequestBinder binder)
    : row_(std::move(row)),
      graph_(std::move(graph.graph)),
      graph_hash_(CanonicalHash(graph_)),
      parameter_hashes_(std::move(graph.parameter_hashes)),
      binder_(std::move(binder)),
      output_shapes_(graph_),
      pinned_plan_(row_.pinned_plan) {
  std::string().swap(row_.graph);
}

absl::StatusOr<std::shared_ptr<ModelVersion>> ModelVersion::Create(VersionRow row,
                                                                   ImportedGraph graph) {
  absl::StatusOr<RequestBinder> binder = RequestBinder::Create(graph.graph);
  if (!binder.ok()) return binder.status();
  return std::shared_ptr<ModelVersion>(
      new ModelVersion(std::move(row), std::move(graph), *std::move(binder)));
}

std::string ModelVersion::Describe() const {
  return absl::StrCat("model \"", name(), "\", version ", version());
}

v1::Model::State ModelVersion::state() const {
  MutexLock lock(mu_);
  return state_;
}

std::shared_ptr<const ServedPlan> ModelVersion::plan() const {
  MutexLock lock(mu_);
  return plan_;
}

std::string ModelVersion::job_id() const {
  MutexLock lock(mu_);
  return job_id_;
}

std::string ModelVersion::pinned_plan() const {
  MutexLock lock(mu_);
  return pinned_plan_;
}

bool ModelVersion::deleted() const {
  MutexLock lock(mu_);
  return deleted_;
}

std::optional<absl::Status> ModelVersion::Verdict() const {
  if (deleted_) return absl::NotFoundError(absl::StrCat(Describe(), " was deleted"));
  if (plan_ != nullptr) return absl::OkStatus();
  if (state_ == v1::Model::FAILED) return error_;
  if (!refusal_.ok()) return refusal_;
  return std::nullopt;
}

uint64_t ModelVersion::WhenReady(Waiter waiter) {
  std::optional<absl::Status> verdict;
  {
    MutexLock lock(mu_);
    verdict = Verdict();
    if (!verdict.has_value()) {
      waiters_.emplace_back(++last_waiter_, std::move(waiter));
      return last_waiter_;
    }
  }
  waiter(*verdict);
  return 0;
}

bool ModelVersion::StopWaiting(uint64_t id) {
  Waiter waiter;  // outlives the lock: what it captured goes without it
  MutexLock lock(mu_);
  auto it = std::find_if(waiters_.begin(), waiters_.end(),
                         [id](const auto& entry) { return entry.first == id; });
  if (it == waiters_.end()) return false;
  waiter = std::move(it->second);
  waiters_.erase(it);
  return true;
}

void ModelVersion::SetJob(const std::string& job_id, v1::Model::State state) {
  MutexLock lock(mu_);
  job_id_ = job_id;
  if (plan_ == nullptr) state_ = state;
}

bool ModelVersion::SetPlan(std::shared_ptr<const ServedPlan> plan) {
  std::shared_ptr<const ServedPlan> before;
  Waiters waiters;
  {
    MutexLock lock(mu_);
    if (deleted_) return false;
    before = std::exchange(plan_, std::move(plan));
    state_ = v1::Model::READY;
    error_ = absl::OkStatus();
    waiters.swap(waiters_);
  }
  for (auto& [id, waiter] : waiters) waiter(absl::OkStatus());
  return true;
}

void ModelVersion::SetFailed(const absl::Status& error) {
  Waiters waiters;
  {
    MutexLock lock(mu_);
    if (plan_ != nullptr) return;  // what serves stays
    state_ = v1::Model::FAILED;
    error_ = error;
    waiters.swap(waiters_);
  }
  for (auto& [id, waiter] : waiters) waiter(error);
}

void ModelVersion::RefuseWaiters(const absl::Status& status) {
  Waiters waiters;
  {
    MutexLock lock(mu_);
    refusal_ = status;
    waiters.swap(waiters_);
  }
  for (auto& [id, waiter] : waiters) waiter(status);
}

void ModelVersion::SetDeleted() {
  std::shared_ptr<const ServedPlan> before;
  {
    MutexLock lock(mu_);
    deleted_ = true;
    before = std::move(plan_);
  }
  RefuseWaiters(absl::NotFoundError(absl::StrCat(Describe(), " was deleted")));
}

void ModelVersion::SetPinnedPlan(const std::string& plan_id) {
  MutexLock lock(mu_);
  pinned_plan_ = plan_id;
}

void ModelVersion::AddTensors(v1::Model* model) const {
  auto describe = [](const std::string& name, const TensorType& type, v1::ModelTensor* tensor) {
    tensor->set_name(name);
    tensor->set_dtype(std::string(DTypeName(type.dtype)));
    for (const Expr& size : type.shape) tensor->add_shape(size.ToString());
  };
  for (NodeId id : graph_.InputIds()) {
    describe(graph_.node(id).name, graph_.node(id).type, model->add_inputs());
  }
  for (const Output& output : graph_.outputs) {
    describe(output.name, graph_.node(output.node).type, model->add_outputs());
  }
  for (const Dim& dim : graph_.dims) {
    v1::GraphDim* added = model->add_dims();
    added->set_name(dim.name);
    added->set_min(dim.min);
    added->set_max(dim.max);
  }
}

v1::Model ModelVersion::ToProto(bool serving) const {
  v1::Model model;
  model.set_name(name());
  model.set_version(absl::StrCat(version()));
  model.set_serving(serving);
  AddTensors(&model);
  model.set_graph_hash(graph_hash_);
  model.mutable_created()->set_seconds(row_.created_us / 1'000'000);
  model.mutable_created()->set_nanos(static_cast<int32_t>(row_.created_us % 1'000'000 * 1000));
  for (const TensorRow& tensor : row_.tensors) {
    model.mutable_memory()->set_parameters(model.memory().parameters() + tensor.bytes);
  }
  MutexLock lock(mu_);
  model.set_state(state_);
  model.set_error(std::string(error_.message()));
  model.set_compile_job_id(job_id_);
  if (plan_ != nullptr) {
    model.set_plan_id(plan_->info.plan_id());
    model.set_pinned(!pinned_plan_.empty() && pinned_plan_ == plan_->info.plan_id());
    *model.add_plans() = plan_->info;
    model.mutable_memory()->set_prepared(plan_->runner->prepared_bytes());
    model.mutable_memory()->set_arenas(plan_->runner->arena_bytes());
  }
  return model;
}

}  // namespace athanor
