// The search for a faster genome: decides what to measure next from what was measured so far. It
// measures nothing itself and knows no device: whoever owns it lowers, compiles, checks and times
// what it asks for and tells it the outcome.
//
//   Search search(SingleForm(graph), target, machine, {.sizes = {{1, 128}, {8, 128}}});
//   while (true) {
//     Search::Step step = search.Next();
//     if (step.done) break;                                   // step.stop says why
//     for (int id : step.kernels) search.TellKernel(id, Measure(search.kernel(id)));
//     if (step.plan >= 0) search.TellPlan(step.plan, MeasureWhole(search.plan(step.plan)));
//   }
//
// Two levels (DESIGN §6.5). Kernels: each distinct task of the genome has a space of schedules, of
// which the best predicted, the neighbours of the best, and some random ones are measured. Genomes:
// which nodes have memory, and which of the equal forms of the graph is used; changed in one place
// at a time, in all equal layers at once, and scored by the sum of the tasks' best times. Whole
// plans are proposed when the sum promises enough; only their own measurement counts in the end.
//
// Deterministic: the same forms, options and outcomes give the same questions, so a search that was
// lost is resumed by telling a new one what the old one knew. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "compiler/search/kernels/task_index.h"
#include "compiler/search/kernels/tuning.h"
#include "compiler/search/regions/forms.h"
#include "compiler/search/regions/recipe.h"
#include "compiler/search/search/search_options.h"
#include "compiler/search/search/search_report.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

class Search {
 public:
  struct Step {
    std::vector<int> kernels;  // each to be answered by TellKernel
    int plan = -1;             // to be answered by TellPlan
    bool done = false;
    SearchStop stop = SearchStop::kNone;
  };

  // `target.threads` is that of the server.
  Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
         SearchOptions options);
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  // What is to be done next. REQUIRES: everything asked for before has been told.
  Step Next();
  // The time is up: Next() proposes the best plan if it promises a gain, and then is done.
  void Finish() { finishing_ = true; }

  const KernelTask& task(int id) const { return tasks_[id].task(); }
  const KernelCandidate& kernel(int id) const { return kernels_[id]; }
  const PlanCandidate& plan(int id) const { return plans_[id]; }
  const FormSpace& forms() const { return *forms_; }
  // Times of the task's best schedule so far; empty: none is known.
  const Seconds& BestOf(int task) const { return tasks_[task].best(); }
  // What a second counts at each size; empty until the baseline's times are known. The best is that
  // of the least sum.
  const Seconds& size_weights() const { return context_.weights; }

  // An error: it cannot be lowered, compiled, checked or measured; the reason is its text.
  void TellKernel(int id, const absl::StatusOr<Seconds>& outcome);
  // True if it serves now: the best genome so far is measured against it from here on. `ratio`: its
  // time, measured whole, as a share of what served before; none: it was not measured.
  void TellPlan(int id, bool taken, std::optional<double> ratio = std::nullopt);
  // The machine reaches more than was known: one that is done may go on. REQUIRES: as Next().
  void RaiseLimits(const Machine& machine);

  SearchReport Report();
  // Of the regions of the plan that was taken last; none: none was.
  std::vector<RegionRecipe> Recipes();

 private:
  using Calls = std::map<int, int>;  // by task
  // A genome to be: what ChooseKernels needs, and the tasks it comes to.
  struct State {
    int form = 0;
    Fusion fusion;
    Calls calls;
  };
  // What a search can do next; each kind gets its turn.
  enum class Work : uint8_t { kSchedules, kFlips, kForms };
  static constexpr size_t kWorks = 3;
  // Which schedules kernels that were not measured have in a plan: those that the cost model likes,
  // those of the rule of thumb, or those of recipes.
  enum class Schedules : uint8_t { kBest, kStarted, kSuggested };
  // A change of the best genome that is worth a look.
  struct Move {
    std::string key;  // equal in equal layers: tried once
    int form;
    Fusion fusion;
    double gain;     // predicted share of the baseline's time
    double promise;  // what is expected of it, by its cost: comparable with TuningGain
  };
  static constexpr size_t kKinds = static_cast<size_t>(KernelKind::kLoop) + 1;
  static constexpr size_t kMagnitudes = 4;  // of rooflines: which caches help is modelled roughly

  // Shares of the whole time: less is not worth a measurement; what a change of the genome must
  // gain.
  static constexpr double kLeastAction = 0.001, kLeastMove = 0.005;

  // search.cc: what is known, and the order of things.
  void SettleBaseline();
  std::optional<Step> Improve();
  Step NextFinalist();
  Step Done(SearchStop stop);
  bool NearRoofline();
  // The least time that may be hoped for.
  double RooflineOf(const Tuning& t) const;
  static size_t Magnitude(double roofline);
  void NoteSlack(const Tuning& t);  // to slack_
  // By whose turn it is: a share of the kernels for each that promises anything.
  std::array<Work, kWorks> Turns();
  // Weighted best; of what is not measured the least it may take, or in kFast the prediction.
  double TimeOf(Tuning& t) const;
  double TimeOf(const Calls& calls);
  // Of what is not measured the prediction, as right as predictions were for its kind.
  double ExpectedOf(const Calls& calls);
  // Every kernel was measured, or serves in the baseline already and cannot be.
  bool Known(const State& state) const;
  bool fast() const { return options_.mode == SearchMode::kFast; }
  bool exhaust() const { return options_.mode == SearchMode::kExhaust; }

  // search_tuning.cc: which schedules are asked for.
  bool MayAsk() const { return static_cast<int64_t>(kernels_.size()) < options_.max_kernels; }
  void AskFor(int task, size_t schedule, Step* step);
  // Asks for what a state's tasks lack before they can be compared.
  void AskForState(const State& state, Step* step);
  double TuningGain(int task, int calls);
  std::optional<Step> Tune(const Calls& calls, double least);
  std::optional<Step> TuneRest();
  std::optional<size_t> Inherited(int task);

  // search_recipes.cc: what recipes have for this graph.
  // Asks for the schedules that they suggest. False: there are none.
  bool AskForSuggested(int task, Step* step);
  size_t LikedBest(int task, Schedules which);
  // The rules of thumb, but memory as `form` has it where the search may have a say.
  Fusion FusionOf(const RecipeForm& form);
  std::optional<State> NextFromRecipes();
  // For the best genome what they suggest; then, one after another, the genomes they come to.
  std::optional<Step> TryRecipes();

  // search_moves.cc: which genomes are compared.
  State MakeState(int form, Fusion fusion);
  Genome GenomeOf(const Graph& graph, const TaskIndex& index, const Fusion& fusion);
  Calls CallsOf(const Graph& graph, TaskIndex& index, const Fusion& fusion);
  TaskIndex& IndexOf(int form);
  int TaskOf(const Graph& graph, TaskIndex& index, const std::vector<bool>& memory,
             const KernelChoice& kernel, std::vector<NodeId>* nodes = nullptr);
  // GraphCost: of the rule of thumb's genome.
  double CostOf(const Graph& graph);
  // The same say over the same values of another form.
  Fusion Carried(const State& from, int form);
  void FindMoves();
  void SettleBias();
  // Between what a change may bring and what it should: `less` and `more` are the kernels it takes
  // the place of, and its own.
  double GainOf(const Calls& less, const Calls& more);
  void AddFlips(const State& from);
  void AddForms(const State& from);
  // `more`: its kernels, or those that are new.
  void AddMove(Work work, std::string key, int form, Fusion fusion, double gain, const Calls& more);
  // The most promising one left, taken out.
  std::optional<Move> NextMove(Work work);
  State Try(Move move);
  std::optional<Step> TryMove(Work work);
  std::optional<Step> GoOnTrying();
  bool Take(State state);
  // A state put aside before that looks best by now.
  bool Reconsider();
  Genome Scheduled(const State& state, Schedules which);  // of the form's graph
  ScheduledGraph Packed(int form, Genome genome);
  std::optional<Step> Propose(const State& state, Schedules which = Schedules::kBest);
  void RememberBaseline();
  std::optional<Step> ProposeBest(double least_gain);

  const std::unique_ptr<FormSpace> forms_;
  const SearchOptions options_;
  TuningContext context_;
  std::mt19937_64 random_;

  NodeNumbers numbers_;
  FusionMemo fused_;
  std::map<int, TaskIndex> indexes_;  // by form
  std::deque<Tuning> tasks_;
  absl::flat_hash_map<std::string, int> task_of_;  // by signature
  std::map<std::string, int> tuned_;               // by anchor: the task that was made faster last
  std::vector<KernelCandidate> kernels_;
  std::vector<size_t> schedule_of_;  // by kernel: in its task's schedules
  std::deque<PlanCandidate> plans_;
  std::set<std::string> proposed_;  // texts of genomes

  // By kind of kernel: the least share of rooflines seen, by magnitude; time over the predicted.
  std::array<std::array<double, kMagnitudes>, kKinds> slack_;
  std::array<double, kKinds> bias_;
  State baseline_, best_;
  bool baseline_known_ = false;
  const RecipeSchedules suggested_;
  std::optional<std::deque<RecipeForm>> recipe_forms_;  // left; none: not asked for yet
  bool recipes_left_ = true;                            // to be tried
  std::set<size_t> recipes_tried_;                      // by place in options_.recipes
  std::optional<State> trying_;
  std::vector<State> aside_;  // tried and not taken, or left
  // What flips change and forms come to, by key: met again, they are not made again to be ranked.
  std::map<std::string, std::pair<Calls, Calls>> changes_;
  std::array<std::vector<Move>, kWorks> moves_;  // by work; least promising first
  Work working_ = Work::kSchedules;              // what kernels are asked for now
  std::array<double, kWorks> spent_{};           // kernels asked for of late
  std::set<std::string> moved_;                  // keys of moves made
  double served_ = 1;         // predicted share at which a plan would be as fast as what serves
  double serving_share_ = 1;  // of the baseline's time, measured whole, of what serves
  double unheld_ = 1;         // of the last plan: its time over its kernels' sum, at least 1
  int taken_ = -1;            // the plan that was taken last
  int kernels_since_plan_ = 0, trying_steps_ = 0;
  int genomes_tried_ = 0, genomes_taken_ = 0, forms_tried_ = 0, forms_taken_ = 0;
  int64_t failed_ = 0;
  size_t finalists_ = 0;  // asked for, in kFast
  bool finishing_ = false;
  SearchStop stop_ = SearchStop::kNone;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_H_
