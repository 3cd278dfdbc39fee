// The search for a faster genome: decides what to measure next from what was measured so far. It
// measures nothing itself and knows no device. Its owner lowers, compiles, checks and times what it
// asks for and tells it the outcome.
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
// which nodes have memory, and which of the equal forms of the graph is used. A genome changes by
// one decision at a time, in all equal layers at once, and is scored by the sum of its tasks' best
// times. Whole plans are proposed when the sum promises enough; in the end only their own
// measurement counts.
//
// Deterministic: the same forms, options and outcomes give the same questions. A search that was
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

  // `target.threads` is the number of threads that the server uses.
  Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
         SearchOptions options);
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  // Returns what to do next. REQUIRES: everything asked for before has been told.
  Step Next();
  // Says that the time is up: Next() proposes the best plan if it gains, and then is done.
  void Finish() { finishing_ = true; }

  const KernelTask& task(int id) const { return tasks_[id].task(); }
  const KernelCandidate& kernel(int id) const { return kernels_[id]; }
  const PlanCandidate& plan(int id) const { return plans_[id]; }
  const FormSpace& forms() const { return *forms_; }
  // Returns the times of the task's best schedule so far; empty if none is known.
  const Seconds& BestOf(int task) const { return tasks_[task].best(); }
  // Returns the weight of a second at each size; empty until the baseline's times are known. The
  // best plan is the one with the least weighted sum.
  const Seconds& size_weights() const { return context_.weights; }

  // Records a kernel's outcome. An error: it cannot be lowered, compiled, checked or measured.
  void TellKernel(int id, const absl::StatusOr<Seconds>& outcome);
  // Records a plan's outcome. `taken`: it serves now, and later plans have to beat it. `ratio`: its
  // measured time as a share of that of the plan that served before; nullopt: not measured.
  void TellPlan(int id, bool taken, std::optional<double> ratio = std::nullopt);
  // Says that the machine reaches more; a search that is done may go on. REQUIRES: as Next().
  void RaiseLimits(const Machine& machine);

  SearchReport Report();
  // Returns recipes for the regions of the plan that was taken last; empty if none was.
  std::vector<RegionRecipe> Recipes();

 private:
  using Calls = std::map<int, int>;  // number of calls by task
  // A genome in short: what ChooseKernels needs, and the tasks that result.
  struct State {
    int form = 0;
    Fusion fusion;
    Calls calls;
  };
  // Kinds of work that a search can do next; each gets a share of the measured kernels.
  enum class Work : uint8_t { kSchedules, kFlips, kForms };
  static constexpr size_t kWorks = 3;
  // Schedules that a plan gives to kernels that were not measured: those that the cost model
  // predicts to be best, those of the rule of thumb, or those of recipes.
  enum class Schedules : uint8_t { kBest, kStarted, kSuggested };
  // A change of the best genome that is worth trying.
  struct Move {
    std::string key;  // equal in equal layers, so that it is tried once
    int form;
    Fusion fusion;
    double gain;     // predicted, as a share of the baseline's time
    double promise;  // expected gain for its cost: comparable with TuningGain
  };
  static constexpr size_t kKinds = static_cast<size_t>(KernelKind::kLoop) + 1;
  static constexpr size_t kMagnitudes = 4;  // of rooflines; caches are modelled only roughly

  // Shares of the whole time: the least gain that is worth a measurement, and the least gain of a
  // change of the genome.
  static constexpr double kLeastAction = 0.001, kLeastMove = 0.005;

  // search.cc: state, and the order of work.
  void SettleBaseline();
  std::optional<Step> Improve();
  Step NextFinalist();
  Step Done(SearchStop stop);
  bool NearRoofline();
  // Returns the least time that may be hoped for.
  double RooflineOf(const Tuning& t) const;
  static size_t Magnitude(double roofline);
  void NoteSlack(const Tuning& t);  // updates slack_
  // Orders the kinds of work so that each that promises a gain gets its share of the kernels.
  std::array<Work, kWorks> Turns();
  // Returns the weighted best time. For a task that is not measured: the least it may take, or in
  // kFast the prediction.
  double TimeOf(Tuning& t) const;
  double TimeOf(const Calls& calls);
  // As TimeOf, but a task that is not measured has its prediction, corrected by its kind's bias.
  double ExpectedOf(const Calls& calls);
  // Reports whether every kernel was measured, or serves in the baseline and cannot be measured.
  bool Known(const State& state) const;
  bool fast() const { return options_.mode == SearchMode::kFast; }
  bool exhaust() const { return options_.mode == SearchMode::kExhaust; }

  // search_tuning.cc: choice of schedules.
  bool MayAsk() const { return static_cast<int64_t>(kernels_.size()) < options_.max_kernels; }
  void AskFor(int task, size_t schedule, Step* step);
  // Asks for the kernels that a state's tasks lack before it can be compared.
  void AskForState(const State& state, Step* step);
  double TuningGain(int task, int calls);
  std::optional<Step> Tune(const Calls& calls, double least);
  std::optional<Step> TuneRest();
  std::optional<size_t> Inherited(int task);

  // search_recipes.cc: use of recipes.
  // Asks for the schedules that recipes suggest. Returns false if there are none.
  bool AskForSuggested(int task, Step* step);
  size_t LikedBest(int task, Schedules which);
  // Returns the rule of thumb's fusion, with memory as `form` has it where there is a choice.
  Fusion FusionOf(const RecipeForm& form);
  std::optional<State> NextFromRecipes();
  // Asks for the schedules suggested for the best genome; then tries the recipes' genomes.
  std::optional<Step> TryRecipes();

  // search_moves.cc: choice of genomes.
  State MakeState(int form, Fusion fusion);
  Genome GenomeOf(const Graph& graph, const TaskIndex& index, const Fusion& fusion);
  Calls CallsOf(const Graph& graph, TaskIndex& index, const Fusion& fusion);
  TaskIndex& IndexOf(int form);
  int TaskOf(const Graph& graph, TaskIndex& index, const std::vector<bool>& memory,
             const KernelChoice& kernel, std::vector<NodeId>* nodes = nullptr);
  // Implements GraphCost: the cost of the rule of thumb's genome.
  double CostOf(const Graph& graph);
  // Returns `from`'s decisions for the same values of another form.
  Fusion Carried(const State& from, int form);
  void FindMoves();
  void SettleBias();
  // Returns the mean of the gain that a change may bring and the gain it should bring. `less`: the
  // kernels that it replaces; `more`: its own.
  double GainOf(const Calls& less, const Calls& more);
  void AddFlips(const State& from);
  void AddForms(const State& from);
  // `more`: its kernels, or only the new ones.
  void AddMove(Work work, std::string key, int form, Fusion fusion, double gain, const Calls& more);
  // Removes and returns the most promising move left.
  std::optional<Move> NextMove(Work work);
  State Try(Move move);
  std::optional<Step> TryMove(Work work);
  std::optional<Step> GoOnTrying();
  bool Take(State state);
  // Takes the state put aside before that looks best by now. Returns false if there is none.
  bool Reconsider();
  Genome Scheduled(const State& state, Schedules which);  // over the form's graph
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
  std::map<std::string, int> tuned_;               // by anchor: the task that got faster last
  std::vector<KernelCandidate> kernels_;
  std::vector<size_t> schedule_of_;  // by kernel: index in its task's schedules
  std::deque<PlanCandidate> plans_;
  std::set<std::string> proposed_;  // texts of genomes

  // By kind of kernel. slack_: least measured time as a share of the roofline, by magnitude. bias_:
  // measured time over predicted.
  std::array<std::array<double, kMagnitudes>, kKinds> slack_;
  std::array<double, kKinds> bias_;
  State baseline_, best_;
  bool baseline_known_ = false;
  const RecipeSchedules suggested_;
  std::optional<std::deque<RecipeForm>> recipe_forms_;  // left; nullopt: not asked for yet
  bool recipes_left_ = true;                            // some are still to be tried
  std::set<size_t> recipes_tried_;                      // by index in options_.recipes
  std::optional<State> trying_;
  std::vector<State> aside_;  // tried and not taken, or replaced by a better one
  // Calls that a change replaces and adds, by its key. The same change is ranked many times.
  std::map<std::string, std::pair<Calls, Calls>> changes_;
  std::array<std::vector<Move>, kWorks> moves_;  // by Work; least promising first
  Work working_ = Work::kSchedules;              // work that kernels are asked for now
  std::array<double, kWorks> spent_{};           // by Work: kernels asked for lately
  std::set<std::string> moved_;                  // keys of moves made
  double served_ = 1;         // predicted share at which a plan would be as fast as the serving one
  double serving_share_ = 1;  // measured time of what serves, as a share of the baseline's
  double unheld_ = 1;         // time of the last plan over the sum of its kernels, at least 1
  int taken_ = -1;            // plan that was taken last; -1: none
  int kernels_since_plan_ = 0, trying_steps_ = 0;
  int genomes_tried_ = 0, genomes_taken_ = 0, forms_tried_ = 0, forms_taken_ = 0;
  int64_t failed_ = 0;
  size_t finalists_ = 0;  // proposed so far, in kFast
  bool finishing_ = false;
  SearchStop stop_ = SearchStop::kNone;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_SEARCH_H_
