#include "compiler/search/search/search.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "compiler/search/kernels/signature.h"

namespace athanor {
namespace {

// A search may end when its best genome takes at most this multiple of the roofline.
constexpr double kNearRoofline = 1.1;
// Kernels to measure before a promised gain is proposed as a plan: plans are expensive to measure.
constexpr int kKernelsPerPlan = 48;
// Most steps of kFast's descent by the cost model.
constexpr int kMostDescents = 64;
constexpr size_t kFinalists = 3;
// Tuning steps for a change that could still win by tuning its own kernels.
constexpr int kTryingSteps = 4;
// A graph of more is large: finding changes takes 1.6 s in one of 7,894 nodes.
constexpr size_t kManyNodes = 1000;

TuningContext ContextOf(const v1::Target& target, const Machine& machine,
                        const SearchOptions& options) {
  TuningContext context{target, machine, options.sizes, {}, options.fixed_sums};
  if (!options.library) context.target.clear_blas();
  return context;
}

}  // namespace

Search::Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
               SearchOptions options)
    : forms_(std::move(forms)),
      options_(std::move(options)),
      tasks_(ContextOf(target, machine, options_), options_.mode),
      genomes_(forms_.get(), &tasks_, options_.fusion),
      best_(&genomes_, &tasks_, options_.mode),
      requests_(&options_, &tasks_, &turns_),
      recipes_(options_, &tasks_),
      moves_(&options_, forms_.get(), &genomes_, &tasks_),
      plans_(options_.least_gain) {
  forms_->UseCost(
      [this](const Graph& graph) { return tasks_.ExpectedOf(genomes_.UsualCalls(graph)); });
}

void Search::RaiseLimits(const Machine& machine) {
  tasks_.RaiseLimits(machine);
  if (baseline_known_) moves_.FindFrom(best_.get());
}

void Search::SettleBaseline() {
  tasks_.SetWeights(best_.baseline().calls);
  baseline_known_ = true;
  // The baseline serves already.
  const ScheduledGraph baseline =
      genomes_.Packed(0, Scheduled(best_.baseline(), Schedules::kStarted));
  plans_.AddServing(0, baseline);
  if (options_.fixed_sums) {
    signature_ = SignatureOf(baseline.graph, baseline.genome, target());
    kernel_signature_ = KernelSignatureOf(best_.baseline());
  }
  moves_.FindFrom(best_.get());
}

bool Search::NearRoofline() {
  double limit = 0;
  for (const auto& [task, calls] : best_.get().calls) {
    limit += calls * tasks_.RooflineOf(tasks_.at(task));
  }
  // If whole plans do not hold what their kernels promise, the limit is not near.
  return plans_.unheld() * best_.time() <= limit * kNearRoofline &&
         !moves_.AnyGains(options_.least_gain);
}

std::array<Work, kWorks> Search::Turns() {
  double schedules = 0;
  for (const auto& [task, calls] : best_.get().calls) {
    schedules = std::max(schedules, requests_.Gain(task, calls));
  }
  // With fixed sums few changes are possible, and to find them takes seconds in a large graph.
  const bool large = forms_->graph(0).nodes.size() > kManyNodes;
  if (options_.fixed_sums && large && schedules > kLeastAction) {
    return {Work::kSchedules, Work::kFlips, Work::kForms};
  }
  return turns_.Order({schedules, moves_.Promise(Work::kFlips), moves_.Promise(Work::kForms)});
}

std::optional<Search::Step> Search::Improve() {
  const double least = exhaust() ? -1 : kLeastAction;
  while (true) {
    for (Work work : Turns()) {
      turns_.Begin(work);
      if (work != Work::kSchedules) {
        if (auto step = TryMove(work)) return step;
        continue;
      }
      Step step{.kernels = requests_.Tune(best_.get().calls, least)};
      if (!step.kernels.empty()) return step;
    }
    turns_.Begin(Work::kSchedules);
    if (exhaust()) {
      Step step{.kernels = requests_.TuneRest()};
      if (!step.kernels.empty()) return step;
    }
    // Measurements since then may have made a genome that lost the best.
    std::optional<FusedForm> better = best_.Reconsider();
    if (!better || !Take(*std::move(better))) return std::nullopt;
  }
}

Search::Step Search::Done(SearchStop stop) {
  stop_ = stop;
  return Step{.done = true, .stop = stop};
}

// Descends by the cost model alone. Then proposes the genome it came to, with the schedules that
// the model predicts to be best and with those of the rule of thumb, and the original graph with
// the former. Recipes' genomes are proposed before.
Search::Step Search::NextFinalist() {
  if (finishing_) return Done(SearchStop::kBudget);
  if (!baseline_known_) {
    SettleBaseline();
    for (int i = 0; i < kMostDescents; ++i) {
      // Without measurements the most promising work comes first.
      std::optional<Move> move;
      for (Work work : Turns()) {
        if (work != Work::kSchedules && !move) move = moves_.Next(work);
      }
      if (!move || move->gain <= kLeastMove) break;
      FusedForm state = MakeTried(move->form, std::move(move->fusion));
      if (KeepsSums(state)) Take(std::move(state));
    }
  }
  while (std::optional<FusedForm> state = NextFromRecipes()) {
    if (auto step = Propose(*state, Schedules::kSuggested)) return *std::move(step);
  }
  while (finalists_ < kFinalists) {
    const size_t finalist = finalists_++;
    const FusedForm& state = finalist < 2 ? best_.get() : best_.baseline();
    const Schedules which = finalist == 1 ? Schedules::kStarted : Schedules::kBest;
    if (auto step = Propose(state, which)) return *std::move(step);
  }
  return Done(SearchStop::kExhausted);
}

Search::Step Search::Next() {
  // docs/internals/search.md explains this order.
  stop_ = SearchStop::kNone;
  if (options_.max_kernels <= 0) return Done(SearchStop::kBudget);
  if (fast()) return NextFinalist();
  if (requests_.size() == 0 && !finishing_) {
    Step first;
    AskForMissing(best_.baseline(), &first.kernels);
    AskForMissing(best_.get(), &first.kernels);
    if (!first.kernels.empty()) return first;
  }
  if (!baseline_known_) SettleBaseline();
  if (requests_.size() - kernels_at_plan_ >= kKernelsPerPlan) {
    if (auto step = ProposeBest(2 * options_.least_gain)) return *std::move(step);
  }
  if (requests_.size() == 0) return Done(finishing_ ? SearchStop::kBudget : SearchStop::kExhausted);
  if (auto step = GoOnTrying()) return *std::move(step);
  if (auto step = TryRecipes()) return *std::move(step);
  SearchStop stop = SearchStop::kBudget;
  if (!finishing_ && requests_.MayAsk()) {
    stop = SearchStop::kRoofline;
    if (exhaust() || !NearRoofline()) {
      if (auto step = Improve()) return *std::move(step);
      const Calls& calls = best_.get().calls;
      const bool open = std::any_of(calls.begin(), calls.end(), [&](const auto& entry) {
        return !tasks_.at(entry.first).Exhausted();
      });
      stop = open ? SearchStop::kStagnation : SearchStop::kExhausted;
    }
  }
  stop_ = stop;
  if (auto step = ProposeBest(options_.least_gain)) return *std::move(step);
  return Done(stop);
}

bool Search::KeepsSums(const FusedForm& state) {
  if (!options_.fixed_sums) return true;
  const auto orders = [&](const Calls& calls) {
    std::set<std::string_view> all;
    for (const auto& [id, count] : calls) {
      for (const auto& [place, order] : OrdersOf(id)) all.insert(order);
    }
    return all;
  };
  // The signature places them at the graph's nodes, which costs as much as to choose its kernels.
  return orders(state.calls) == orders(best_.baseline().calls) &&
         KernelSignatureOf(state) == kernel_signature_;
}

const std::map<NodeId, std::string>& Search::OrdersOf(int id) {
  const auto [known, added] = orders_.try_emplace(id);
  if (added) {
    const KernelTask& own = task(id);
    const std::vector<bool> memory = MemoryOf(own.graph, {{own.choice}});
    known->second = athanor::OrdersOf(own.graph, memory, own.choice, target());
  }
  return known->second;
}

std::string Search::KernelSignatureOf(const FusedForm& state) {
  const Graph& graph = forms_->graph(state.form);
  TaskIndex& index = genomes_.IndexOf(state.form);
  const Genome genome = genomes_.Choose(state);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  NodeOrders orders;
  std::vector<NodeId> nodes;
  for (const KernelChoice& kernel : genome.kernels) {
    if (index.weights()[kernel.root]) continue;
    const int id = tasks_.Find(graph, index, memory, kernel, &nodes);
    for (const auto& [place, order] : OrdersOf(id)) {
      orders[nodes[place]].emplace(order, kernel.root);
    }
  }
  return SignatureOf(graph, orders, target());
}

FusedForm Search::MakeTried(int form, Fusion fusion) {
  ++genomes_tried_;
  if (form != best_.get().form) ++forms_tried_;
  return genomes_.Make(form, std::move(fusion));
}

void Search::AskForMissing(const FusedForm& state, std::vector<int>* asked) {
  for (const auto& [task, calls] : state.calls) {
    Tuning& t = tasks_.at(task);
    if (t.measured() > 0) continue;
    requests_.Ask(task, 0, asked);
    if (!baseline_known_ || t.Exhausted()) continue;
    // A new kernel is judged by a second schedule, too: a recipe's, that of a similar kernel, or
    // the best predicted.
    if (recipes_.AskForSuggested(task, &requests_, asked)) continue;
    requests_.Ask(task, requests_.Inherited(task).value_or(1), asked);
  }
}

std::vector<int> Search::Try(FusedForm state) {
  std::vector<int> asked;
  AskForMissing(state, &asked);
  if (asked.empty()) {
    Take(std::move(state));  // all its kernels are known
  } else {
    trying_ = std::move(state);
    trying_steps_ = 0;
  }
  return asked;
}

bool Search::Take(FusedForm state) {
  if (!best_.Take(std::move(state))) return false;
  moves_.FindFrom(best_.get());
  return true;
}

std::optional<Search::Step> Search::TryMove(Work work) {
  while (std::optional<Move> move = moves_.Next(work)) {
    FusedForm state = MakeTried(move->form, std::move(move->fusion));
    if (!KeepsSums(state)) continue;
    Step step{.kernels = Try(std::move(state))};
    if (!step.kernels.empty()) return step;
  }
  return std::nullopt;
}

// Asks for more schedules for a change that is close to winning. Before it wins, also asks for the
// schedules found on the way, for the kernels that it would replace.
std::optional<Search::Step> Search::GoOnTrying() {
  if (!trying_) return std::nullopt;
  const Calls& best = best_.get().calls;
  const double behind = tasks_.TimeOf(trying_->calls) - best_.time();
  if (best_.Known(*trying_) && !finishing_) {
    Calls own;
    double possible = 0;
    for (const auto& [task, calls] : trying_->calls) {
      if (best.contains(task)) continue;
      own[task] = calls;
      possible += requests_.Gain(task, calls);
    }
    Step step;
    if (behind > -kLeastMove && behind < possible && trying_steps_++ < kTryingSteps) {
      step.kernels = requests_.Tune(own, kLeastAction);
      if (!step.kernels.empty()) return step;
    }
    for (const auto& [task, calls] : best) {
      if (behind >= 0 || trying_->calls.contains(task)) continue;
      if (auto schedule = requests_.Inherited(task)) requests_.Ask(task, *schedule, &step.kernels);
    }
    if (!step.kernels.empty()) return step;
  }
  FusedForm state = *std::move(trying_);
  trying_.reset();
  Take(std::move(state));
  return std::nullopt;
}

std::optional<FusedForm> Search::NextFromRecipes() {
  if (recipes_.empty()) return std::nullopt;
  while (std::optional<RecipeForm> recipe = recipes_.NextForm(*forms_)) {
    FusedForm state = genomes_.Make(recipe->form, genomes_.FusionOf(*recipe));
    const bool is_best = state.form == best_.get().form && state.calls == best_.get().calls;
    if ((is_best && !fast()) || !KeepsSums(state)) continue;
    recipes_.MarkTried(*recipe);
    ++genomes_tried_;
    if (state.form != best_.get().form) ++forms_tried_;
    return state;
  }
  return std::nullopt;
}

std::optional<Search::Step> Search::TryRecipes() {
  if (recipes_.empty() || !recipes_left_ || finishing_ || !requests_.MayAsk()) return std::nullopt;
  Step step;
  if (!recipes_.started()) {
    for (const auto& [task, calls] : best_.get().calls) {
      recipes_.AskForSuggested(task, &requests_, &step.kernels);
    }
  }
  while (step.kernels.empty()) {
    std::optional<FusedForm> state = NextFromRecipes();
    if (!state) break;
    step.kernels = Try(*std::move(state));
  }
  if (!step.kernels.empty()) return step;
  recipes_left_ = false;
  return ProposeBest(2 * options_.least_gain);
}

std::vector<RegionRecipe> Search::Recipes() {
  if (plans_.taken() == nullptr) return {};
  return RecipesOf(*plans_.taken(), *forms_, genomes_, tasks_);
}

Genome Search::Scheduled(const FusedForm& state, Schedules which) {
  const Graph& graph = forms_->graph(state.form);
  TaskIndex& index = genomes_.IndexOf(state.form);
  Genome genome = genomes_.Choose(state);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  for (KernelChoice& kernel : genome.kernels) {
    if (index.weights()[kernel.root] || which == Schedules::kStarted) continue;
    const int task = tasks_.Find(graph, index, memory, kernel);
    Tuning& t = tasks_.at(task);
    size_t chosen = 0;
    if (t.best_schedule() >= 0) {
      chosen = static_cast<size_t>(t.best_schedule());
    } else if (fast()) {
      std::optional<size_t> suggested;
      if (which == Schedules::kSuggested) suggested = recipes_.FirstSuggested(task);
      chosen = suggested ? *suggested : t.BestPredicted();
    }
    KernelChoice choice = t.schedule(chosen);
    choice.root = kernel.root;
    choice.anchor = kernel.anchor;
    kernel = choice;
  }
  return genome;
}

std::optional<Search::Step> Search::Propose(const FusedForm& state, Schedules which) {
  Genome genome = Scheduled(state, which);
  ScheduledGraph packed = genomes_.Packed(state.form, genome);
  if (!signature_.empty() && SignatureOf(packed.graph, packed.genome, target()) != signature_) {
    return std::nullopt;
  }
  const std::optional<int> plan = plans_.Add(
      {state.form, state.fusion, std::move(packed), tasks_.TimeOf(state.calls), std::move(genome)});
  if (!plan) return std::nullopt;
  kernels_at_plan_ = requests_.size();
  return Step{.plan = *plan};
}

std::optional<Search::Step> Search::ProposeBest(double least_gain) {
  if (!best_.Known(best_.get()) || !plans_.Promises(best_.time(), least_gain)) return std::nullopt;
  return Propose(best_.get());
}

}  // namespace athanor
