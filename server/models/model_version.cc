#include "server/models/model_version.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/generate/language_model.h"

namespace athanor {
namespace {

// Ranges were checked when they were stored; a graph that can no longer be parsed has no grid.
std::shared_ptr<const BucketGrid> GridOf(const Graph& graph, const std::string& buckets) {
  v1::UploadHeader stored;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  absl::StatusOr<BucketGrid> grid = absl::InvalidArgumentError("");
  if (stored.ParseFromString(buckets)) grid = BucketGrid::Create(graph, stored.buckets(), kMost);
  if (!grid.ok()) grid = BucketGrid::Create(graph, {}, kMost);
  return std::make_shared<const BucketGrid>(*std::move(grid));
}

}  // namespace

ModelVersion::ModelVersion(VersionRow row, ImportedGraph graph, RequestBinder binder,
                           const BatchLimits& limits)
    : row_(std::move(row)),
      graph_(std::move(graph.graph)),
      graph_hash_(CanonicalHash(graph_)),
      parameter_hashes_(std::move(graph.parameter_hashes)),
      input_elements_(std::move(graph.input_elements)),
      output_elements_(std::move(graph.output_elements)),
      binder_(std::move(binder)),
      output_shapes_(graph_),
      batching_(BatchingOf(graph_, {row_.batch_dim, row_.deterministic}, limits)),
      plans_(GridOf(graph_, row_.buckets)),
      taps_(graph_) {
  for (const VersionPlanRow& plan : row_.plans) {
    if (plan.pinned) plans_.SetPinned(BucketGrid::kFullRange, plan.plan_id);
  }
  const std::shared_ptr<const BucketGrid> grid = plans_.grid();
  for (const VersionPlanRow& plan : row_.pinned_boxes) {
    for (int bucket = 1; bucket < grid->size(); ++bucket) {
      if (grid->Bytes(bucket) == plan.box) plans_.SetPinned(bucket, plan.plan_id);
    }
  }
  std::string().swap(row_.graph);
}

absl::StatusOr<std::shared_ptr<ModelVersion>> ModelVersion::Create(VersionRow row,
                                                                   ImportedGraph graph,
                                                                   const BatchLimits& limits) {
  ASSIGN_OR_RETURN(RequestBinder binder, RequestBinder::Create(graph.graph, graph.input_elements));
  return std::shared_ptr<ModelVersion>(
      new ModelVersion(std::move(row), std::move(graph), std::move(binder), limits));
}

ModelVersion::~ModelVersion() {
  plans_.Close(absl::UnavailableError(absl::StrCat(Describe(), " is not served any more")));
}

void ModelVersion::SetMagnitudes(absl::Span<const std::optional<int>> magnitudes) {
  const std::vector<NodeId> ids = graph_.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) SetMagnitude(magnitudes[i], &graph_.nodes[ids[i]]);
  graph_hash_ = CanonicalHash(graph_);
}

std::string ModelVersion::Describe() const {
  return absl::StrCat("model \"", name(), "\", version ", version());
}

v1::Model::State ModelVersion::StateOf(const PlanSlot::View& view) {
  if (view.plan != nullptr) return v1::Model::READY;
  if (!view.error.ok()) return v1::Model::FAILED;
  return view.compiling ? v1::Model::COMPILING : v1::Model::UPLOADED;
}

void ModelVersion::Withdraw(const absl::Status& damage) {
  withdrawals_.fetch_add(1, std::memory_order_acq_rel);
  plans_.Withdraw(damage);
  taps_.Withdraw(damage);
}

absl::Status ModelVersion::Damaged(const std::string& hash, absl::string_view why) const {
  std::string what;
  for (const FileRow& file : row_.files) {
    if (file.hash == hash) what = absl::StrCat("file ", Quoted(file.path));
  }
  const std::vector<NodeId> ids = graph_.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (parameter_hashes_[i] == hash) {
      what = absl::StrCat("parameter ", Quoted(graph_.node(ids[i]).name));
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(Describe(), ", is damaged and not served: ", what, ": ", why,
                   "; upload the model again, which brings these bytes back"));
}

void ModelVersion::SetDeleted() {
  const absl::Status deleted = absl::NotFoundError(absl::StrCat(Describe(), " was deleted"));
  plans_.Close(deleted);
  taps_.Close(deleted);
  if (language_model_ != nullptr) language_model_->engine->Close(deleted);
}

void ModelVersion::SetPictures(Pictures pictures) {
  MutexLock lock(mu_);
  pictures_ = std::move(pictures);
}

absl::StatusOr<std::string> ModelVersion::Picture(int64_t region) const {
  MutexLock lock(mu_);
  if (pictures_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        Describe(), " has no e-graphs: ",
        graph_.StateIds().empty() ? "no search has used the rules since the server started"
                                  : "searches of models with states use no rewriting rules"));
  }
  if (region < 0 || region >= static_cast<int64_t>(pictures_.size())) {
    return absl::NotFoundError(absl::StrCat(Describe(), " has no region ", region,
                                            "; the regions of its search are 0 to ",
                                            pictures_.size() - 1));
  }
  const absl::StatusOr<std::string>& picture = pictures_[region];
  if (picture.ok()) return picture;
  return absl::Status(picture.status().code(),
                      absl::StrCat(Describe(), ": ", picture.status().message()));
}

void ModelVersion::AddTensors(v1::Model* model) const {
  auto describe = [](const std::string& name, const TensorType& type, v1::ModelTensor* tensor) {
    tensor->set_name(name);
    tensor->set_dtype(std::string(DTypeName(type.dtype)));
    for (const Expr& size : type.shape) tensor->add_shape(size.ToString());
  };
  for (NodeId id : graph_.InputIds()) {
    const auto i = static_cast<size_t>(model->inputs_size());
    v1::ModelTensor* input = model->add_inputs();
    describe(graph_.node(id).name, graph_.node(id).type, input);
    input->set_fixed(ValueOf(graph_.node(id)) != nullptr);
    if (i < input_elements_.size()) input->set_element(input_elements_[i]);
  }
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const Output& output = graph_.outputs[i];
    describe(output.name, graph_.node(output.node).type, model->add_outputs());
    if (i < output_elements_.size()) {
      model->mutable_outputs(static_cast<int>(i))->set_element(output_elements_[i]);
    }
  }
  for (const Dim& dim : graph_.dims) {
    v1::GraphDim* added = model->add_dims();
    added->set_name(dim.name);
    added->set_min(dim.min);
    added->set_max(dim.max);
  }
}

void ModelVersion::AddBuckets(const Plans::View& view, v1::Model* model,
                              PlanRunner::Prepared* prepared, int64_t* arenas) {
  const bool pinned = !view.full().pinned.empty();
  for (size_t bucket = 1; bucket < view.books.size(); ++bucket) {
    const PlanBook& box = view.books[bucket];
    v1::BucketState* state = model->add_buckets();
    for (v1::DimRange& range : view.grid->ToProto(static_cast<int>(bucket))) {
      *state->add_bucket() = std::move(range);
    }
    const bool behind = box.serving != nullptr && !Plans::GoesFirst(box, view.full().serving.get());
    state->set_pinned(!box.pinned.empty());
    state->set_reason(state->pinned() ? box.reason
                      : pinned        ? "the version is pinned to a plan of the full range"
                      : behind ? "a search has found a plan for the full range, not yet for this"
                               : box.reason);
    if (box.serving == nullptr) continue;
    if (state->reason().empty()) state->set_plan_id(box.serving->id());
    box.serving->runner->AddPrepared(prepared);
    *arenas += box.serving->runner->arena_bytes();
  }
}

v1::Model ModelVersion::Interface() const {
  v1::Model model;
  model.set_name(name());
  AddTensors(&model);
  model.set_deterministic(row_.deterministic);
  *model.mutable_batching() = batching_.ToProto();
  v1::Model notes;
  if (notes.ParseFromString(row_.notes)) *model.mutable_notes() = std::move(*notes.mutable_notes());
  model.set_device(device());
  return model;
}

v1::Model ModelVersion::ToProto(bool serving) const {
  v1::Model model = Interface();
  model.set_version(absl::StrCat(version()));
  model.set_serving(serving);
  model.set_graph_hash(graph_hash_);
  model.mutable_created()->set_seconds(row_.created_us / 1'000'000);
  model.mutable_created()->set_nanos(static_cast<int32_t>(row_.created_us % 1'000'000 * 1000));
  for (const TensorRow& tensor : row_.tensors) {
    model.mutable_memory()->set_parameters(model.memory().parameters() + tensor.bytes);
  }
  const PlanSlot::View view = plans_.full().view();
  model.set_state(StateOf(view));
  model.set_error(std::string(view.error.message()));
  model.set_compile_job_id(view.job_id);
  PlanRunner::Prepared prepared;
  int64_t arenas = 0;
  taps_.AddMemory(&prepared, &arenas);
  const Plans::View plans = plans_.view();
  AddBuckets(plans, &model, &prepared, &arenas);
  if (view.plan != nullptr) {
    model.set_plan_id(view.plan->id());
    model.set_pinned(plans.full().pinned == view.plan->id());
    view.plan->runner->AddPrepared(&prepared);
    arenas += view.plan->runner->arena_bytes();
  }
  for (const PlanBook& book : plans.books) {
    for (auto it = book.kept.rbegin(); it != book.kept.rend(); ++it) {
      *model.add_plans() = PlanInfoOf(*it->plan);
    }
  }
  for (const auto& [place, bytes] : prepared) {
    model.mutable_memory()->set_prepared(model.memory().prepared() + bytes);
  }
  model.mutable_memory()->set_arenas(arenas);
  return model;
}

}  // namespace athanor
