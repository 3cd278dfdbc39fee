#include "compiler/pipeline/search_session.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/pipeline/recipes.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/search/regions/region_forms.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Limits: e-nodes of an e-graph that can still be read as a picture, and bytes of all pictures of a
// search, which the server keeps.
constexpr size_t kDrawnNodes = 300, kPictureBytes = size_t{1} << 20;

void AddSizes(const std::vector<SizePoint>& points,
              google::protobuf::RepeatedPtrField<internal::Sizes>* out) {
  for (const SizePoint& p : points) out->Add()->mutable_values()->Assign(p.begin(), p.end());
}

void AddRule(const egraph::RuleReport& rule, v1::SearchRule* out) {
  const RuleRow& row = RuleRows()[rule.tag];
  out->set_rule(rule.name);
  out->set_fired(static_cast<int64_t>(rule.unions));
  out->set_family(std::string(row.family));
  out->set_rule_class(std::string(RuleClassName(row.rule_class)));
  out->set_matches(static_cast<int64_t>(rule.matches));
  out->set_refused(static_cast<int64_t>(rule.refused));
  out->set_errors(static_cast<int64_t>(rule.errors));
  out->set_last_error(rule.last_error);
  out->set_bans(static_cast<int32_t>(rule.bans));
  out->set_banned_iterations(static_cast<int32_t>(rule.banned_iterations));
  out->set_milliseconds((rule.match_us + rule.apply_us) / 1e3);
}

void AddRegion(const RegionReport& region, v1::SearchRegion* out) {
  out->set_instances(region.instances);
  out->set_nodes(region.graph_nodes);
  out->set_e_nodes(static_cast<int64_t>(region.e_nodes));
  out->set_e_classes(static_cast<int64_t>(region.e_classes));
  out->set_iterations(region.iterations);
  out->set_milliseconds(region.seconds * 1e3);
  out->set_peak_bytes(static_cast<int64_t>(region.peak_bytes));
  out->set_stop(egraph::StopReasonText(region.stop));
  std::vector<egraph::RuleReport> rules = region.rules;
  std::sort(rules.begin(), rules.end(), [](const auto& a, const auto& b) {
    return std::tie(b.unions, a.name) < std::tie(a.unions, b.name);
  });
  for (const egraph::RuleReport& rule : rules) AddRule(rule, out->add_rules());
}

// Returns the forms that the rules make of the prepared graph. Saturates only after the baseline's
// kernels were measured. Where plans keep to one signature the graph stays as it is: in another
// form sums may take the places of those that are alike (signature.h).
std::unique_ptr<FormSpace> FormsOf(const SearchSetup& setup) {
  if (setup.options.fixed_sums) return SingleForm(setup.prepared.graph);
  RegionFormsOptions options{.sizes = setup.options.sizes,
                             .machine = setup.machine,
                             .rules = setup.rules,
                             .recipes = setup.options.recipes};
  auto make = [graph = setup.prepared.graph,
               options = std::move(options)]() -> absl::StatusOr<std::unique_ptr<FormSpace>> {
    return RegionForms::Create(graph, options);
  };
  return DeferredForms(setup.prepared.graph, std::move(make));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SearchSession>> SearchSession::Create(
    const internal::SearchStart& start) {
  ASSIGN_OR_RETURN(SearchSetup setup, ReadSearchStart(start));
  return std::unique_ptr<SearchSession>(new SearchSession(start, setup));
}

SearchSession::SearchSession(const internal::SearchStart& start, const SearchSetup& setup)
    : target_(start.target()),
      builder_(target_, setup.paged),
      prepared_(setup.prepared),
      graph_hash_(setup.graph_hash),
      sizes_(setup.options.sizes),
      weight_bytes_(WeightBytes(prepared_.graph)),
      mode_(start.mode() == v1::SEARCH_MODE_UNSPECIFIED ? v1::SEARCH_BUDGET : start.mode()),
      refused_recipes_(setup.refused_recipes),
      search_(FormsOf(setup), target_, setup.machine, setup.options) {}

absl::Status SearchSession::TakeIn(const internal::SearchRequest& request) {
  for (const internal::KernelOutcome& outcome : request.kernels()) {
    if (outcome.code() != 0) {
      known_.insert_or_assign(
          outcome.key(),
          absl::Status(static_cast<absl::StatusCode>(outcome.code()), outcome.message()));
      continue;
    }
    if (outcome.seconds_size() != static_cast<int>(sizes_.size())) {
      return absl::InvalidArgumentError(absl::StrCat("search: kernel ", outcome.key(), " has ",
                                                     outcome.seconds_size(), " times for ",
                                                     sizes_.size(), " sizes"));
    }
    known_.insert_or_assign(outcome.key(),
                            Seconds(outcome.seconds().begin(), outcome.seconds().end()));
  }
  for (const internal::PlanOutcome& outcome : request.plans()) {
    plans_known_[outcome.plan_id()] = outcome;
  }
  raised_.insert(raised_.end(), request.limits().begin(), request.limits().end());
  return absl::OkStatus();
}

void SearchSession::Ask(int id, internal::SearchReply* reply) {
  const KernelCandidate& kernel = search_.kernel(id);
  absl::StatusOr<internal::CheckRequest> check =
      builder_.Check(search_.task(kernel.task), kernel.choice);
  if (!check.ok()) {
    waiting_.emplace(id, Waiting{"", check.status()});
    return;
  }
  // The key is not the source's: tasks over other dims, or with a parameter in an input's place,
  // may share a source and still take another time.
  const std::string& key = check->plan().plan_id();
  const bool expected =
      known_.contains(key) || std::any_of(waiting_.begin(), waiting_.end(),
                                          [&](const auto& w) { return w.second.key == key; });
  waiting_.emplace(id, Waiting{key, {}});
  if (expected) return;
  internal::SearchKernel* out = reply->add_kernels();
  out->set_key(key);
  *out->mutable_check() = *std::move(check);
  const Seconds& weights = search_.size_weights();
  out->mutable_size_weights()->Assign(weights.begin(), weights.end());
  const Seconds& best = search_.BestOf(kernel.task);
  out->set_task(static_cast<uint32_t>(kernel.task));
  out->mutable_best_seconds()->Assign(best.begin(), best.end());
  if (!best.empty()) *out->mutable_best()->mutable_plan() = BestPlanOf(kernel.task);
  // A kernel that takes longer than the whole baseline is of no use.
  for (size_t s = 0; best.empty() && s < weights.size(); ++s) {
    const double share = weights[s] * static_cast<double>(weights.size());
    out->add_give_up_seconds(share > 0 ? 1 / share : 0);
  }
  AddSizes(sizes_, out->mutable_sizes());
  out->set_weight_bytes(weight_bytes_);
}

const v1::Plan& SearchSession::BestPlanOf(int task) {
  const Seconds& seconds = search_.BestOf(task);
  auto [it, is_new] = best_plans_.try_emplace(task);
  auto& [of, plan] = it->second;
  if (is_new || of != seconds) {
    of = seconds;
    // It was lowered when it was asked for, so it can be.
    plan = *builder_.Check(search_.task(task), search_.BestChoiceOf(task))->mutable_plan();
  }
  return plan;
}

void SearchSession::TellPlan(int id, const internal::PlanOutcome& outcome) {
  const int form = search_.plan(id).form;
  if (outcome.wrong() && form > 0) wrong_forms_.insert(form);
  std::optional<double> ratio;
  if (outcome.ratio() > 0) ratio = outcome.ratio();
  search_.TellPlan(id, outcome.taken(), ratio);
}

absl::Status SearchSession::AskPlan(int id, internal::SearchReply* reply) {
  const PlanCandidate& candidate = search_.plan(id);
  plan_waiting_ = id;
  plan_id_.clear();
  if (wrong_forms_.contains(candidate.form)) return absl::OkStatus();
  absl::StatusOr<BuiltPlan> built =
      builder_.Build(candidate.scheduled, {"search", graph_hash_, prepared_.dim_names});
  // Kernels that were lowered alone may still fail to be lowered together.
  if (!built.ok()) return absl::OkStatus();
  plan_id_ = built->plan.plan_id();
  if (plans_known_.contains(plan_id_)) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<internal::KernelCheck> checks, builder_.Checks(*built));
  internal::SearchPlan* out = reply->mutable_plan();
  *out->mutable_plan() = std::move(built->plan);
  for (internal::KernelCheck& check : checks) *out->add_checks() = std::move(check);
  AddSizes(sizes_, out->mutable_sizes());
  if (candidate.form > 0) {
    out->set_about(
        absl::StrCat("form ", candidate.form, ": ", search_.forms().About(candidate.form)));
  }
  return absl::OkStatus();
}

// Tells a step's outcomes together and in order of their ids, whichever were known before, so that
// a session begun again makes the same search.
absl::Status SearchSession::TellStep() {
  for (const auto& [id, waiting] : waiting_) {
    if (!waiting.failed.ok()) {
      search_.TellKernel(id, waiting.failed);
      continue;
    }
    auto known = known_.find(waiting.key);
    if (known == known_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("search: no outcome for kernel ", waiting.key));
    }
    search_.TellKernel(id, known->second);
  }
  waiting_.clear();
  if (plan_waiting_ < 0) return absl::OkStatus();
  const int plan = std::exchange(plan_waiting_, -1);
  if (plan_id_.empty()) {
    search_.TellPlan(plan, false);
    return absl::OkStatus();
  }
  auto known = plans_known_.find(plan_id_);
  if (known == plans_known_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("search: no outcome for plan ", plan_id_));
  }
  TellPlan(plan, known->second);
  return absl::OkStatus();
}

void SearchSession::TellLimits() {
  for (; RaisedByNow(); raised_.pop_front()) {
    search_.RaiseLimits(MachineOf(target_, raised_.front().machine()));
  }
}

absl::StatusOr<internal::SearchReply> SearchSession::Next(const internal::SearchRequest& request) {
  RETURN_IF_ERROR(TakeIn(request));
  RETURN_IF_ERROR(TellStep());
  if (request.finish()) search_.Finish();
  internal::SearchReply reply;
  while (reply.kernels().empty() && !reply.has_plan()) {
    RETURN_IF_ERROR(TellStep());
    TellLimits();
    const Search::Step step = search_.Next();
    ++steps_;
    if (step.done && RaisedByNow()) continue;
    if (step.done) {
      reply.set_done(true);
      reply.set_stop(std::string(SearchStopName(step.stop)));
      AddRecipes(search_.Recipes(), &reply);
      break;
    }
    for (int id : step.kernels) Ask(id, &reply);
    if (step.plan >= 0) {
      RETURN_IF_ERROR(AskPlan(step.plan, &reply));
    }
  }
  *reply.mutable_progress() = Progress();
  if (!drawn_) AddPictures(&reply);
  for (std::string& why : std::exchange(refused_recipes_, {})) {
    reply.add_refused_recipes(std::move(why));
  }
  AddSizes(sizes_, reply.mutable_sizes());
  reply.set_steps(steps_);
  return reply;
}

void SearchSession::AddPictures(internal::SearchReply* reply) {
  const int regions = reply->progress().regions_size();
  drawn_ = regions > 0;
  size_t bytes = 0;
  for (int region = 0; region < regions; ++region) {
    absl::StatusOr<std::string> dot = search_.forms().Dot(region, kDrawnNodes);
    if (dot.ok() && bytes + dot->size() > kPictureBytes) {
      dot = absl::FailedPreconditionError(
          absl::StrCat("the picture of region ", region, " would take ", dot->size(),
                       " bytes; those of the regions before it have ", bytes, " of the ",
                       kPictureBytes, " that all may have"));
    }
    internal::RegionPicture* picture = reply->add_pictures();
    if (!dot.ok()) {
      picture->set_error(std::string(dot.status().message()));
      continue;
    }
    bytes += dot->size();
    picture->set_dot(*std::move(dot));
  }
}

v1::SearchProgress SearchSession::Progress() {
  const SearchReport report = search_.Report();
  v1::SearchProgress progress;
  progress.set_mode(mode_);
  progress.set_candidates(report.kernels_measured);
  progress.set_candidates_failed(report.kernels_failed);
  progress.set_genomes_tried(report.genomes_tried);
  progress.set_genomes_taken(report.genomes_taken);
  progress.set_predicted(report.predicted);
  progress.set_roofline(report.roofline);
  progress.set_limited_by(report.limited_by);
  progress.set_forms_tried(report.forms_tried);
  progress.set_forms_taken(report.forms_taken);
  progress.set_recipes_tried(report.recipes_tried);
  for (absl::string_view rule : absl::StrSplit(report.rules, ' ', absl::SkipEmpty())) {
    progress.add_rules(std::string(rule));
  }
  if (!report.forms.ok()) progress.set_forms_error(report.forms.ToString());
  for (const RegionReport& region : report.regions) AddRegion(region, progress.add_regions());
  for (const SizePoint& sizes : sizes_) {
    std::string text;
    for (size_t d = 0; d < sizes.size(); ++d) {
      absl::StrAppend(&text, d > 0 ? " " : "", prepared_.dim_names[d], "=", sizes[d]);
    }
    progress.add_sizes(std::move(text));
  }
  for (const TaskReport& t : report.tasks) {
    v1::SearchTask* task = progress.add_tasks();
    task->set_about(t.about);
    task->set_calls(t.calls);
    task->set_schedule(t.schedule);
    task->set_measured(t.measured);
    task->set_failed(t.failed);
    task->mutable_seconds()->Assign(t.best.begin(), t.best.end());
    task->mutable_first_seconds()->Assign(t.first.begin(), t.first.end());
    task->mutable_roofline_seconds()->Assign(t.roofline.begin(), t.roofline.end());
  }
  return progress;
}

}  // namespace athanor
