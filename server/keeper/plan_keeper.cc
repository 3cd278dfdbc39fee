#include "server/keeper/plan_keeper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/graph/versions.h"
#include "server/base/log.h"
#include "server/base/machine_id.h"

namespace athanor {
namespace {

constexpr absl::string_view kBaseline = "baseline";  // Plan.kind
constexpr std::chrono::seconds kMostWait{1};         // for the cache's writer

// Reports whether this machine has no library that plans of its GPU call.
bool LacksLibrary(const PlanKey& key) {
  return key.made_under.target.device() == "cuda" && key.made_under.libraries.empty();
}

// Reports whether a stored plan was found without the rules that `policy` disables, and calls no
// library that this machine lacks.
bool Allowed(const internal::StoredPlan& stored, const SearchPolicy& policy, const PlanKey& key) {
  if (stored.plan().kind() == kBaseline) return true;
  if (!policy.budget.search) return false;
  const auto& kernels = stored.plan().kernels();
  const bool calls = std::any_of(kernels.begin(), kernels.end(),
                                 [](const v1::Kernel& kernel) { return kernel.library_call(); });
  if (calls && LacksLibrary(key)) return false;
  const auto& left_out = stored.how().disabled_rules();
  return std::all_of(policy.disabled_rules.begin(), policy.disabled_rules.end(),
                     [&](const std::string& rule) {
                       return std::find(left_out.begin(), left_out.end(), rule) != left_out.end();
                     });
}

// Prefers measurements made under this machine's conditions.
bool Faster(const PlanRow& a, const PlanRow& b) {
  if (a.conditions_equal != b.conditions_equal) return a.conditions_equal;
  const auto share = [](const PlanRow& row) {
    return row.stored.plan().kind() == kBaseline ? 1.0 : row.share_of_baseline;
  };
  return share(a) < share(b);
}

}  // namespace

void PlanKeeper::SetMachine(const internal::TargetReply& machine) {
  MutexLock lock(mu_);
  machines_[machine.device()] = machine;
  if (clocks_.empty()) clocks_ = ClocksText();
}

bool PlanKeeper::ready(const ModelVersion& version) const {
  MutexLock lock(mu_);
  return machines_.count(version.device()) > 0;
}

PlanKey PlanKeeper::KeyOf(const ModelVersion& version, const Graph& graph,
                          const v1::SearchOptions& how) const {
  PlanKey key;
  key.semantics_version = kSemanticsVersion;
  key.plan_format = kPlanFormat;
  key.graph_hash = version.graph_hash();
  std::vector<std::string> dims, inputs, parameters, outputs;
  const Graph canonical = Canonicalize(graph, &dims);
  std::vector<std::string> box;
  for (const Dim& dim : canonical.dims) {
    box.push_back(absl::StrCat(dim.name, "=", dim.min, "..", dim.max));
  }
  // Adds dims that no node uses: plans name these too.
  for (const Dim& dim : graph.dims) {
    if (std::find(dims.begin(), dims.end(), dim.name) != dims.end()) continue;
    box.push_back(absl::StrCat("d", dims.size(), "=", dim.min, "..", dim.max));
    dims.push_back(dim.name);
  }
  key.dim_box = absl::StrJoin(box, " ");
  for (NodeId id : graph.InputIds()) inputs.push_back(graph.node(id).name);
  for (NodeId id : graph.ParameterIds()) parameters.push_back(graph.node(id).name);
  for (const Output& output : graph.outputs) outputs.push_back(output.name);
  key.interface_hash = InterfaceHash(inputs, parameters, outputs, dims);
  key.approximate = how.approximate();
  key.disabled_rules.assign(how.disabled_rules().begin(), how.disabled_rules().end());
  MutexLock lock(mu_);
  const internal::TargetReply& machine = machines_.at(version.device());
  key.made_under.target = machine.target();
  key.made_under.compiler_version = machine.compiler_version();
  key.made_under.rule_set = absl::BytesToHexString(machine.rule_set());
  key.made_under.libraries = machine.target().blas();
  key.made_under.driver = machine.driver();
  key.made_under.clocks = clocks_;
  return key;
}

internal::StoredPlan PlanKeeper::Stored(const PlanKey& key, const CompiledPlan& compiled,
                                        const PlanCosts& costs) {
  internal::StoredPlan stored;
  *stored.mutable_plan() = compiled.plan;
  if (!compiled.how.budget().empty()) *stored.mutable_how() = compiled.how;
  if (costs != nullptr) *stored.mutable_costs() = {costs->begin(), costs->end()};
  for (const v1::Kernel& kernel : compiled.plan.kernels()) {
    stored.add_kernel_keys(KernelKeyOf(kernel, key.made_under).Hash());
  }
  return stored;
}

KeptPlan PlanKeeper::Revived(const PlanKey& plan_key, const internal::StoredPlan& stored,
                             double share) const {
  auto compiled = std::make_shared<CompiledPlan>();
  compiled->plan = stored.plan();
  compiled->how = stored.how();
  compiled->share_of_baseline = share;
  for (int i = 0; i < stored.plan().kernels_size(); ++i) {
    const KernelKey key = KernelKeyOf(stored.plan().kernels(i), plan_key.made_under);
    // An object is stored before it is checked. So an object under another key than the verified
    // one says nothing about this plan.
    const bool verified = i < stored.kernel_keys_size() && stored.kernel_keys(i) == key.Hash();
    std::optional<std::string> object;
    if (verified && cache_ != nullptr) object = cache_->kernels().Find(key);
    if (object.has_value()) {
      ++cache_->work().kernels_from_cache;
    } else {
      compiled->missing.push_back(i);
    }
    compiled->objects.push_back({object.value_or(""), object.has_value()});
  }
  PlanCosts costs;
  if (!stored.costs().empty()) {
    costs =
        std::make_shared<std::vector<v1::PlanCost>>(stored.costs().begin(), stored.costs().end());
  }
  return {.plan = std::move(compiled), .costs = std::move(costs)};
}

std::string PlanKeeper::WhyNot(const PlanKey& key) const {
  if (cache_ == nullptr) return "there is no cache";
  const v1::BucketExplanation explanation = cache_->Explain(key);
  if (explanation.hit()) return absl::StrCat("the cache has plan ", explanation.plan_id());
  std::string why = absl::StrJoin(explanation.steps(), "; ");
  for (const auto& difference : explanation.differences()) {
    if (!difference.gates()) continue;
    absl::StrAppend(&why, "; ", difference.column(), " \"", difference.found(), "\" is not \"",
                    difference.wanted(), "\"");
  }
  return why;
}

std::string PlanKeeper::Refusal(const PlanKey& key, const std::string& plan_id) const {
  const std::string gate = GateHash(key.Fields());
  MutexLock lock(mu_);
  const auto refused = refused_.find({gate, plan_id});
  return refused == refused_.end() ? "" : refused->second;
}

void PlanKeeper::TakeBack(const PlanKey& key, const std::string& plan_id) {
  const std::string gate = GateHash(key.Fields());
  MutexLock lock(mu_);
  refused_.erase({gate, plan_id});
}

absl::StatusOr<KeptPlan> PlanKeeper::Find(const ModelVersion& version, const PlanKey& key,
                                          const std::string& plan_id) const {
  if (const std::string why = Refusal(key, plan_id); !why.empty()) {
    return absl::NotFoundError(absl::StrCat("plan ", plan_id, " was quarantined: ", why));
  }
  if (cache_ != nullptr) {
    if (std::optional<PlanRow> row = cache_->plans().FindById(key, plan_id)) {
      return Revived(key, row->stored);
    }
  }
  if (std::optional<internal::StoredPlan> pinned = pins_.Read(version, key, plan_id)) {
    return Revived(key, *pinned);
  }
  return absl::NotFoundError(absl::StrCat("plan ", plan_id, " is not in the cache: ", WhyNot(key)));
}

PlanKeeper::Rows PlanKeeper::Choose(PlanKey key, const SearchPolicy& policy, bool bodies) const {
  Rows choice;
  for (const bool approximate : {false, true}) {
    if (approximate && !policy.approximate) continue;
    key.approximate = approximate;
    bool first = true;  // the first row that qualifies is taken
    for (const PlanRow& row : bodies ? cache_->plans().All(key) : cache_->plans().Heads(key)) {
      const v1::Plan& plan = row.stored.plan();
      if (!Refusal(key, plan.plan_id()).empty()) continue;
      if (first && Allowed(row.stored, policy, key)) {
        if (!choice.fastest || Faster(row, *choice.fastest)) choice.fastest = row;
        first = false;
      }
      if (!choice.baseline && plan.kind() == kBaseline) choice.baseline = row;
    }
  }
  return choice;
}

absl::StatusOr<std::vector<KeptPlan>> PlanKeeper::FindBest(PlanKey key,
                                                           const SearchPolicy& policy) const {
  if (cache_ == nullptr) return absl::NotFoundError("there is no cache");
  const Rows choice = Choose(key, policy, /*bodies=*/true);
  if (!choice.fastest) {
    return absl::NotFoundError(absl::StrCat("no plan is in the cache: ", WhyNot(key)));
  }
  const internal::StoredPlan& best = choice.fastest->stored;
  if (!choice.baseline) {
    return absl::NotFoundError(
        absl::StrCat("plan ", best.plan().plan_id(), " is in the cache, but its baseline is not"));
  }
  const internal::StoredPlan& baseline = choice.baseline->stored;
  std::vector<KeptPlan> found = {Revived(key, best)};
  if (best.plan().plan_id() != baseline.plan().plan_id()) found.push_back(Revived(key, baseline));
  return found;
}

CompiledPlans PlanKeeper::FindAll(PlanKey key, const SearchPolicy& policy, size_t most) const {
  if (cache_ == nullptr) return {};
  std::vector<PlanRow> rows;
  for (const bool approximate : {false, true}) {
    if (approximate && !policy.approximate) continue;
    key.approximate = approximate;
    for (PlanRow& row : cache_->plans().All(key)) {
      const std::string& id = row.stored.plan().plan_id();
      if (!Allowed(row.stored, policy, key) || !Refusal(key, id).empty()) continue;
      const auto at = std::upper_bound(rows.begin(), rows.end(), row, Faster);
      rows.insert(at, std::move(row));
    }
  }
  CompiledPlans plans;
  bool baseline = false;
  for (const PlanRow& row : rows) {
    const bool is_baseline = row.stored.plan().kind() == kBaseline;
    if (is_baseline ? baseline : plans.size() >= most) continue;
    // Times measured under other conditions cannot be compared with these.
    if (!is_baseline && row.conditions_equal != rows.front().conditions_equal) continue;
    KeptPlan kept = Revived(key, row.stored, is_baseline ? 1 : row.share_of_baseline);
    if (!kept.plan->whole()) continue;
    baseline |= is_baseline;
    plans.push_back(std::move(kept.plan));
  }
  return plans;
}

std::string PlanKeeper::BestId(PlanKey key, const SearchPolicy& policy) const {
  if (cache_ == nullptr) return "";
  // Rows without bodies do not say whether a plan calls a library.
  const bool bodies = LacksLibrary(key);
  const Rows choice = Choose(std::move(key), policy, bodies);
  if (!choice.fastest || !choice.baseline) return "";
  const internal::StoredPlan& best = choice.fastest->stored;
  const bool whole =
      std::all_of(best.kernel_keys().begin(), best.kernel_keys().end(),
                  [&](const std::string& kernel) { return cache_->kernels().Has(kernel); });
  return whole ? best.plan().plan_id() : "";
}

void PlanKeeper::PutBaseline(const PlanKey& key, const CompiledPlan& baseline) {
  if (cache_ == nullptr) return;
  PlanKey exact = key;
  exact.approximate = false;
  TakeBack(exact, baseline.id());
  const std::optional<PlanRow> before = cache_->plans().Find(exact);
  const bool first = !before.has_value() || !before->conditions_equal;
  // Writing it again would drop the costs of its steps.
  const std::optional<PlanRow> same = cache_->plans().FindById(exact, baseline.id());
  if (same.has_value() && same->conditions_equal) return;
  PlanRow row;
  row.stored = Stored(key, baseline, nullptr);
  row.incumbent = first;
  row.compared_with = "kernels";
  cache_->plans().Put(exact, row);
}

absl::Status PlanKeeper::PutVerified(const ModelVersion& version, const PlanKey& key,
                                     const KeptPlan& kept, bool pinned) {
  TakeBack(key, kept.plan->id());
  if (pinned) {
    if (absl::Status s = Pin(version, key, kept); !s.ok()) return s;
  }
  if (cache_ == nullptr) return absl::OkStatus();
  if (auto row = cache_->plans().FindById(key, kept.plan->id())) {
    row->stored = Stored(key, *kept.plan, kept.costs);
    cache_->plans().Put(key, *row);
  }
  return absl::OkStatus();
}

void PlanKeeper::Quarantine(const ModelVersion& version, const PlanKey& key,
                            const std::string& plan_id, const absl::Status& verdict) {
  const std::string why = absl::StrCat("verified again and wrong: ", verdict.message());
  {
    const std::string gate = GateHash(key.Fields());
    MutexLock lock(mu_);
    refused_[{gate, plan_id}] = why;
  }
  // Its kernels were kept when they were compiled, so the next start would take the plan for
  // verified.
  pins_.Remove(version, plan_id);
  absl::Status quarantined =
      cache_ == nullptr ? absl::OkStatus() : cache_->plans().Quarantine(key, plan_id, why);
  LogWarn("a stored plan was quarantined",
          {{"model", version.name()},
           {"version", version.version()},
           {"plan", plan_id},
           {"why", why},
           {"in_the_cache", quarantined.ok() ? "OK" : quarantined.ToString()}});
}

void PlanKeeper::PutFound(const PlanKey& key, const CompiledPlan& found, const std::string& from,
                          double ratio) {
  if (cache_ == nullptr) return;
  double share = ratio;
  for (const bool approximate : {key.approximate, false}) {
    PlanKey at = key;
    at.approximate = approximate;
    const std::optional<PlanRow> begun = cache_->plans().FindById(at, from);
    if (!begun.has_value()) continue;
    share *= begun->share_of_baseline;
    break;
  }
  TakeBack(key, found.id());
  const std::optional<PlanRow> before = cache_->plans().Find(key);
  PlanRow row;
  row.stored = Stored(key, found, nullptr);
  row.share_of_baseline = row.low = row.high = share;
  // For a box, the full range's plan may be slower than the box's baseline.
  row.incumbent =
      !before.has_value() || !before->conditions_equal || share < before->share_of_baseline;
  row.compared_with = "whole plan";
  cache_->plans().Put(key, row);
}

void PlanKeeper::PutCosts(const PlanKey& key, const std::string& plan_id,
                          const std::vector<v1::PlanCost>& costs) {
  if (cache_ == nullptr) return;
  std::optional<PlanRow> row = cache_->plans().FindById(key, plan_id);
  if (!row.has_value() || !row->conditions_equal) return;
  row->stored.clear_costs();
  for (const v1::PlanCost& cost : costs) *row->stored.add_costs() = cost;
  cache_->plans().Put(key, *row);
}

bool PlanKeeper::SearchEnded(const PlanKey& key, const SearchPolicy& policy) const {
  return cache_ != nullptr && cache_->searches().Find(key, policy.ToProto()).has_value();
}

void PlanKeeper::PutSearch(const PlanKey& key, const SearchPolicy& policy,
                           const SearchState& state) {
  if (cache_ == nullptr) return;
  cache_->searches().Put(key, policy.ToProto(), state);
  cache_->Flush(kMostWait).IgnoreError();  // if it is lost, the search is repeated
}

absl::Status PlanKeeper::Pin(const ModelVersion& version, const PlanKey& key,
                             const KeptPlan& kept) {
  return pins_.Write(version, key, Stored(key, *kept.plan, kept.costs));
}

}  // namespace athanor
