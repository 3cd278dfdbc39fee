#include "compiler/search/regions/region_terms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "compiler/egraph/stopwatch.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using egraph::Choice;
using egraph::ClassId;
using ENode = egraph::NodeId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Most changes tried per call of Mutations.
constexpr size_t kMaxTried = 400;
// Steps of the descent to the cheapest choice.
constexpr int kMaxSteps = 8;

}  // namespace

absl::StatusOr<std::shared_ptr<const SaturatedTerms>> SaturatedTerms::Of(
    std::unique_ptr<TermGraph> terms, const RuleChoice& rules, const SaturationOptions& options) {
  const auto made = std::make_shared<SaturatedTerms>();
  made->terms = std::move(terms);
  const egraph::Stopwatch watch;
  ASSIGN_OR_RETURN(made->report, Saturate(made->terms.get(), rules, options));
  made->seconds = absl::ToDoubleSeconds(watch.Elapsed());
  return made;
}

std::vector<double> SaturatedTerms::CostsOf(const NodeCosts& costs) const {
  const egraph::EGraph& graph = terms->terms();
  const FactsAnalysis& facts = terms->facts();
  std::vector<double> seconds(graph.node_bound(), kInfinity);
  std::vector<const TensorType*> operands;
  for (uint32_t i = 0; i < graph.node_bound(); ++i) {
    const ENode n{i};
    if (!graph.alive(n)) continue;
    operands.clear();
    for (const ClassId child : graph.children(n)) operands.push_back(&facts.Type(graph, child));
    const Facts& result = facts.Get(graph, graph.class_of(n));
    const Op op = ToOp(graph.op(n));
    const bool declared = IsDeclared(op);
    seconds[i] = declared ? 0
                          : costs.Of(op, terms->language().attrs(graph.payload(n)), operands,
                                     result.type, result.weight);
  }
  return seconds;
}

absl::StatusOr<std::unique_ptr<RegionTerms>> RegionTerms::Create(const Graph& region,
                                                                 const RuleChoice& rules,
                                                                 const SaturationOptions& options,
                                                                 const NodeCosts& costs) {
  ASSIGN_OR_RETURN(std::unique_ptr<TermGraph> terms, TermGraph::Create(region));
  ASSIGN_OR_RETURN(auto saturated, SaturatedTerms::Of(std::move(terms), rules, options));
  std::vector<size_t> outputs(region.outputs.size());
  std::iota(outputs.begin(), outputs.end(), size_t{0});
  std::vector<double> seconds = saturated->CostsOf(costs);
  return Over(std::move(saturated), outputs, std::move(seconds));
}

std::unique_ptr<RegionTerms> RegionTerms::Over(std::shared_ptr<const SaturatedTerms> saturated,
                                               const std::vector<size_t>& outputs,
                                               std::vector<double> costs) {
  std::unique_ptr<RegionTerms> made(new RegionTerms());
  made->saturated_ = std::move(saturated);
  made->costs_ = std::move(costs);
  const std::vector<ClassId> roots = made->term_graph().Roots();
  for (const size_t output : outputs) made->roots_.push_back(roots[output]);
  made->FindChoices();
  return made;
}

void RegionTerms::FindChoices() {
  extractor_ =
      std::make_unique<egraph::Extractor>(terms(), [this](ENode n) { return costs_[n.value]; });
  // Classes of the region that are not needed any more, or whose node has no kernel, follow the
  // cheapest tree. So does all of it if the region itself has no kernels and no rule helped.
  original_ = term_graph().Original();
  if (!extractor_->EnforceAcyclic(roots_, &original_).ok()) original_ = term_graph().Original();
  original_ = Completed(original_);
  cheapest_ = original_;
  const absl::StatusOr<Choice> greedy = extractor_->Extract(roots_);
  if (greedy.ok() && Cost(*greedy) < Cost(cheapest_)) cheapest_ = Completed(*greedy);
  if (!extractor_->Refine(roots_, &cheapest_).ok()) cheapest_ = original_;
  // Class by class, no class takes a node that pays only if several share it; mutations find those.
  for (int step = 0; step < kMaxSteps; ++step) {
    std::vector<Choice> better = Mutations(cheapest_, 1);
    if (better.empty() || Cost(better[0]) >= Cost(cheapest_)) break;
    cheapest_ = std::move(better[0]);
  }
}

bool RegionTerms::Computable() const {
  return std::all_of(roots_.begin(), roots_.end(),
                     [this](ClassId root) { return std::isfinite(extractor_->TreeCost(root)); });
}

std::vector<ClassId> RegionTerms::Order(const Choice& choice) const {
  return egraph::ChosenOrder(terms(), choice, roots_).value_or(std::vector<ClassId>());
}

double RegionTerms::Cost(const Choice& choice) const {
  double cost = 0;
  for (const ClassId id : Order(choice)) cost += costs_[choice.Get(id).value];
  return cost;
}

// Reports whether the node's cost is finite and its operands can be computed.
bool RegionTerms::IsUsable(ENode n) const {
  const auto children = terms().children(n);
  return std::isfinite(costs_[n.value]) &&
         std::all_of(children.begin(), children.end(),
                     [&](ClassId c) { return std::isfinite(extractor_->TreeCost(c)); });
}

Choice RegionTerms::Completed(const Choice& from) const {
  Choice choice = extractor_->tree();
  for (const ClassId id : Order(from)) choice.Set(id, from.Get(id));
  return choice;
}

// A change gains the difference of the two nodes, less the trees of operands not needed so far.
std::vector<RegionTerms::Change> RegionTerms::Changes(const Choice& from) const {
  const egraph::EGraph& graph = terms();
  std::vector<bool> needed(graph.class_bound());
  const std::vector<ClassId> order = Order(from);
  for (const ClassId id : order) needed[id.value] = true;
  std::vector<Change> changes;
  for (const ClassId id : order) {
    for (const ENode n : graph.nodes(id)) {
      if (n == from.Get(id) || !graph.alive(n) || !IsUsable(n)) continue;
      double gain = costs_[from.Get(id).value] - costs_[n.value];
      for (const ClassId child : graph.children(n)) {
        if (!needed[graph.Find(child).value]) gain -= extractor_->TreeCost(child);
      }
      changes.push_back({gain, id, n});
    }
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(b.gain, a.id, a.node) < std::tie(a.gain, b.id, b.node);
  });
  if (changes.size() > kMaxTried) changes.resize(kMaxTried);
  return changes;
}

// Lets other classes take nodes that are cheaper because their operands are computed now anyway.
void RegionTerms::TakeWhatIsThere(ClassId changed, Choice* choice) const {
  const egraph::EGraph& graph = terms();
  std::vector<bool> needed(graph.class_bound());
  const std::vector<ClassId> order = Order(*choice);
  for (const ClassId id : order) needed[id.value] = true;
  for (const ClassId id : order) {
    if (id == changed) continue;
    const ENode old = choice->Get(id);
    ENode best = old;
    for (const ENode n : graph.nodes(id)) {
      const auto children = graph.children(n);
      if (!graph.alive(n) || costs_[n.value] >= costs_[best.value] ||
          !std::all_of(children.begin(), children.end(),
                       [&](ClassId c) { return needed[graph.Find(c).value]; })) {
        continue;
      }
      choice->Set(id, n);
      // Operands that are computed anyway may depend on this class: a cheaper node must not close a
      // cycle.
      if (egraph::CheckChoice(graph, *choice, roots_).ok()) best = n;
      choice->Set(id, best);
    }
  }
}

std::optional<Choice> RegionTerms::Apply(const Choice& from, const Change& change) const {
  Choice choice = from;
  choice.Set(change.id, change.node);
  if (!extractor_->EnforceAcyclic(roots_, &choice).ok()) return std::nullopt;
  if (choice.Get(change.id) != change.node) return std::nullopt;
  TakeWhatIsThere(change.id, &choice);
  return Completed(choice);
}

std::vector<Choice> RegionTerms::Mutations(const Choice& from, size_t limit) const {
  const Choice start = Completed(from);
  std::vector<std::pair<double, Choice>> made;
  for (const Change& change : Changes(start)) {
    std::optional<Choice> choice = Apply(start, change);
    if (!choice || *choice == start) continue;
    const double cost = Cost(*choice);
    made.emplace_back(cost, *std::move(choice));
  }
  std::vector<size_t> order(made.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(made[a].first, a) < std::tie(made[b].first, b);
  });
  std::vector<Choice> best;
  for (const size_t i : order) {
    if (best.size() == limit) break;
    Choice& choice = made[i].second;
    if (std::find(best.begin(), best.end(), choice) == best.end())
      best.push_back(std::move(choice));
  }
  return best;
}

Choice RegionTerms::Random(uint64_t seed) const {
  const egraph::EGraph& graph = terms();
  std::mt19937_64 random(seed);
  Choice choice = Completed(random() % 2 ? original_ : cheapest_);
  // Changes all classes, or as few as one in sixteen.
  const uint64_t one_in = uint64_t{1} << random() % 5;
  for (const ClassId id : graph.Classes()) {
    if (random() % one_in) continue;
    std::vector<ENode> usable;
    for (const ENode n : graph.nodes(id)) {
      if (graph.alive(n) && IsUsable(n)) usable.push_back(n);
    }
    if (!usable.empty()) choice.Set(id, usable[random() % usable.size()]);
  }
  if (!extractor_->EnforceAcyclic(roots_, &choice).ok()) return original_;
  return Completed(choice);
}

std::optional<Choice> RegionTerms::ChoiceOf(const Graph& form) const {
  const egraph::EGraph& graph = terms();
  Choice choice(graph);
  std::vector<ClassId> classes(form.nodes.size()), children;
  for (size_t n = 0; n < form.nodes.size(); ++n) {
    const Node& node = form.nodes[n];
    children.clear();
    for (const NodeId i : node.inputs) children.push_back(classes[i]);
    if (!std::all_of(children.begin(), children.end(), [](ClassId c) { return c.valid(); })) {
      continue;
    }
    const ENode found =
        graph.LookupNode(ToOpId(node.op), term_graph().language().Intern(node), children);
    if (!found.valid() || !IsUsable(found)) continue;
    classes[n] = graph.class_of(found);
    if (!choice.Get(classes[n]).valid()) choice.Set(classes[n], found);
  }
  for (size_t i = 0; i < roots_.size(); ++i) {
    const ClassId root = classes[form.outputs[i].node];
    if (!root.valid() || root != graph.Find(roots_[i])) return std::nullopt;
  }
  if (!egraph::CheckChoice(graph, choice, roots_).ok()) return std::nullopt;
  return Completed(choice);
}

std::set<std::string> RegionTerms::Rows(const Choice& choice) const {
  std::set<std::string> rows;
  const egraph::EGraph& graph = terms();
  for (const ClassId id : Order(choice)) {
    const auto cause = static_cast<uint32_t>(graph.added_by(choice.Get(id)));
    if (cause < report().rules.size()) {
      rows.insert(std::string(RuleRows()[report().rules[cause].tag].name));
    }
  }
  return rows;
}

}  // namespace athanor
