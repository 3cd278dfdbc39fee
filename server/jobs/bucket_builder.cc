#include "server/jobs/bucket_builder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/memory/plan_memory.h"
#include "server/base/log.h"
#include "server/base/public_status.h"
#include "server/plans/bucket_choice.h"

namespace athanor {
namespace {

// Saving assumed for a baseline with narrower bounds if nothing was measured; least saving assumed
// for any plan of a box.
constexpr double kNarrower = 0.05, kLeastGain = 0.01;
constexpr double kPinnedGain = 1e6;  // so that it is loaded before all others

// Returns the full range's plan's share of the baseline's time at the box's sizes, if it was
// measured there.
std::optional<double> ShareOf(const CompiledPlans& plans, const std::string& full_id) {
  for (const auto& plan : plans) {
    if (plan->id() == full_id) return plan->share_of_baseline;
  }
  return std::nullopt;
}

class Builder {
 public:
  Builder(const BucketTools& tools, Registry& registry, CompileJob& job)
      : tools_(tools), registry_(registry), job_(job), version_(job.version()) {
    if (const auto full = version_->plan(); full != nullptr) full_id_ = full->id();
  }

  absl::Status Build() {
    RETURN_IF_ERROR(ChooseGrid());
    job_.Update([&](v1::CompileJob& state) { state.set_buckets_total(grid_->size() - 1); });
    made_.resize(grid_->size());
    // The plan that the version is pinned to serves all other sizes.
    const bool only_pinned = !version_->pinned_plan().empty() && !job_.buckets().has_value();
    for (int bucket = 1; bucket < grid_->size(); ++bucket) {
      const bool wanted = !only_pinned || !boxes_[bucket].pinned.empty();
      if (wanted && boxes_[bucket].serving == nullptr) RETURN_IF_ERROR(Make(bucket));
      RETURN_IF_ERROR(Stopped());
    }
    Load();
    RETURN_IF_ERROR(Stopped());
    return Serve();
  }

 private:
  absl::Status Stopped() const {
    if (!job_.stop_requested().has_value()) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat("job ", job_.id(), " was stopped"));
  }

  absl::Status LosesPin(const Plans::View& now, int bucket) const {
    return absl::FailedPreconditionError(
        absl::StrCat(version_->Describe(), ": bucket ", now.grid->Text(bucket),
                     " is pinned to plan ", now.box(bucket).pinned,
                     " and not among the buckets asked for; unpin it first, or ask for it too"));
  }

  // Determines the new boxes, with the plans they already have.
  absl::Status ChooseGrid() {
    const Plans::View now = version_->plans().view();
    grid_ = now.grid;
    boxes_ = now.books;
    if (!job_.buckets().has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto asked,
                     BucketGrid::Create(version_->graph(), *job_.buckets(), tools_.max_buckets));
    if (asked == *grid_) return absl::OkStatus();
    grid_ = std::make_shared<const BucketGrid>(std::move(asked));
    boxes_.assign(grid_->size(), {});
    for (int from = 1; from < now.grid->size(); ++from) {
      if (now.box(from).pinned.empty()) continue;
      int to = 1;
      while (to < grid_->size() && grid_->box(to) != now.grid->box(from)) ++to;
      if (to == grid_->size()) return LosesPin(now, from);
      boxes_[to] = now.box(from);
    }
    return absl::OkStatus();
  }

  void Refuse(int bucket, const absl::Status& status) {
    boxes_[bucket].reason = std::string(PublicStatus(status).message());
    LogWarn("bucket without a plan of its own", {{"model", version_->name()},
                                                 {"version", version_->version()},
                                                 {"bucket", grid_->Text(bucket)},
                                                 {"error", status.ToString()}});
  }

  // ABORTED: it gives way. Other errors of making the plans are the bucket's.
  absl::Status Make(int bucket) {
    job_.Update([&](v1::CompileJob& state) {
      state.set_message(
          absl::StrCat("bucket ", bucket, " of ", grid_->size() - 1, ": ", grid_->Text(bucket)));
    });
    const Graph graph = NarrowedTo(version_->graph(), grid_->box(bucket));
    const std::string& pinned = boxes_[bucket].pinned;
    absl::StatusOr<CompiledPlans> made = CompiledPlans();
    if (pinned.empty()) {
      made = tools_.make(graph);
    } else if (auto found = tools_.pinned(graph, pinned); found.ok()) {
      made->push_back(*std::move(found));
    } else {
      made = found.status();
    }
    if (absl::IsAborted(made.status())) return made.status();
    if (made.ok()) {
      made_[bucket] = *std::move(made);
    } else if (!job_.stop_requested().has_value()) {
      Refuse(bucket, made.status());
    }
    job_.Update([&](v1::CompileJob& state) { state.set_buckets_done(bucket); });
    return absl::OkStatus();
  }

  // What it saves of the time that the full range's plan takes there.
  double GainOf(int bucket, const CompiledPlan& plan) const {
    if (!boxes_[bucket].pinned.empty()) return kPinnedGain;
    const double share = plan.share_of_baseline;
    if (const auto full = ShareOf(made_[bucket], full_id_)) return (*full - share) / *full;
    return std::max(kLeastGain, (1 + kNarrower - share) / (1 + kNarrower));
  }

  // Returns who is asked for the memory of plans: a GPU has its own.
  const MemoryLedger& ledger() const {
    const MemoryLedger* const own = tools_.pool != nullptr ? tools_.pool->ledger() : nullptr;
    return own != nullptr ? *own : registry_.ledger();
  }

  // What loading it would take that nobody holds yet.
  BucketCandidate CandidateOf(int bucket, const CompiledPlan& plan) const {
    BucketCandidate candidate{.bucket = bucket, .gain = GainOf(bucket, plan)};
    ParameterHashes hashes;
    const std::vector<NodeId> ids = version_->graph().ParameterIds();
    for (size_t i = 0; i < ids.size(); ++i) {
      hashes[version_->graph().node(ids[i]).name] = version_->parameter_hashes()[i];
    }
    // A plan that says nothing of its memory is refused, if at all, when it is loaded.
    const bool host_memory = tools_.pool == nullptr || tools_.pool->host_memory();
    const auto memory = MemoryOf(plan.plan, hashes, host_memory);
    if (!memory.ok()) return candidate;
    for (const PlanMemory::Weight& weight : memory->weights) {
      if (tools_.pool != nullptr && tools_.pool->Find(weight.key).has_value()) continue;
      candidate.weights.push_back(weight);
    }
    return candidate;
  }

  // Adds to `plans_` and `input`, by position; leaves out plans that save nothing.
  void AddCandidates(int bucket, BucketChoiceInput* input) {
    for (const auto& plan : made_[bucket]) {
      BucketCandidate candidate = CandidateOf(bucket, *plan);
      if (candidate.gain <= 0) continue;
      input->candidates.push_back(std::move(candidate));
      plans_.push_back(plan);
    }
  }

  void Load() {
    BucketChoiceInput input{.buckets = grid_->size()};
    for (int bucket = 1; bucket < grid_->size(); ++bucket) {
      const size_t before = plans_.size();
      AddCandidates(bucket, &input);
      if (made_[bucket].empty() || plans_.size() > before) continue;
      boxes_[bucket].reason = "the full range's plan takes no longer there than any of its own";
      made_[bucket].clear();
    }
    input.bytes_free = ledger().free();
    const std::vector<int> chosen = ChoosePlans(input);
    const int64_t bytes = BytesOf(input, chosen);
    for (int bucket = 1; bucket < grid_->size(); ++bucket) {
      if (made_[bucket].empty() || job_.stop_requested().has_value()) continue;
      if (chosen[bucket] < 0) {
        Refuse(bucket, absl::ResourceExhaustedError(
                           absl::StrCat("its weights do not fit beside the ", bytes,
                                        " bytes of the other buckets: ", ledger().free(),
                                        " are free of the limit of ", ledger().limit_name())));
        continue;
      }
      LoadOne(bucket, plans_[chosen[bucket]]);
    }
  }

  void LoadOne(int bucket, const std::shared_ptr<const CompiledPlan>& plan) {
    auto loaded = tools_.load(NarrowedTo(version_->graph(), grid_->box(bucket)), plan);
    if (!loaded.ok()) return Refuse(bucket, loaded.status());
    PlanBook& box = boxes_[bucket];
    box.serving = *std::move(loaded);
    box.reason.clear();
    if (ShareOf(made_[bucket], full_id_).has_value()) box.beside = full_id_;
  }

  absl::Status Serve() {
    const bool others = version_->plans().grid() != grid_;
    if (others) {
      RETURN_IF_ERROR(registry_.publisher().SetBuckets(*version_, *job_.buckets()));
    }
    int own = 0;
    boxes_[BucketGrid::kFullRange].serving = nullptr;  // it serves already
    for (const PlanBook& box : boxes_) own += box.serving != nullptr ? 1 : 0;
    absl::Status serves = registry_.publisher().PublishBoxes(*version_, grid_, std::move(boxes_));
    if (!serves.ok()) return serves;
    if (grid_->size() > 1) {
      LogInfo("buckets serve", {{"job", job_.id()},
                                {"model", version_->name()},
                                {"version", version_->version()},
                                {"buckets", grid_->size() - 1},
                                {"plans", own}});
    }
    return absl::OkStatus();
  }

  const BucketTools& tools_;
  Registry& registry_;
  CompileJob& job_;
  const std::shared_ptr<ModelVersion> version_;
  std::shared_ptr<const BucketGrid> grid_;
  // By bucket.
  std::vector<PlanBook> boxes_;
  std::vector<CompiledPlans> made_;
  CompiledPlans plans_;  // those that may be loaded
  std::string full_id_;  // id of the full range's plan
};

}  // namespace

absl::Status BuildBuckets(const BucketTools& tools, Registry& registry, CompileJob& job) {
  return Builder(tools, registry, job).Build();
}

}  // namespace athanor
