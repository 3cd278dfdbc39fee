#include "server/search/search_steps.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "compiler/ir/graph/versions.h"
#include "server/base/log.h"
#include "server/child/tuner_channel.h"

namespace athanor {
namespace {

constexpr size_t kMostRecipes = 3;                 // of one region
constexpr size_t kRecipeBytes = size_t{16} << 20;  // of all: a bundle's may be of any size
constexpr int kMostLostChildren = 2;               // of one step

RecipeKey KeyOf(const internal::RegionRecipes& region) {
  return {.region_hash = region.region_hash(),
          .dim_box = region.dim_box(),
          .facts = region.facts(),
          .semantics_version = kSemanticsVersion,
          .recipe_format = kRecipeFormat};
}

}  // namespace

SearchSteps::SearchSteps(uint64_t session, const Graph& graph, TunerProcess* tuner,
                         const internal::TargetReply& machine, Cache* cache,
                         const CandidateMemory* memory, MachineLimits* limits,
                         const PlanSearchOptions& options, SearchRecord* record)
    : session_(session),
      tuner_(*tuner),
      machine_(machine),
      cache_(*cache),
      memory_(*memory),
      limits_(*limits),
      record_(*record),
      recipes_(options.recipes && graph.StateIds().empty()) {
  start_.set_graph_text(ToText(graph));
  *start_.mutable_target() = machine.target();
  start_.set_seed(options.seed);
  start_.set_max_kernels(options.max_candidates);
  start_.set_mode(options.mode);
  start_.mutable_disabled_rules()->Assign(options.disabled_rules.begin(),
                                          options.disabled_rules.end());
  start_.set_approximate(options.approximate);
}

absl::StatusOr<internal::MachineReply> SearchSteps::MeasureMachine(Time end) {
  const TunerProcess::Background background(&tuner_, end);
  const auto measure = [&] {
    return tuner_.Machine(machine_.target(), machine_.target().threads());
  };
  absl::StatusOr<internal::MachineReply> measured = record_.Timed("limits", measure);
  // Without limits there is no search: a child that is lost once may have been lost for something
  // else.
  const bool again = !start_.has_machine() && WorthRetrying(measured.status());
  return again ? record_.Timed("limits", measure) : std::move(measured);
}

absl::StatusOr<bool> SearchSteps::LearnLimits(MachineLimits::When when, Time end) {
  std::optional<internal::MachineReply> kept;
  if (!start_.has_machine()) kept = memory_.FindLimits();
  if (kept.has_value()) limits_.Recall(*kept);
  absl::StatusOr<internal::MachineReply> known =
      limits_.Get([&] { return MeasureMachine(end); }, when, end);
  if (!known.ok()) return known.status();
  const internal::MachineReply before =
      start_.has_machine() ? limits() : kept.value_or(internal::MachineReply());
  if (Raised(before, *known)) memory_.PutLimits(*known);
  if (!start_.has_machine()) {
    *start_.mutable_machine() = *std::move(known);
    return true;
  }
  if (!Raised(limits(), *known)) return false;
  internal::RaisedLimits& raised = raised_.emplace_back();
  raised.set_steps(step_.steps());
  *raised.mutable_machine() = *std::move(known);
  *news_.add_limits() = raised;
  return true;
}

internal::SearchRequest SearchSteps::Everything() const {
  internal::SearchRequest request;
  *request.mutable_start() = start_;
  for (const auto& [key, outcome] : kernels_) *request.add_kernels() = outcome;
  for (const auto& [id, outcome] : plans_) *request.add_plans() = outcome;
  for (const internal::RaisedLimits& raised : raised_) *request.add_limits() = raised;
  return request;
}

absl::Status SearchSteps::Ask(bool finish, Time end) {
  if (auto learnt = LearnLimits(MachineLimits::When::kDue, end); !learnt.ok()) {
    return learnt.status();
  }
  const auto ask = [&]() -> absl::Status {
    if (absl::Status s = LearnRecipes(); !s.ok()) return s;
    for (int losses = 0;; ++losses) {
      const bool knows = child_ == tuner_.starts() && tuner_.pid() >= 0;
      internal::SearchRequest request = knows ? news_ : Everything();
      request.set_session(session_);
      request.set_finish(finish);
      absl::StatusOr<internal::SearchReply> step = tuner_.Search(request);
      if (step.ok()) {
        child_ = tuner_.starts();
        step_ = *std::move(step);
        return absl::OkStatus();
      }
      const bool forgotten = absl::IsFailedPrecondition(step.status()) && knows;
      const bool again = forgotten || WorthRetrying(step.status());
      if (!again || losses >= kMostLostChildren) return step.status();
      child_ = -1;
    }
  };
  if (absl::Status s = record_.Timed("search", ask); !s.ok()) return s;
  news_.Clear();
  KeepRecipes();
  record_.TakeStep(step_.progress());
  return absl::OkStatus();
}

std::vector<internal::RegionPicture> SearchSteps::TakePictures() {
  auto& pictures = *step_.mutable_pictures();
  std::vector<internal::RegionPicture> taken(std::make_move_iterator(pictures.begin()),
                                             std::make_move_iterator(pictures.end()));
  step_.clear_pictures();
  return taken;
}

void SearchSteps::TellKernel(const std::string& key,
                             const absl::StatusOr<std::vector<double>>& outcome) {
  internal::KernelOutcome told;
  told.set_key(key);
  if (outcome.ok()) {
    told.mutable_seconds()->Assign(outcome->begin(), outcome->end());
  } else {
    told.set_code(static_cast<int>(outcome.status().code()));
    told.set_message(std::string(outcome.status().message()));
  }
  *news_.add_kernels() = told;
  kernels_[key] = std::move(told);
}

void SearchSteps::TellPlan(internal::PlanOutcome outcome) {
  *news_.add_plans() = outcome;
  const std::string id = outcome.plan_id();
  plans_[id] = std::move(outcome);
}

absl::Status SearchSteps::LearnRecipes() {
  if (!recipes_ || std::exchange(recipes_learnt_, true)) return absl::OkStatus();
  internal::SearchRequest request;
  request.set_session(session_);
  *request.mutable_start() = start_;
  request.mutable_start()->set_name_regions(true);
  absl::StatusOr<internal::SearchReply> named = tuner_.Search(request);
  if (absl::IsCancelled(named.status()) || absl::IsAborted(named.status())) return named.status();
  if (!named.ok()) {
    // The search itself will say what is wrong with the graph.
    LogWarn("search without recipes", {{"error", named.status().ToString()}});
    return absl::OkStatus();
  }
  size_t bytes = 0;
  for (internal::RegionRecipes& region : *named->mutable_regions()) {
    if (bytes > kRecipeBytes) break;
    for (v1::RegionRecipe& found :
         cache_.recipes().Find(KeyOf(region), machine_.target(), kMostRecipes)) {
      bytes += found.genome().size();
      if (bytes > kRecipeBytes) break;
      region.add_genomes(std::move(*found.mutable_genome()));
    }
    if (region.genomes_size() > 0) *start_.add_recipes() = std::move(region);
  }
  return absl::OkStatus();
}

void SearchSteps::KeepRecipes() {
  for (const std::string& why : step_.refused_recipes()) {
    LogWarn("recipe left out", {{"error", why}});
  }
  if (!recipes_) return;
  const v1::Target& target = machine_.target();
  for (const internal::RegionRecipes& region : step_.recipes()) {
    for (const std::string& genome : region.genomes()) {
      v1::RegionRecipe recipe;
      recipe.set_genome(genome);
      recipe.set_device(target.device());
      recipe.set_cpu(target.cpu());
      recipe.set_threads(target.threads());
      recipe.set_rule_set(absl::BytesToHexString(machine_.rule_set()));
      recipe.set_share_of_baseline(record_.progress().best());
      cache_.recipes().Put(KeyOf(region), recipe);
    }
  }
}

}  // namespace athanor
