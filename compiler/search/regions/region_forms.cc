#include "compiler/search/regions/region_forms.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/rules/terms/views.h"
#include "compiler/search/kernels/fusion.h"

namespace athanor {
namespace {

// Rule row that a form's text names for values that cross in other layouts.
constexpr char kJoinRow[] = "boundary_layouts";

// Sums the reports of each row's rules. Returns the rows that found anything, by the row's index.
std::vector<egraph::RuleReport> ByRow(const std::vector<egraph::RuleReport>& rules) {
  std::map<uint32_t, egraph::RuleReport> rows;
  for (const egraph::RuleReport& rule : rules) {
    if (rule.matches == 0 && rule.bans == 0) continue;
    egraph::RuleReport& row = rows[rule.tag];
    row.name = std::string(RuleRows()[rule.tag].name);
    row.tag = rule.tag;
    Accumulate(rule, &row);
  }
  std::vector<egraph::RuleReport> found;
  for (auto& [tag, row] : rows) found.push_back(std::move(row));
  return found;
}

}  // namespace

RegionForms::RegionForms(const Graph& graph, RegionFormsOptions options)
    : options_(std::move(options)),
      costs_(graph.dims, options_.sizes, options_.machine),
      regions_(CutRegions(graph, options_.cut)),
      solver_(&options_, &costs_) {
  forms_.push_back({{}, std::make_unique<Graph>(graph)});
  for (const Region& region : regions_.distinct) cut_.insert(region.key);
}

absl::StatusOr<std::unique_ptr<RegionForms>> RegionForms::Create(const Graph& graph,
                                                                 RegionFormsOptions options) {
  if (options.sizes.empty()) return absl::InvalidArgumentError("forms need at least one size");
  if (absl::Status s = CheckRuleChoice(options.rules); !s.ok()) return s;
  std::unique_ptr<RegionForms> forms(new RegionForms(graph, std::move(options)));
  if (absl::Status s = forms->Solve(); !s.ok()) return s;
  return forms;
}

// --- Solving regions ---

absl::Status RegionForms::Solve() {
  auto terms = solver_.Solve(*forms_[0].graph, &regions_);
  if (!terms.ok()) return terms.status();
  for (size_t i = 0; i < regions_.distinct.size(); ++i) {
    const Region& region = regions_.distinct[i];
    Solved& solved = solved_.emplace_back();
    solved.terms = (*terms)[region.key];
    // Choice 0 is the region as it was cut, whatever the e-graph says of it.
    solved.choices.push_back({{}, region.graph});
    solved.by_hash[CanonicalHash(region.graph)] = 0;
    if (solved.terms == nullptr) continue;
    solved.choices[0].choice = solved.terms->Original();
    solved.cheapest = AddChoice(static_cast<int>(i), solved.terms->Cheapest());
  }
  terms->clear();  // frees the e-graphs of regions that were joined
  std::vector<std::pair<double, int>> dearest;
  for (size_t i = 0; i < solved_.size(); ++i) {
    const Region& region = regions_.distinct[i];
    if (solved_[i].terms == nullptr) continue;
    dearest.emplace_back(-SecondsOf(region.graph, costs_) * region.instances, static_cast<int>(i));
  }
  std::sort(dearest.begin(), dearest.end());
  for (const auto& [seconds, i] : dearest) dearest_.push_back(i);
  forms_[0].genome.choices.assign(solved_.size(), 0);
  form_of_[forms_[0].genome] = 0;
  return options_.rules.Allows(*FindRule(kJoinRow)) ? PrepareJoins() : absl::OkStatus();
}

absl::Status RegionForms::PrepareJoins() {
  const absl::Duration end = solver_.Elapsed() + options_.join_time;
  RegionJoins::Sources sources;
  sources.regions = dearest_;
  if (sources.regions.size() > static_cast<size_t>(options_.max_regions)) {
    sources.regions.resize(options_.max_regions);
  }
  for (const Solved& solved : solved_) sources.terms.push_back(solved.terms.get());
  sources.make = [this, end](
                     int region,
                     const PortLayouts& layouts) -> absl::StatusOr<std::unique_ptr<LayoutTerms>> {
    const std::optional<SaturationOptions> left = solver_.Left(end);
    if (!left) return nullptr;
    auto terms = LayoutTerms::Create(regions_.distinct[region].graph, layouts, options_.rules,
                                     *left, costs_);
    if (terms.ok()) solver_.AddBytes((*terms)->Bytes());
    return terms;
  };
  sources.has_time = [this, end] { return solver_.Left(end).has_value(); };
  auto joins = RegionJoins::Create(*forms_[0].graph, regions_, sources, options_.join);
  if (!joins.ok()) return joins.status();
  joins_ = *std::move(joins);
  return absl::OkStatus();
}

// --- Choices and forms ---

int RegionForms::AddChoice(int region, const egraph::Choice& choice) {
  Solved& solved = solved_[region];
  absl::StatusOr<Graph> graph = solved.terms->Extract(choice);
  if (!graph.ok()) return 0;
  *graph = ComposeViews(*graph);
  const auto [it, fresh] =
      solved.by_hash.try_emplace(CanonicalHash(*graph), static_cast<int>(solved.choices.size()));
  if (fresh) solved.choices.push_back({choice, *std::move(graph)});
  return it->second;
}

const std::vector<int>& RegionForms::Near(int region, int choice) {
  if (!solved_[region].choices[choice].searched) {
    std::set<int> near;
    if (solved_[region].terms != nullptr) {
      near.insert({0, solved_[region].cheapest});
      const egraph::Choice from = solved_[region].choices[choice].choice;
      for (const egraph::Choice& c :
           solved_[region].terms->Mutations(from, options_.choices_per_region)) {
        near.insert(AddChoice(region, c));
      }
    }
    near.erase(choice);
    Choice& known = solved_[region].choices[choice];
    known.near.assign(near.begin(), near.end());
    known.searched = true;
  }
  return solved_[region].choices[choice].near;
}

double RegionForms::CostOf(const Graph& graph) const {
  return cost_ ? cost_(graph) : SecondsOf(graph, costs_);
}

std::vector<const Graph*> RegionForms::GraphsOf(const FormGenome& genome) const {
  std::vector<const Graph*> graphs;
  for (size_t i = 0; i < regions_.instances.size(); ++i) {
    const int r = regions_.instances[i].region;
    const int variant = genome.joined.empty() ? -1 : genome.joined[i];
    graphs.push_back(variant < 0 ? &solved_[r].choices[genome.choices[r]].graph
                                 : &joins_->variants()[variant].as_it_is);
  }
  return graphs;
}

absl::StatusOr<Graph> RegionForms::Build(const std::vector<const Graph*>& forms,
                                         std::vector<std::vector<NodeId>>* places) const {
  const Graph& original = *forms_[0].graph;
  absl::StatusOr<Graph> stitched = StitchInstances(original, regions_, forms, places);
  if (!stitched.ok()) return stitched.status();
  // Views on both sides of a cut meet here and are composed.
  std::vector<NodeId> moved;
  Graph made = CanonicalizeLike(ComposeViews(*stitched), original, &moved);
  if (places != nullptr) MovePlaces(moved, places);
  if (absl::Status s = Verify(made); !s.ok()) {
    return absl::InternalError(absl::StrCat("a stitched form is not a valid graph: ", s.message()));
  }
  return made;
}

int RegionForms::AddForm(FormGenome genome) {
  const auto known = form_of_.find(genome);
  if (known != form_of_.end()) return known->second;
  if (forms_.size() >= static_cast<size_t>(options_.max_forms) ||
      form_nodes_ + forms_[0].graph->nodes.size() > options_.max_form_nodes) {
    return -1;
  }
  absl::StatusOr<Graph> graph = Build(GraphsOf(genome));
  const int made = static_cast<int>(forms_.size());
  // Layouts that no rule used are views that cancel: the result may be a known form.
  const int form = !graph.ok() ? -1 : genome.joined.empty() ? made : FormOf(*graph);
  form_of_[genome] = form;
  if (form == made) {
    form_nodes_ += graph->nodes.size();
    forms_.push_back({std::move(genome), std::make_unique<Graph>(*std::move(graph))});
  }
  return form;
}

int RegionForms::FormOf(const Graph& graph) const {
  std::string text;
  for (size_t f = 0; f < forms_.size(); ++f) {
    if (forms_[f].graph->nodes.size() != graph.nodes.size()) continue;
    if (text.empty()) text = ToText(graph);
    if (ToText(*forms_[f].graph) == text) return static_cast<int>(f);
  }
  return static_cast<int>(forms_.size());
}

// Counts by distinct region the instances that its choice computes.
std::vector<int> RegionForms::InstancesAsTheyAre(const FormGenome& genome) const {
  std::vector<int> counts(solved_.size());
  for (size_t i = 0; i < regions_.instances.size(); ++i) {
    counts[regions_.instances[i].region] += genome.joined.empty() || genome.joined[i] < 0;
  }
  return counts;
}

// Adds `best` with the best combinations of layouts between its regions.
void RegionForms::AddJoined(const FormGenome& from, const FormGenome& best,
                            std::vector<Candidate>* candidates) const {
  if (joins_ == nullptr || joins_->variants().empty()) return;
  std::vector<double> now, as_it_is, prices;
  for (size_t r = 0; r < solved_.size(); ++r) {
    now.push_back(CostOf(static_cast<int>(r), from.choices[r]));
    as_it_is.push_back(best.choices[r] == from.choices[r]
                           ? now.back()
                           : CostOf(static_cast<int>(r), best.choices[r]));
  }
  for (const RegionJoins::Variant& v : joins_->variants()) prices.push_back(CostOf(v.stored));
  double before = 0;
  for (size_t i = 0; i < regions_.instances.size(); ++i) {
    const int variant = from.joined.empty() ? -1 : from.joined[i];
    before += variant < 0 ? now[regions_.instances[i].region] : prices[variant];
  }
  for (RegionJoins::Join& join : joins_->Best(as_it_is, prices, options_.max_joined)) {
    candidates->push_back({before - join.cost, {best.choices, std::move(join.variants)}});
  }
}

std::vector<int> RegionForms::Neighbours(int form) {
  const FormGenome from = forms_[form].genome;
  const std::vector<int> instances = InstancesAsTheyAre(from);
  std::vector<Candidate> candidates;
  // Takes the best choice of every region at once: choices in different regions are independent, so
  // their gains add up.
  Candidate all{0, from};
  const size_t regions = std::min<size_t>(dearest_.size(), options_.max_regions);
  for (size_t i = 0; i < regions; ++i) {
    const int r = dearest_[i];
    const std::vector<int> near = Near(r, from.choices[r]);
    if (near.empty()) continue;
    const double now = CostOf(r, from.choices[r]);
    double best = 0;
    for (int choice : near) {
      const double gain = now - CostOf(r, choice);
      if (instances[r] > 0) {
        Candidate& c = candidates.emplace_back(Candidate{gain * instances[r], from});
        c.genome.choices[r] = choice;
      }
      if (gain > best) {
        best = gain;
        all.genome.choices[r] = choice;
      }
    }
    all.gain += best * instances[r];
  }
  AddJoined(from, all.genome, &candidates);
  candidates.push_back(std::move(all));
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.gain, a.genome) < std::tie(a.gain, b.genome);
  });
  std::vector<int> neighbours;
  for (Candidate& c : candidates) {
    if (neighbours.size() == static_cast<size_t>(options_.max_neighbours)) break;
    const int other = AddForm(std::move(c.genome));
    if (other < 0 || other == form) continue;
    if (std::find(neighbours.begin(), neighbours.end(), other) == neighbours.end()) {
      neighbours.push_back(other);
    }
  }
  return neighbours;
}

absl::StatusOr<Graph> RegionForms::RandomForm(uint64_t seed) const {
  std::vector<Graph> graphs;
  for (size_t i = 0; i < solved_.size(); ++i) {
    const Solved& s = solved_[i];
    if (s.terms == nullptr) {
      graphs.push_back(s.choices[0].graph);
      continue;
    }
    absl::StatusOr<Graph> graph = s.terms->Extract(s.terms->Random(seed * 1000003 + i));
    if (!graph.ok()) return graph.status();
    graphs.push_back(*std::move(graph));
  }
  std::vector<std::optional<Graph>> joined(regions_.instances.size());
  if (joins_ != nullptr && std::mt19937_64(seed)() % 2 == 0) {
    absl::StatusOr<std::vector<std::optional<Graph>>> random = joins_->Random(seed);
    if (!random.ok()) return random.status();
    joined = *std::move(random);
  }
  std::vector<const Graph*> forms;
  for (size_t i = 0; i < joined.size(); ++i) {
    forms.push_back(joined[i] ? &*joined[i] : &graphs[regions_.instances[i].region]);
  }
  return Build(forms);
}

std::string RegionForms::About(int form) const {
  std::set<std::string> rows;
  const FormGenome& genome = forms_[form].genome;
  const std::vector<int> instances = InstancesAsTheyAre(genome);
  for (size_t r = 0; r < genome.choices.size(); ++r) {
    if (genome.choices[r] == 0 || instances[r] == 0) continue;
    rows.merge(solved_[r].terms->Rows(solved_[r].choices[genome.choices[r]].choice));
  }
  for (const int variant : genome.joined) {
    if (variant < 0) continue;
    const std::set<std::string>& more = joins_->variants()[variant].rows;
    rows.insert(more.begin(), more.end());
  }
  std::string about = absl::StrJoin(rows, " ");
  if (!genome.joined.empty()) {
    absl::StrAppend(&about, about.empty() ? "" : " ", kJoinRow, "(", joins_->About(genome.joined),
                    ")");
  }
  return about;
}

std::vector<RegionReport> RegionForms::Report() const {
  std::vector<RegionReport> reports;
  for (size_t r = 0; r < solved_.size(); ++r) {
    RegionReport& report = reports.emplace_back();
    report.instances = regions_.distinct[r].instances;
    report.graph_nodes = regions_.distinct[r].nodes;
    // the limit of all regions together, if this one has no e-graph
    report.stop = egraph::StopReason::kTimeLimit;
    if (solved_[r].terms == nullptr) continue;
    const RegionTerms& terms = *solved_[r].terms;
    report.e_nodes = terms.terms().num_nodes();
    report.e_classes = terms.terms().num_classes();
    report.iterations = static_cast<int>(terms.report().iterations.size());
    report.seconds = terms.seconds();
    report.peak_bytes = terms.terms().Bytes();
    report.stop = terms.report().reason;
    for (const egraph::IterationReport& i : terms.report().iterations) {
      report.peak_bytes = std::max(report.peak_bytes, i.bytes);
    }
    report.rules = ByRow(terms.report().rules);
  }
  return reports;
}

absl::StatusOr<std::string> RegionForms::Dot(int region, size_t max_nodes) const {
  if (region < 0 || region >= static_cast<int>(solved_.size())) {
    return absl::NotFoundError(absl::StrCat("there is no region ", region, "; the graph has ",
                                            solved_.size(), ", counted from 0"));
  }
  const RegionTerms* terms = solved_[region].terms.get();
  if (terms == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("region ", region,
                     " has no e-graph: the limits shared by all regions were used up before it"));
  }
  const size_t nodes = terms->terms().num_nodes();
  if (nodes > max_nodes) {
    return absl::FailedPreconditionError(absl::StrCat("the e-graph of region ", region, " has ",
                                                      nodes, " e-nodes; at most ", max_nodes,
                                                      " can be drawn legibly"));
  }
  return ToDot(terms->term_graph(), max_nodes);
}

}  // namespace athanor
