#include "compiler/pipeline/search_session.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/pipeline/search_sizes.h"
#include "compiler/search/fusion.h"

namespace athanor {
namespace {

// A kernel this many times slower than the best of its task is not timed to the end.
constexpr double kGiveUp = 2.0;

// Values of the prepared graph's dims, from values of the user's.
absl::StatusOr<SizePoint> PreparedSizes(const Graph& graph, const Prepared& prepared,
                                        const internal::Sizes& given) {
  if (given.values_size() != static_cast<int>(graph.dims.size())) {
    return absl::InvalidArgumentError(absl::StrCat("search: ", given.values_size(), " sizes for ",
                                                   graph.dims.size(), " dims of the graph"));
  }
  SizePoint sizes;
  for (const std::string& name : prepared.dim_names) {
    auto dim = std::find_if(graph.dims.begin(), graph.dims.end(),
                            [&](const Dim& d) { return d.name == name; });
    sizes.push_back(given.values(static_cast<int>(dim - graph.dims.begin())));
  }
  return sizes;
}

// Of the baseline's kernels.
std::vector<SizePoint> ChooseSizes(const Graph& graph, const v1::Target& target) {
  const Genome genome = ChooseKernels(graph, target);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  Expr flops = 0, bytes = 0;
  for (const KernelChoice& k : genome.kernels) {
    flops += Flops(graph, memory, k.root);
    bytes += MovedBytes(graph, memory, k.root);
  }
  return SearchSizes(graph, flops, bytes);
}

int64_t WeightBytes(const Graph& graph) {
  int64_t total = 0;
  for (NodeId p : graph.ParameterIds()) {
    const TensorType& type = graph.node(p).type;
    int64_t bytes = DTypeBytes(type.dtype);
    for (const Expr& e : type.shape) bytes *= e.constant().value_or(1);
    total += bytes;
  }
  return total;
}

void AddSizes(const std::vector<SizePoint>& points,
              google::protobuf::RepeatedPtrField<internal::Sizes>* out) {
  for (const SizePoint& p : points) out->Add()->mutable_values()->Assign(p.begin(), p.end());
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
  auto fired = region.fired;
  std::sort(fired.begin(), fired.end(), [](const auto& a, const auto& b) {
    return std::tie(b.second, a.first) < std::tie(a.second, b.first);
  });
  for (const auto& [rule, applied] : fired) {
    v1::SearchRegion::RuleFirings* firings = out->add_fired();
    firings->set_rule(rule);
    firings->set_applied(static_cast<int64_t>(applied));
  }
}

SearchMode ModeOf(v1::SearchMode mode) {
  switch (mode) {
    case v1::SEARCH_FAST:
      return SearchMode::kFast;
    case v1::SEARCH_EXHAUST:
      return SearchMode::kExhaust;
    default:
      return SearchMode::kBudget;
  }
}

Machine MachineOf(const internal::SearchStart& start) {
  Machine machine = Machine::Typical(start.target());
  const internal::MachineReply& m = start.machine();
  if (m.read_bytes_per_second() > 0) machine.read_bytes_per_second = m.read_bytes_per_second();
  if (m.cache_bytes_per_second() > 0) machine.cache_bytes_per_second = m.cache_bytes_per_second();
  if (m.f32_flops_per_second() > 0) machine.f32_flops_per_second = m.f32_flops_per_second();
  return machine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SearchSession>> SearchSession::Create(
    const internal::SearchStart& start) {
  absl::StatusOr<Graph> graph = ParseGraph(start.graph_text());
  if (!graph.ok()) return graph.status();
  if (absl::Status s = Verify(*graph); !s.ok()) return s;
  absl::StatusOr<Prepared> prepared = Prepare(*graph);
  if (!prepared.ok()) return prepared.status();
  SearchOptions options;
  options.seed = start.seed();
  options.mode = ModeOf(start.mode());
  if (start.max_kernels() > 0) options.max_kernels = start.max_kernels();
  for (const internal::Sizes& sizes : start.sizes()) {
    absl::StatusOr<SizePoint> point = PreparedSizes(*graph, *prepared, sizes);
    if (!point.ok()) return point.status();
    options.sizes.push_back(*std::move(point));
  }
  if (options.sizes.empty()) options.sizes = ChooseSizes(prepared->graph, start.target());
  std::unique_ptr<SearchSession> session(
      new SearchSession(start, CanonicalHash(*graph), *std::move(prepared), std::move(options)));
  return session;
}

SearchSession::SearchSession(const internal::SearchStart& start, std::string graph_hash,
                             Prepared prepared, SearchOptions options)
    : target_(start.target()),
      builder_(target_),
      prepared_(std::move(prepared)),
      graph_hash_(std::move(graph_hash)),
      sizes_(options.sizes),
      weight_bytes_(WeightBytes(prepared_.graph)),
      mode_(start.mode() == v1::SEARCH_MODE_UNSPECIFIED ? v1::SEARCH_BUDGET : start.mode()),
      search_(SingleForm(prepared_.graph), target_, MachineOf(start), std::move(options)) {}

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
  return absl::OkStatus();
}

void SearchSession::Ask(int id, internal::SearchReply* reply) {
  const KernelCandidate& kernel = search_.kernel(id);
  absl::StatusOr<internal::CheckRequest> check =
      builder_.Check(search_.task(kernel.task), kernel.choice);
  if (!check.ok()) return search_.TellKernel(id, check.status());
  // The task's own kernel is the last: what packs its weights comes before.
  const v1::Plan& plan = check->plan();
  const uint32_t last = plan.run(plan.run_size() - 1).kernel();
  const std::string& key = plan.kernels(static_cast<int>(last)).source_hash();
  if (auto known = known_.find(key); known != known_.end()) {
    return search_.TellKernel(id, known->second);
  }
  const bool asked =
      std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w.second == key; });
  waiting_.emplace(id, key);
  if (asked) return;
  internal::SearchKernel* out = reply->add_kernels();
  out->set_key(key);
  *out->mutable_check() = *std::move(check);
  for (double seconds : search_.BestOf(kernel.task)) {
    out->add_best_seconds(seconds);
    out->add_give_up_seconds(seconds * kGiveUp);
  }
  AddSizes(sizes_, out->mutable_sizes());
  out->set_weight_bytes(weight_bytes_);
}

void SearchSession::TellPlan(int id, const internal::PlanOutcome& outcome) {
  std::optional<double> ratio;
  if (outcome.ratio() > 0) ratio = outcome.ratio();
  search_.TellPlan(id, outcome.taken(), ratio);
}

absl::Status SearchSession::AskPlan(int id, internal::SearchReply* reply) {
  const PlanCandidate& candidate = search_.plan(id);
  absl::StatusOr<BuiltPlan> built =
      builder_.Build(candidate.scheduled, {"search", graph_hash_, prepared_.dim_names});
  if (!built.ok()) {
    // Each kernel was lowered alone before: together they may still not be.
    search_.TellPlan(id, false);
    return absl::OkStatus();
  }
  const std::string& plan_id = built->plan.plan_id();
  if (auto known = plans_known_.find(plan_id); known != plans_known_.end()) {
    TellPlan(id, known->second);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<internal::KernelCheck>> checks = builder_.Checks(*built);
  if (!checks.ok()) return checks.status();
  plan_waiting_ = id;
  plan_id_ = plan_id;
  internal::SearchPlan* out = reply->mutable_plan();
  *out->mutable_plan() = std::move(built->plan);
  for (internal::KernelCheck& check : *checks) *out->add_checks() = std::move(check);
  AddSizes(sizes_, out->mutable_sizes());
  return absl::OkStatus();
}

absl::StatusOr<internal::SearchReply> SearchSession::Next(const internal::SearchRequest& request) {
  if (absl::Status s = TakeIn(request); !s.ok()) return s;
  for (const auto& [id, key] : waiting_) {
    auto known = known_.find(key);
    if (known == known_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("search: no outcome for kernel ", key));
    }
    search_.TellKernel(id, known->second);
  }
  waiting_.clear();
  if (plan_waiting_ >= 0) {
    auto known = plans_known_.find(plan_id_);
    if (known == plans_known_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("search: no outcome for plan ", plan_id_));
    }
    TellPlan(std::exchange(plan_waiting_, -1), known->second);
  }
  if (request.finish()) search_.Finish();
  internal::SearchReply reply;
  while (reply.kernels().empty() && !reply.has_plan()) {
    const Search::Step step = search_.Next();
    if (step.done) {
      reply.set_done(true);
      reply.set_stop(std::string(SearchStopName(step.stop)));
      break;
    }
    for (int id : step.kernels) Ask(id, &reply);
    if (step.plan >= 0) {
      if (absl::Status s = AskPlan(step.plan, &reply); !s.ok()) return s;
    }
  }
  *reply.mutable_progress() = Progress();
  AddSizes(sizes_, reply.mutable_sizes());
  return reply;
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
  progress.set_forms_tried(report.forms_tried);
  progress.set_forms_taken(report.forms_taken);
  for (absl::string_view rule : absl::StrSplit(report.rules, ' ', absl::SkipEmpty())) {
    progress.add_rules(std::string(rule));
  }
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
